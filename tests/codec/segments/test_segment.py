"""`.data` files: frames are copied only if they verify, and a walk finds every record that is intact and no other."""

import struct
from array import array
from itertools import accumulate

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, columns
from topics.codec.log.encode import encode_run
from topics.codec.log.frame import decode_payloads
from topics.codec.log.layout import APPEND, COVERED_HEAD, EXT, META, TAG, Defect, FrameType, pack_frame
from topics.codec.segments.segidx import DELETED
from topics.codec.segments.segment import DEAD, LIVE, append_frames, is_deleted, is_regular, walk
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Corrupt

TOPIC = 7
FIRST = 100


class Wal:
    """Frames of one topic in a WAL buffer, between those of another."""

    def __init__(self, writes):
        chunks, seq, at = [b"header"], FIRST, 6
        self.offsets, self.lengths, self.seqs, self.ts = array("I"), array("I"), array("Q"), []
        for number, records in enumerate(writes):
            body, run = encode_run(
                TOPIC, seq, TS + number, records, durable=number % 2 == 1, keyed=None, write_frames=0
            )
            other, _ = encode_run(
                TOPIC + 1, seq, TS, RecordColumns([b"1"]), durable=False, keyed=None, write_frames=1
            )
            chunks += [body, other]
            for length in run.lengths:
                self.offsets.append(at)
                self.lengths.append(length)
                self.seqs.append(seq)
                self.ts.append(TS + number)
                at += length
                seq += 1
            at += len(other)
        self.bytes = b"".join(chunks)

    def __len__(self):
        return len(self.seqs)

    def copied(self, dead=None, **changed):
        arguments = {"topic_id": TOPIC, "seqs": self.seqs, "dead": bytes(len(self)) if dead is None else dead}
        return append_frames(self.bytes, self.offsets, self.lengths, **{**arguments, **changed})

    def views(self, buffer, offsets, lengths, seqs):
        return decode_payloads(buffer, offsets, lengths, topic_id=TOPIC, seqs=seqs)


def wals():
    return st.lists(columns(count_max=4), min_size=1, max_size=4).map(Wal)


def plain(*payloads):
    return Wal([RecordColumns(list(payloads))])


def walked(data, **changed):
    return walk(data, 0, len(data), **{"topic_id": TOPIC, "first_seq": FIRST, **changed})


def damages(found):
    return [(damage.offset, damage.stop, damage.defect) for damage in found.damages]


@pytest.mark.rule("T5.6")
def test_a_byte_near_the_deleted_one_is_deleted_and_no_flip_takes_a_record_across():
    assert [is_deleted(DEAD), is_deleted(LIVE)] == [True, False]
    assert [end for end in range(256) if is_regular(end)] == [0, 0xD5]
    for bit in range(8):
        assert is_deleted(DEAD ^ 1 << bit)
        assert not is_deleted(LIVE ^ 1 << bit)
    assert sum(map(is_deleted, range(256))) == 1 + 8 + 28


@pytest.mark.rule("T5.1")
@given(wals(), st.data())
def test_frames_are_copied_verbatim_each_with_its_delete_byte(wal, data):
    dead = bytes(data.draw(st.lists(st.sampled_from((0, 1, 255)), min_size=len(wal), max_size=len(wal))))
    expected = b"".join(
        wal.bytes[offset : offset + length] + (b"\xd5" if is_dead else b"\x00")
        for offset, length, is_dead in zip(wal.offsets, wal.lengths, dead, strict=True)
    )

    assert wal.copied(dead) == expected
    assert (
        append_frames(
            memoryview(wal.bytes), wal.offsets, wal.lengths, topic_id=TOPIC, seqs=wal.seqs, dead=dead
        )
        == expected
    )


def test_nothing_is_copied_as_nothing():
    assert append_frames(b"", array("I"), array("I"), topic_id=TOPIC, seqs=(), dead=b"") == b""


@pytest.mark.rule("T5.1")
@given(wals(), st.data())
def test_a_frame_that_a_reader_would_refuse_is_not_copied(wal, data):
    index = data.draw(st.integers(0, len(wal) - 1))
    offset, length = wal.offsets[index], wal.lengths[index]
    damaged = bytearray(wal.bytes)
    damaged[data.draw(st.integers(offset, offset + length - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(Corrupt) as refused:
        wal.views(bytes(damaged), wal.offsets, wal.lengths, wal.seqs)
    wal.bytes = bytes(damaged)
    with pytest.raises(Corrupt) as caught:
        wal.copied()
    assert caught.value.message == refused.value.message
    assert caught.value.detail == refused.value.detail
    assert (caught.value.detail["topic_id"], caught.value.detail["seq"]) == (TOPIC, wal.seqs[index])


@pytest.mark.rule("T5.2")
@pytest.mark.parametrize(
    "changed",
    [
        {"topic_id": TOPIC + 1},
        {"seqs": [FIRST, FIRST + 2]},
        {"seqs": [FIRST - 1, FIRST + 1]},
    ],
)
@pytest.mark.parametrize("tag", [None, [b"a", b"b"]])
def test_a_whole_frame_of_another_topic_or_seq_is_not_copied(changed, tag):
    wal = Wal([RecordColumns([b"1", b"2"], tag=tag)])

    with pytest.raises(Corrupt, match="another frame lies in its place"):
        wal.copied(**changed)


@pytest.mark.rule("T5.1")
@pytest.mark.parametrize(("offset", "length"), [(6, 45), (6, 0), (6, 10**6), (10**6, 47), (7, 47)])
def test_a_place_where_no_frame_can_lie_is_refused(offset, length):
    wal = plain(b"1")

    with pytest.raises(Corrupt, match=f"topic {TOPIC} seq {FIRST}"):
        append_frames(wal.bytes, [offset], [length], topic_id=TOPIC, seqs=[FIRST], dead=bytes(1))


def sealed(flags, region, tag=b""):
    """A frame with this data region, right or wrong, under a checksum that is right."""
    head = COVERED_HEAD.pack(APPEND, flags, TOPIC, FIRST, TS, 0, len(tag), len(region)) + tag + region
    return struct.pack("<I", len(head) + 8) + head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


@pytest.mark.rule("T5.1")
@pytest.mark.parametrize(
    ("flags", "region"),
    [
        (META, b""),
        (META, b"\0\0\0\0"),
        (META, b"\0\0\0\0more"),
        (META, b"\5\0\0\0more"),
        (META, b"\xff\xff\xff\xffmore"),
        (EXT, b""),
        (EXT, b"\0\0data"),
        (EXT, b"\x04\0\x63\1\0adata"),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("tag", [b"", b"t"])
def test_a_region_that_a_reader_would_refuse_is_not_copied(flags, region, tag):
    frame = sealed(flags | (TAG if tag else 0), region, tag)
    assert decode_payloads(sealed(0, b"x"), [0], [47], topic_id=TOPIC, seqs=[FIRST])

    with pytest.raises(Corrupt, match=r"the data region is malformed|does not know all of it"):
        append_frames(frame, [0], [len(frame)], topic_id=TOPIC, seqs=[FIRST], dead=bytes(1))


@pytest.mark.rule("T5.1")
@pytest.mark.parametrize("kind", [FrameType.DELETE, FrameType.TOPIC_DELETE])
def test_a_control_frame_is_no_record(kind):
    frame = pack_frame(kind, 0, TOPIC, FIRST, TS, b"1")

    with pytest.raises(Corrupt, match="impossible for the frame's type"):
        append_frames(frame, [0], [len(frame)], topic_id=TOPIC, seqs=[FIRST], dead=bytes(1))


@pytest.mark.rule("T5.1", "T5.6")
@given(wals(), st.data())
def test_a_walk_finds_what_was_copied(wal, data):
    dead = bytes(data.draw(st.lists(st.sampled_from((0, 1)), min_size=len(wal), max_size=len(wal))))
    found = walked(wal.copied(dead))
    flags = [
        view.flags | DELETED * end
        for view, end in zip(wal.views(wal.bytes, wal.offsets, wal.lengths, wal.seqs), dead, strict=True)
    ]

    assert not found.damages
    assert (found.seqs, found.lengths, list(found.ts)) == (wal.seqs, wal.lengths, wal.ts)
    assert list(found.offsets) == list(accumulate([length + 1 for length in wal.lengths[:-1]], initial=0))
    assert list(found.flags) == flags
    assert bytes(found.ends) == dead.replace(b"\x01", b"\xd5")


@pytest.mark.rule("T5.4", "T5.13")
@given(wals(), st.data())
def test_what_a_rewrite_dropped_is_skipped(wal, data):
    kept = [index for index in range(len(wal)) if data.draw(st.booleans())]
    copied = append_frames(
        wal.bytes,
        [wal.offsets[index] for index in kept],
        [wal.lengths[index] for index in kept],
        topic_id=TOPIC,
        seqs=[wal.seqs[index] for index in kept],
        dead=bytes(len(kept)),
    )
    found = walked(copied)
    entries = found.index_columns(FIRST, FIRST + len(wal))

    assert not found.damages
    assert list(found.seqs) == [wal.seqs[index] for index in kept]
    assert [index for index, length in enumerate(entries.lengths) if length] == kept
    assert [entries.lengths[index] for index in kept] == [wal.lengths[index] for index in kept]
    assert [entries.ts[index] for index in kept] == [wal.ts[index] for index in kept]
    assert list(entries.ts) == sorted(entries.ts)
    assert [entries.offsets[index] for index in kept] == list(found.offsets)


@pytest.mark.rule("T5.1")
@pytest.mark.invariant("I-18")
def test_every_flipped_bit_of_a_file_is_found_where_it_is():
    wal = Wal([RecordColumns([b"1", b"22"]), RecordColumns([b"3"], tag=[b"t"], meta=[b'{"a":"b"}'])])
    data = wal.copied()
    whole = walked(data)
    starts = [*whole.offsets, len(data)]
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        index = max(at for at in range(len(wal)) if starts[at] <= bit // 8)
        found = walked(damaged)
        if bit // 8 == starts[index + 1] - 1:
            assert not found.damages
            assert found.seqs == whole.seqs
            assert found.flags == whole.flags  # a live record stays live
            assert not is_regular(found.ends[index])
        else:
            assert [(damage.offset, damage.stop, damage.index) for damage in found.damages] == [
                (starts[index], starts[index + 1], index)
            ]
            assert list(found.seqs) == [seq for seq in whole.seqs if seq != FIRST + index]


@pytest.mark.rule("T5.6")
def test_no_flip_of_a_delete_byte_brings_a_deleted_record_back():
    data = bytearray(plain(b"1", b"2").copied(b"\x01\x00"))
    at = 47
    assert data[at] == DEAD
    for first in range(8):
        for second in range(8):
            flipped = bytearray(data)
            flipped[at] = DEAD ^ (1 << first | 1 << second)

            assert list(walked(flipped).flags) == [DELETED, 0]


@pytest.mark.rule("T5.1")
@pytest.mark.invariant("I-18")
@given(wals(), st.binary(max_size=60))
def test_a_file_cut_anywhere_keeps_the_records_before_the_cut(wal, after):
    data = wal.copied()
    whole = walked(data)
    starts = [*whole.offsets, len(data)]
    for cut in range(len(data)):
        found = walk(data[:cut] + after, 0, cut, topic_id=TOPIC, first_seq=FIRST)
        count = max(at for at in range(len(starts)) if starts[at] <= cut)
        assert list(found.seqs) == list(whole.seqs[:count])
        assert [(damage.offset, damage.stop) for damage in found.damages] == (
            [] if cut == starts[count] else [(starts[count], cut)]
        )


@pytest.mark.rule("T5.1")
def test_damage_says_what_it_was_and_where_it_ends():
    data = bytearray(plain(b"1", b"22", b"333", b"4").copied())
    found = walked(data)
    first, second = found.offsets[1], found.offsets[2]
    data[first + 40] ^= 1
    data[second + 30] ^= 1  # node_len: the head contradicts itself
    found = walked(data)

    assert list(found.seqs) == [FIRST, FIRST + 3]
    (damage,) = found.damages
    assert (damage.offset, damage.stop, damage.index) == (first, found.offsets[1], 1)
    assert (damage.defect, damage.seq) == (Defect.CHECKSUM, FIRST + 1)


@pytest.mark.rule("T5.1")
def test_frames_inside_a_damaged_record_are_not_taken_for_records():
    inner = pack_frame(APPEND, 0, TOPIC, FIRST + 1, TS, b"forged") + b"\x00"
    wal = Wal([RecordColumns([b"0", inner + b"more", b"2"])])
    data = bytearray(wal.copied())
    (start, stop) = walked(data).offsets[1:3]
    data[stop - 3] ^= 1

    found = walked(data)

    assert list(found.seqs) == [FIRST, FIRST + 2]
    assert damages(found) == [(start, stop, Defect.CHECKSUM)]


@pytest.mark.rule("T5.1")
def test_a_piece_of_a_frame_hides_no_record_behind_it():
    ours = plain(b"1").copied()
    piece = pack_frame(APPEND, 0, TOPIC, FIRST + 1, TS, bytes(60))[
        :70
    ]  # its end would lie in the next record
    later = b"".join(pack_frame(APPEND, 0, TOPIC, FIRST + seq, TS, b"later") + b"\x00" for seq in (1, 2))
    found = walked(ours + piece + later)

    assert list(found.seqs) == [FIRST, FIRST + 1, FIRST + 2]
    assert damages(found) == [(len(ours), len(ours) + len(piece), Defect.CHECKSUM)]


@pytest.mark.rule("T5.2")
def test_a_record_with_a_name_is_there_only_once():
    ours = Wal([RecordColumns([b"1"], tag=[b"t"])]).copied()
    found = walked(ours + ours)

    assert list(found.seqs) == [FIRST]
    assert damages(found) == [(len(ours), 2 * len(ours), Defect.IDS)]


@pytest.mark.rule("T5.2")
def test_misplaced_records_are_found_though_they_are_whole():
    ours = plain(b"1").copied()
    later = pack_frame(APPEND, 0, TOPIC, FIRST + 1, TS, b"2") + b"\x00"
    for stray in (
        pack_frame(APPEND, 0, TOPIC + 1, FIRST + 1, TS, b"x"),
        pack_frame(APPEND, 0, TOPIC, FIRST, TS, b"again"),
        pack_frame(APPEND, 0, TOPIC, FIRST - 1, TS, b"before"),
        pack_frame(APPEND, 0, TOPIC, FIRST + 50, TS, b"far"),
    ):
        data = ours + stray + b"\x00" + later
        found = walked(data, seq_stop=FIRST + 50)

        assert list(found.seqs) == [FIRST, FIRST + 1]
        assert damages(found) == [(len(ours), len(ours) + len(stray) + 1, Defect.IDS)]
    control = pack_frame(FrameType.DELETE, 0, TOPIC, 0, TS, b"")
    assert damages(walked(ours + control + b"\x00" + later)) == [
        (len(ours), len(ours) + len(control) + 1, Defect.TYPE)
    ]


@pytest.mark.rule("T5.1")
@pytest.mark.parametrize("gap", [b"\x00", bytes(5000), b"text, " * 900, b"\x07" + bytes(7), b"\x01" * 3000])
def test_whatever_lies_between_records_is_passed_over(gap):
    ours = plain(b"1").copied()
    later = pack_frame(APPEND, 0, TOPIC, FIRST + 1, TS, b"2") + b"\x00"
    found = walked(ours + gap + later)

    assert list(found.seqs) == [FIRST, FIRST + 1]
    assert [(damage.offset, damage.stop) for damage in found.damages] == [(len(ours), len(ours) + len(gap))]


def test_zeros_behind_the_last_record_are_told_as_such():
    ours = plain(b"1").copied()

    assert damages(walked(ours + bytes(4096))) == [(len(ours), len(ours) + 4096, Defect.ZERO)]


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_a_walk_answers_whatever_the_bytes_and_stays_inside(data, one, other):
    start, stop = sorted((min(one, len(data)), min(other, len(data))))
    found = walk(data, start, stop, topic_id=TOPIC, first_seq=1)

    at = start
    for damage in found.damages:
        assert at <= damage.offset < damage.stop <= stop
        at = damage.stop
