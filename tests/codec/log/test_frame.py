"""Append frames: one spelling, every damaged bit found, records come back as they went in."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, columns, flat
from topics.codec.log.frame import (
    FRAME_HEAD,
    FRAME_OVERHEAD,
    Defect,
    Ext,
    Flag,
    FrameType,
    Keyed,
    check_frame,
    decode_frame,
    decode_payloads,
    decode_record,
    encode_run,
)
from topics.codec.log.layout import frame_length, pack_exts, pack_frame, parse_exts
from topics.codec.log.resync import find_frames
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Corrupt

KEYED = Keyed(b"key", 2**63)


def encode(records, *, durable=False, keyed=None, frames=None, seq=5):
    frames = len(records) if frames is None else frames
    return encode_run(7, seq, TS, records, durable=durable, keyed=keyed, write_frames=frames)


def places(run, base=0):
    offsets, at = [], base
    for length in run.lengths:
        offsets.append(at)
        at += length
    return offsets


def forged(frame: bytes, **changes) -> bytes:
    """The frame with fields of its head changed and a checksum that is right."""
    names = ("frame_len", "kind", "flags", "topic_id", "seq", "ts", "node_len", "tag_len", "data_len")
    head = dict(zip(names, FRAME_HEAD.unpack_from(frame), strict=True)) | changes
    body = FRAME_HEAD.pack(*head.values()) + frame[FRAME_HEAD.size : -8]
    return body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body[4:]))


@pytest.mark.rule("T0.1")
def test_a_plain_frame_is_what_the_seed_draws():
    chunk, run = encode(RecordColumns([b"{}"]))
    covered = bytes([1, 0]) + struct.pack("<QQQHHI", 7, 5, TS, 0, 0, 2) + b"{}"

    assert chunk == struct.pack("<I", 44) + covered + struct.pack("<Q", xxhash.xxh3_64_intdigest(covered))
    assert list(run.lengths) == [len(chunk)] == [FRAME_OVERHEAD + 2]
    assert run.flags is None


@pytest.mark.rule("T2.11", "T2.12", "T2.15")
@given(columns(), st.booleans(), st.none() | st.just(KEYED))
def test_records_come_back_as_they_went_in(records, durable, keyed):
    chunk, run = encode(records, durable=durable, keyed=keyed)
    views = decode_payloads(chunk, places(run), run.lengths, topic_id=7, seqs=range(5, 5 + len(records)))

    assert len(chunk) == run.length
    assert views == [decode_frame(chunk, offset) for offset in places(run)]
    cuts = zip(places(run), run.lengths, strict=True)
    frames = [chunk[offset : offset + length] for offset, length in cuts]
    assert views == [decode_record(frame, topic_id=7, seq=5 + at) for at, frame in enumerate(frames)]
    assert [view.data for view in views] == list(records.data)
    for name in ("node", "tag", "meta", "key", "dedup_id", "content_type"):
        assert [getattr(view, name) for view in views] == list(getattr(records, name) or [b""] * len(records))
    ttls = records.ttl_ms or [None] * len(records)
    assert [view.expires_at for view in views] == [None if ttl is None else TS + ttl for ttl in ttls]
    delays = records.delay_ms or [None] * len(records)
    assert [view.not_before for view in views] == [None if delay is None else TS + delay for delay in delays]
    assert [view.priority for view in views] == list(records.priority or [None] * len(records))
    assert [view.compressed for view in views] == list(records.compressed or [False] * len(records))
    assert {view.durable for view in views} == {durable}
    assert [view.keyed for view in views] == [keyed] + [None] * (len(records) - 1)
    assert [view.write_frames for view in views] == [len(records)] + [1] * (len(records) - 1)
    assert list(run.sizes) == [len(view.data) + len(view.meta) for view in views]


@given(columns(count_max=3))
def test_memory_views_read_like_bytes(records):
    chunk, run = encode(records)
    padded = memoryview(b"\xff" * 3 + chunk + b"\xff")
    offsets = places(run, base=3)

    expected = decode_payloads(chunk, places(run), run.lengths, topic_id=7, seqs=range(5, 5 + len(records)))
    assert (
        decode_payloads(padded, offsets, run.lengths, topic_id=7, seqs=range(5, 5 + len(records))) == expected
    )
    assert [decode_frame(padded, offset, len(padded) - 1) for offset in offsets] == expected


@pytest.mark.parametrize(("frames", "keyed"), [(0, None), (3, None), (9, None), (3, KEYED), (9, KEYED)])
def test_only_the_first_frame_pays_for_its_write(frames, keyed):
    chunk, run = encode(RecordColumns([b"1", b"2", b"3"]), keyed=keyed, frames=frames)
    plain, _ = encode(RecordColumns([b"2", b"3"]), frames=0, seq=6)

    assert chunk.endswith(plain)
    assert run.flags is None
    assert list(run.lengths[1:]) == [FRAME_OVERHEAD + 1] * 2
    assert (run.lengths[0] > FRAME_OVERHEAD + 1) == (frames > 1 or keyed is not None)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("keyed", [KEYED, None])
@pytest.mark.parametrize(
    "records",
    [
        RecordColumns([b'{"n":1}']),
        RecordColumns([b"x"], node=[b"n"], tag=[b"t"], meta=[b"{}"], ttl_ms=[9], key=[b"k"]),
    ],
    ids=["plain", "all parts"],
)
def test_every_flipped_bit_is_found(records, keyed):
    chunk, run = encode(records, keyed=keyed)
    assert check_frame(chunk, 0, len(chunk)) == len(chunk)
    for bit in range(len(chunk) * 8):
        damaged = bytearray(chunk)
        damaged[bit // 8] ^= 1 << bit % 8

        assert isinstance(check_frame(damaged, 0, len(damaged)), Defect), bit
        with pytest.raises(Corrupt, match="topic 7 seq 5"):
            decode_payloads(bytes(damaged), [0], run.lengths, topic_id=7, seqs=[5])
        assert decode_record(bytes(damaged), topic_id=7, seq=5) is None


@pytest.mark.invariant("I-18")
def test_every_cut_is_found():
    chunk, _ = encode(RecordColumns([b"x" * 9], tag=[b"t"], ttl_ms=[1]))
    for stop in range(len(chunk)):
        found = check_frame(chunk, 0, stop)

        assert found is {0: Defect.ZERO}.get(stop, Defect.HEAD if stop < FRAME_HEAD.size else Defect.TORN)


@pytest.mark.rule("T2.10")
@pytest.mark.parametrize("bit", [64, 128, 64 | 128])
@pytest.mark.parametrize("kind", list(FrameType))
def test_a_flag_without_a_meaning_is_refused_and_a_newer_versions_if_the_checksum_is_right(bit, kind):
    frame = forged(encode(RecordColumns([b"x"]))[0], flags=bit, kind=kind)
    torn = frame[:-1] + bytes([frame[-1] ^ 1])

    assert check_frame(frame, 0, len(frame)) is Defect.UNKNOWN
    assert frame_length(frame, 0, len(frame)) == len(frame)
    assert list(find_frames(b"torn" * 20 + frame, 0, 80 + len(frame))) == [(80, len(frame))]
    assert check_frame(torn, 0, len(torn)) is Defect.FLAGS
    assert check_frame(frame, 0, len(frame) - 1) is Defect.FLAGS


def test_the_flags_are_those_of_the_page():
    assert [(flag.name, flag.value) for flag in Flag] == [
        ("TAG", 1), ("NODE", 2), ("DURABLE", 4), ("META", 8), ("COMPRESSED", 16), ("EXT", 32),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "defect"),
    [
        ({"kind": 0}, Defect.UNKNOWN),
        ({"kind": FrameType.INTENTION}, Defect.UNKNOWN),
        ({"kind": 20}, Defect.UNKNOWN),
        ({"kind": 255, "seq": 0, "topic_id": 0}, Defect.UNKNOWN),
        ({"kind": 20, "data_len": 2}, Defect.LENGTHS),
        ({"flags": Flag.TAG}, Defect.FLAGS),
        ({"flags": 64 | Flag.TAG}, Defect.FLAGS),
        ({"flags": 64, "data_len": 2}, Defect.FLAGS),
        ({"flags": 64, "topic_id": 0}, Defect.UNKNOWN),
        ({"flags": Flag.NODE}, Defect.FLAGS),
        ({"kind": FrameType.DELETE, "seq": 0, "flags": Flag.META}, Defect.UNKNOWN),
        ({"data_len": 2}, Defect.LENGTHS),
        ({"seq": 0}, Defect.IDS),
        ({"topic_id": 0}, Defect.IDS),
        ({"kind": FrameType.DELETE}, Defect.IDS),
        ({"kind": FrameType.COMMIT_MARK, "seq": 0}, Defect.IDS),
        ({"flags": Flag.META}, Defect.REGION),
        ({"flags": Flag.EXT}, Defect.REGION),
        ({"frame_len": 0}, Defect.ZERO),
        ({"frame_len": 41}, Defect.SHORT),
    ],
)
def test_a_head_that_contradicts_itself_is_refused_though_the_checksum_is_right(changes, defect):
    frame = forged(encode(RecordColumns([b"x"]))[0], **changes)

    assert check_frame(frame, 0, len(frame)) is defect


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize(
    "region",
    [
        b"\x01",
        b"\x01\x00",
        b"\x01\x08\x00" + bytes(7),
        b"\x01\x07\x00" + bytes(7),
        b"\x01\x09\x00" + bytes(9),
        b"\x04\x00\x00",
        b"\x00\x01\x00a",
        b"\x0c\x02\x00a",
        b"\x0c\x01\x00a\x0c\x01\x00a",
        b"\x04\x00\x00\x0c\x00\x00",
        b"\x06\x01\x00k\x0c\x01\x00a",
        pack_exts([(4, b"k"), (4, b"k")]),
        pack_exts([(5, b"k"), (4, b"k")]),
        pack_exts([(7, bytes(4))]),
        pack_exts([(7, b"\x01\0\0\0")]),
        pack_exts([(6, b"key")]),
        pack_exts([(11, bytes(8))]),
    ],
)
def test_a_malformed_extension_region_is_refused(region):
    frame = pack_frame(1, 0, 7, 5, TS, b"data", exts=region)

    assert parse_exts(region) is None
    assert check_frame(frame, 0, len(frame)) is Defect.REGION
    with pytest.raises(Corrupt, match="data region"):
        decode_frame(frame, 0)


@pytest.mark.parametrize(
    "region", [pack_exts([(12, b"")]), pack_exts([(4, b"k"), (12, b"a"), (200, bytes(9))])]
)
def test_an_extension_of_a_newer_version_is_refused_as_one(region):
    frame = pack_frame(1, 0, 7, 5, TS, b"data", exts=region)

    assert parse_exts(region) is None
    assert check_frame(frame, 0, len(frame)) is Defect.UNKNOWN
    assert frame_length(frame, 0, len(frame)) == len(frame)


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=60), st.integers(0, 63))
def test_a_region_of_any_bytes_is_read_within_itself(region, flags):
    frame = pack_frame(1, 0, 7, 5, TS, region)
    frame = forged(frame, flags=flags & ~(Flag.TAG | Flag.NODE))
    total = check_frame(frame, 0, len(frame))
    if isinstance(total, Defect):
        return
    view = decode_frame(frame, 0)

    assert len(view.meta) + len(view.data) + sum(map(len, view.exts.values())) <= len(region)


def test_bytes_in_the_wrong_place_are_found_though_their_checksum_is_right():
    chunk, run = encode(RecordColumns([b"a", b"b"]))
    for topic_id, seq in ((8, 5), (7, 6)):
        with pytest.raises(Corrupt, match=f"topic {topic_id} seq {seq} at offset 0: another frame"):
            decode_payloads(chunk, [0], run.lengths[:1], topic_id=topic_id, seqs=[seq])
        assert decode_record(chunk[: run.lengths[0]], topic_id=topic_id, seq=seq) is None
    for length in (0, 45, 46, len(chunk)):
        with pytest.raises(Corrupt, match="topic 7 seq 5"):
            decode_payloads(chunk, [0], [length], topic_id=7, seqs=[5])
        assert decode_record(chunk[:length], topic_id=7, seq=5) is None
    with pytest.raises(Corrupt, match="past the end"):
        decode_payloads(chunk[:-1], [run.lengths[0]], [run.lengths[1]], topic_id=7, seqs=[6])


def test_a_control_frame_is_no_record():
    frame = pack_frame(FrameType.TOPIC_DELETE, 0, 7, 0, TS, b"")
    with pytest.raises(Corrupt, match="not an append"):
        decode_frame(frame, 0)


@given(columns(count_min=2), st.data())
def test_the_head_of_a_run_is_the_run_of_its_head(records, data):
    _, run = encode(records, keyed=KEYED)
    count = data.draw(st.integers(1, len(run)))

    assert flat(run.first(count)) == flat(run)[:count]
    assert run.first(len(run)) == run
    assert (run == run.first(count)) == (count == len(run))


def test_numbers_stop_at_the_largest_time_there_is():
    _, run = encode_run(
        7, 1, 2**64 - 5, RecordColumns([b"x"], ttl_ms=[100]), durable=False, keyed=None, write_frames=1
    )

    assert run.expires == [2**64 - 1]


def test_extensions_are_those_of_the_page():
    assert [ext.value for ext in Ext] == list(range(1, 12))
    assert (Ext.EXPIRES_AT, Ext.KEY, Ext.DEDUP_ID, Ext.WRITE_FRAMES, Ext.CONTENT_TYPE) == (1, 4, 5, 7, 8)
