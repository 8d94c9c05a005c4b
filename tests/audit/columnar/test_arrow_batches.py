"""Records as Arrow batches: the same as decoded one by one, with the columns asked for, and damage is never data."""

import zlib

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, columns
from topics.audit.columnar.arrow_batches import (
    HEADERS,
    UNFOLDED_BYTES,
    Verify,
    frames_batches,
    full_schema,
    narrowed,
    views_batch,
)
from topics.audit.columnar.frame_heads import FrameHeads
from topics.codec.log.encode import encode_run
from topics.codec.log.frame import decode_payloads
from topics.codec.log.layout import U32
from topics.host.system.compress import compress
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Corrupt

TOPIC = 7
KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def framed(*writes):
    """Frames of these writes one after another, with a byte between any two that belongs to none."""
    chunks, offsets, lengths, seqs, seq, at = [], [], [], [], 1, 0
    for records in writes:
        body, run = encode_run(TOPIC, seq, TS, records, durable=False, keyed=None, write_frames=0)
        chunks += [body, b"\x00"]
        for length in run.lengths:
            offsets.append(at)
            lengths.append(length)
            seqs.append(seq)
            seq, at = seq + 1, at + length
        at += 1
    return placed(b"".join(chunks), seqs, offsets, lengths)


def placed(buffer, seqs, offsets, lengths):
    longs = [np.array(column, dtype=np.int64) for column in (seqs, offsets, lengths)]
    return FrameHeads(
        buffer=buffer, topic="quakes", topic_id=TOPIC, seqs=longs[0], offsets=longs[1], lengths=longs[2]
    )


def frames_batch(*given):
    """The one batch of frames that unfold to little."""
    [found] = frames_batches(*given)
    return found


def flipped(frames, at):
    buffer = bytearray(frames.buffer)
    buffer[at] ^= 1
    return placed(bytes(buffer), frames.seqs, frames.offsets, frames.lengths)


def whole(*, internal=False, flagged=False):
    return full_schema(headers=True, internal=internal, flagged=flagged)


def stored(records):
    """As a store holds them: meta is JSON, and payloads that say they are compressed are."""
    if records.meta is not None:
        meta = [msgspec.json.encode({"m": text.hex()}) if text else b"" for text in records.meta]
        records = msgspec.structs.replace(records, meta=meta, stored=[])
    if records.compressed is None:
        return records
    pairs = zip(records.data, records.compressed, strict=True)
    data = [compress("gzip", data) if packed else data for data, packed in pairs]
    return records.with_data(data, compressed=records.compressed)


@pytest.mark.rule("P1.1")
@given(st.lists(columns(count_max=5).map(stored), min_size=1, max_size=4))
def test_a_batch_is_what_decoding_each_record_gives(writes):
    frames = framed(*writes)
    views = decode_payloads(
        frames.buffer,
        frames.offsets.tolist(),
        frames.lengths.tolist(),
        topic_id=TOPIC,
        seqs=frames.seqs.tolist(),
    )

    found = frames_batch(frames, whole(), Verify.FAIL)

    found.validate(full=True)
    assert found.equals(views_batch("quakes", views, whole()))
    assert found.equals(frames_batch(frames, whole(), Verify.OFF))


def test_payloads_that_unfold_to_more_than_a_batch_may_hold_come_in_several():
    size = UNFOLDED_BYTES // 4
    data = [b"a" * size if i % 3 else b"%d" % i for i in range(30)]
    meta = [b'{"n":"%d"}' % i if i % 2 else b"" for i in range(30)]
    frames = framed(stored(RecordColumns(data, meta=meta, compressed=[i % 3 > 0 for i in range(30)])))

    found = list(frames_batches(frames, whole(), Verify.FAIL))

    assert len(found) == 4
    assert all(batch.nbytes < UNFOLDED_BYTES + 2 * size for batch in found)
    together = pa.Table.from_batches(found)
    assert together["offset"].to_pylist() == list(range(1, 31))
    assert together["value"].to_pylist() == data
    assert len(together["headers"].drop_null()) == 15
    assert frames_batch(frames, narrowed(whole(), ["offset"]), Verify.FAIL).num_rows == 30


@pytest.mark.rule("P3.10")
def test_a_record_has_kafkas_columns_and_types_and_ours():
    meta = b'{"unit":"km","$x":""}'
    records = RecordColumns(
        [b'{"mag":6.4}', b"PK"], key=[b"us7000", b""], tag=[b"us", b""], node=[b"", b"n1"], meta=[meta, b""],
        content_type=[b"", b"application/zip"],
    )  # fmt: skip

    batch = frames_batch(framed(records), whole(internal=True, flagged=True), Verify.FLAG)

    assert batch.schema.names == [*KAFKA, "node", "tag", "state", "damaged"]
    assert [field.type for field in batch.schema] == [
        pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.int32(),
        HEADERS, pa.string(), pa.string(), pa.string(), pa.bool_(),
    ]  # fmt: skip
    rows = batch.to_pylist()
    assert [(row["key"], row["value"], row["node"], row["tag"]) for row in rows] == [
        (b"us7000", b'{"mag":6.4}', None, "us"),
        (None, b"PK", "n1", None),
    ]
    assert rows[0]["headers"] == [{"key": "unit", "value": b"km"}, {"key": "$x", "value": b""}]
    assert rows[1]["headers"] == [{"key": "$content_type", "value": b"application/zip"}]
    assert [(row["topic"], row["partition"], row["offset"], row["timestampType"]) for row in rows] == [
        ("quakes", 0, 1, 1),
        ("quakes", 0, 2, 1),
    ]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [TS, TS]
    assert [(row["state"], row["damaged"]) for row in rows] == [("live", False)] * 2


@pytest.mark.rule("P1.2")
def test_only_the_columns_that_are_asked_for_are_there_in_their_order():
    batch = frames_batch(
        framed(RecordColumns([b"1", b"2"])), narrowed(whole(), ["offset", "value"]), Verify.FAIL
    )

    assert batch.to_pylist() == [{"offset": 1, "value": b"1"}, {"offset": 2, "value": b"2"}]
    with pytest.raises(KeyError):
        narrowed(whole(), ["offset", "price"])


@pytest.mark.rule("P1.2")
def test_what_is_not_asked_for_is_not_decoded():
    frames = framed(RecordColumns([b"12", b"34"], meta=[b'{"m":"1"}', b""], tag=[b"us", b""]))
    buffer = bytearray(frames.buffer)
    at = buffer.index(b'{"m"') - U32.size
    buffer[at : at + U32.size] = U32.pack(1000)  # longer than the record: who decodes it finds that out
    broken = placed(bytes(buffer), frames.seqs, frames.offsets, frames.lengths)

    plain = frames_batch(broken, narrowed(whole(), ["topic", "offset", "tag", "timestamp"]), Verify.OFF)

    assert plain["tag"].to_pylist() == ["us", None]
    for name in ("key", "value", "headers"):
        with pytest.raises(Corrupt):
            frames_batch(broken, narrowed(whole(), [name]), Verify.OFF)


@pytest.mark.rule("P3.6")
@given(st.lists(columns(count_max=4).map(stored), min_size=1, max_size=3), st.data())
def test_a_flipped_bit_is_told_and_its_record_is_not_served(writes, data):
    frames = framed(*writes)
    which = data.draw(st.integers(0, len(frames) - 1))
    at = int(frames.offsets[which]) + data.draw(st.integers(0, int(frames.lengths[which]) - 1))
    damaged = flipped(frames, at)

    with pytest.raises(Corrupt) as told:
        frames_batch(damaged, whole(), Verify.FAIL)
    batch = frames_batch(damaged, whole(flagged=True), Verify.FLAG)

    assert (told.value.detail["topic"], told.value.detail["seq"]) == ("quakes", which + 1)
    batch.validate(full=True)
    assert batch["damaged"].to_pylist() == [i == which for i in range(len(frames))]
    assert batch["offset"].to_pylist() == frames.seqs.tolist()
    row = batch.to_pylist()[which]
    assert {row[name] for name in ("key", "value", "node", "tag", "timestamp")} == {None}
    rest = pa.array([i for i in range(len(frames)) if i != which], pa.int64())
    sound = frames_batch(frames, whole(flagged=True), Verify.FLAG)
    assert batch.take(rest).equals(sound.take(rest))


def test_without_checksums_a_flipped_payload_is_served_whatever_else_the_record_has():
    records = RecordColumns([b"12", b"34"], meta=[b'{"m":"1"}', b""])
    frames = framed(records)
    at = frames.buffer.index(b"12")

    batch = frames_batch(flipped(frames, at), whole(), Verify.OFF)

    assert batch["value"].to_pylist() == [b"02", b"34"]
    assert batch["headers"].to_pylist()[0] == [{"key": "m", "value": b"1"}]


def test_a_frame_that_is_another_records_or_runs_past_the_end_is_damage():
    frames = framed(RecordColumns([b"1", b"2"]))
    moved = placed(frames.buffer, [2, 1], frames.offsets, frames.lengths)
    cut = placed(frames.buffer[:-10], frames.seqs, frames.offsets, frames.lengths)
    nothing = placed(b"", frames.seqs, frames.offsets, frames.lengths)

    for wrong, seq, why in ((moved, 2, "another frame"), (cut, 2, "past the end"), (nothing, 1, "")):
        with pytest.raises(Corrupt, match=f"topic 'quakes' seq {seq}: .*{why}"):
            frames_batch(wrong, whole(), Verify.OFF)
    assert frames_batch(nothing, whole(flagged=True), Verify.FLAG)["damaged"].to_pylist() == [True, True]


def test_a_payload_that_does_not_unfold_is_damage():
    broken = zlib.compress(b"x" * 100)
    with pytest.raises(Corrupt, match="topic 'quakes' seq 1: neither gzip nor zstd"):
        frames_batch(framed(RecordColumns([broken], compressed=[True])), whole(), Verify.FAIL)


def test_no_records_are_an_empty_batch():
    batch = frames_batch(placed(b"", [], [], []), whole(), Verify.FAIL)

    assert (batch.num_rows, batch.schema.names) == (0, whole().names)
