"""Scanning a WAL body: complete writes only, wherever it is cut, whatever is in it."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.frames import TS, Log, columns, flat, flat_items, logs
from topics.codec.log.control import CommitMark, HeadWatermark, TopicDelete, encode_control
from topics.codec.log.frame import Keyed, check_frame, encode_run
from topics.codec.log.layout import Defect, Ext, FrameType, pack_exts, pack_frame
from topics.codec.log.resync import find_frames
from topics.codec.log.run import Run
from topics.codec.log.scan import Stop, scan, scan_frame
from topics.codec.primitives import U32
from topics.kernel.columns import RecordColumns

MARK = CommitMark(b"12345678", 1, 4096)


def plain(*data):
    return RecordColumns(list(data))


def scanned(log, stop=None):
    body = log.bytes
    return scan(body, 0, len(body) if stop is None else stop)


@given(logs())
def test_a_scan_finds_what_was_written(log):
    found = scanned(log)

    assert found.stop is Stop.END
    assert (found.end, found.stopped_at, found.incomplete_from) == (len(log.bytes), len(log.bytes), None)
    assert flat_items(found.items) == log.records
    assert found.frames == len(log.records)


@given(logs(), st.binary(max_size=9), st.integers(0, 9))
def test_a_scan_looks_only_between_start_and_stop(log, before, after):
    body = log.bytes
    found = scan(memoryview(before + body + b"\xff" * after), len(before), len(before) + len(body))

    assert flat_items(found.items) == log.records
    assert found.end == len(before) + len(body)
    at = len(before)
    for item in found.items:
        assert item.offset == at
        at += item.length
    assert at == found.end


@pytest.mark.rule("T2.15")
@pytest.mark.invariant("I-18")
@given(logs(writes_max=3))
def test_wherever_it_is_cut_only_whole_writes_are_there(log):
    body = log.bytes
    for stop in range(len(body) + 1):
        found = scan(body, 0, stop)
        whole = max(i for i, end in enumerate(log.ends) if end <= stop)

        assert found.end == log.ends[whole]
        assert flat_items(found.items) == log.records[: log.counts[whole]]
        assert found.frames == log.counts[whole]
        assert found.stopped_at >= found.end
        assert found.incomplete_from in ((None,) if found.stopped_at == found.end else (None, found.end))
        if found.incomplete_from is None:
            assert found.stopped_at == found.end


@given(logs(writes_max=3), st.data())
def test_a_flipped_bit_ends_the_scan_at_its_frame(log, data):
    body = bytearray(log.bytes)
    if not body:
        return
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    found = scan(bytes(body), 0, len(body))
    whole = max(i for i, end in enumerate(log.ends) if end <= bit // 8)

    assert found.end == log.ends[whole]
    assert flat_items(found.items) == log.records[: log.counts[whole]]
    assert found.stopped_at <= bit // 8
    assert found.stop is not Stop.END
    assert found.defect


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=300))
@example(b"\x01")
@example(bytes(3))
@example(b"\xff" * 100)
def test_any_bytes_end_the_scan(garbage):
    found = scan(garbage, 0, len(garbage))

    assert found.items == []
    assert found.frames == found.end == found.stopped_at == 0
    assert found.stop is (Stop.END if not garbage else Stop.ZERO if not any(garbage[:4]) else Stop.BAD)


@pytest.mark.rule("T2.9")
@pytest.mark.parametrize("tail", [1, 3, 4, 45, 46, 5000])
def test_zeros_end_the_log(tail):
    log = Log()
    log.append(1, TS, plain(b"a", b"b"))
    body = log.bytes + bytes(tail)
    found = scan(body, 0, len(body))

    assert found.stop is Stop.ZERO
    assert found.end == found.stopped_at == len(log.bytes)
    assert flat_items(found.items) == log.records


def test_writes_of_one_time_become_one_run():
    log = Log()
    for _ in range(3):
        log.append(1, TS, plain(b"a", b"b"))
        log.append(1, TS, plain(b"c"))
    (run,) = scanned(log).items

    assert isinstance(run, Run)
    assert len(run) == 9
    assert (run.topic_id, run.seq_start, run.seq_stop, run.ts, run.flags) == (1, 1, 10, TS, None)


@pytest.mark.parametrize("second", [(1, TS + 1, False), (2, TS, False), (1, TS, True)])
def test_another_time_topic_or_durability_begins_a_run(second):
    topic_id, ts, durable = second
    log = Log()
    log.append(1, TS, plain(b"a", b"b"))
    log.append(topic_id, ts, plain(b"c", b"d"), durable=durable)

    assert [len(item) for item in scanned(log).items] == [2, 2]


@pytest.mark.parametrize("count", [1, 3])
def test_no_run_crosses_the_border_of_a_keyed_write(count):
    log = Log()
    log.append(1, TS, plain(b"a"))
    log.append(1, TS, plain(*[b"k"] * count), key=b"key")
    log.append(1, TS, plain(b"z"))
    items = scanned(log).items

    assert [(item.seq_start, len(item), item.keyed) for item in items] == [
        (1, 1, None), (2, count, Keyed(b"key", 77)), (2 + count, 1, None),
    ]  # fmt: skip


@pytest.mark.rule("T2.19")
def test_a_write_result_leads_its_write():
    log = Log()
    log.append(1, TS, plain(b"a"))
    log.append(1, TS, plain(b"b", b"c"), key=b"key", duplicates=[(1, 1)])
    log.append(1, TS, plain(b"z"))
    found = scanned(log)
    before, result, run, after = found.items

    assert (before.seq_stop, result.payload.key, result.write_frames) == (2, b"key", 3)
    assert (run.seq_start, run.seq_stop, run.keyed, after.seq_start) == (2, 4, None, 4)
    for stop in range(log.ends[1], log.ends[2]):
        cut = scanned(log, stop)

        assert [item.length for item in cut.items] == [before.length]
        assert cut.incomplete_from == (log.ends[1] if cut.stopped_at > log.ends[1] else None)


def test_a_mark_between_writes_is_an_item_of_its_own():
    log = Log()
    log.append(1, TS, plain(b"a"))
    log.control(MARK, topic_id=0)
    log.append(1, TS, plain(b"b"))
    log.control(HeadWatermark(64), topic_id=1)
    items = scanned(log).items

    assert [getattr(item, "payload", None) for item in items] == [None, MARK, None, HeadWatermark(64)]
    assert [item.offset for item in items] == log.ends[:-1]


def test_a_write_that_begins_inside_another_ends_the_scan():
    outer, _ = encode_run(1, 1, TS, plain(b"a", b"b"), durable=False, keyed=None, write_frames=3)
    inner, _ = encode_run(1, 3, TS, plain(b"c", b"d"), durable=False, keyed=None, write_frames=2)
    control = encode_control(TopicDelete(), topic_id=1, ts=TS, write_frames=2)
    for chunk in (inner, control):
        found = scan(outer + chunk, 0, len(outer + chunk))

        assert (found.stop, found.defect) == (Stop.BAD, Defect.WRITE.value)
        assert (found.items, found.end, found.incomplete_from, found.stopped_at) == ([], 0, 0, len(outer))


def test_a_frame_count_beyond_the_log_allocates_nothing():
    frame = pack_frame(1, 0, 1, 1, TS, b"x", exts=pack_exts([(Ext.WRITE_FRAMES, U32.pack(2**32 - 1))]))
    found = scan(frame, 0, len(frame))

    assert (found.items, found.end, found.incomplete_from, found.stopped_at) == ([], 0, 0, len(frame))


def test_a_control_frame_that_is_not_understood_ends_the_scan():
    good = encode_control(TopicDelete(), topic_id=1, ts=TS)
    reserved = FrameType.INTENTION
    for kind, data, why in (
        (reserved, b"", "does not know"),
        (2, b"{}", "payload"),
        (11, b"1234567", "payload"),
    ):
        body = good + pack_frame(kind, 0, 1, 0, TS, data) + good
        found = scan(body, 0, len(body))

        assert (found.stop, found.end, found.frames) == (Stop.BAD, len(good), 1)
        assert why in found.defect


def test_frames_inside_data_are_data():
    inner = encode_run(9, 1, TS, plain(b"forged", b"frames"), durable=True, keyed=None, write_frames=2)[0]
    mark = encode_control(MARK, topic_id=0, ts=TS)
    log = Log()
    log.append(1, TS, plain(inner, mark, inner + mark))
    log.append(1, TS, RecordColumns([b"x"], tag=[inner], meta=[mark]))
    found = scanned(log)

    assert flat_items(found.items) == log.records
    assert {item.topic_id for item in found.items} == {1}


def test_a_long_scan_of_many_shapes_agrees_with_reading_frame_by_frame():
    rng = random.Random(3)
    log = Log()
    for _ in range(400):
        data = [rng.randbytes(rng.randrange(0, 300)) for _ in range(rng.randrange(1, 40))]
        tag = [rng.choice([b"", b"t", b"u"]) for _ in data] if rng.random() < 0.3 else None
        ttl = [rng.choice([None, 5]) for _ in data] if rng.random() < 0.2 else None
        key = b"k" if rng.random() < 0.1 else b""
        log.append(
            rng.randrange(1, 4), TS + rng.randrange(2), RecordColumns(data, tag=tag, ttl_ms=ttl), key=key
        )
    body, lengths, at = log.bytes, [], 0
    while at < len(body):
        total = check_frame(body, at, len(body))
        assert isinstance(total, int)
        lengths.append(total)
        at += total
    found = scanned(log)

    assert flat_items(found.items) == log.records
    assert [length for item in found.items for length in item.lengths] == lengths
    assert [item.offset for item in found.items[1:]] == [
        item.offset + item.length for item in found.items[:-1]
    ]


@pytest.mark.invariant("I-09")
@given(columns(), st.booleans(), st.none() | st.just(Keyed(b"k", 1)))
def test_recovery_sees_the_run_that_was_applied_live(records, durable, keyed):
    chunk, run = encode_run(3, 9, TS, records, durable=durable, keyed=keyed, write_frames=len(records))
    (again,) = scan(chunk, 0, len(chunk)).items

    assert again == run
    assert flat(again) == flat(run)


@given(logs())
def test_frame_by_frame_the_same_records_come_out(log):
    body = log.bytes
    items = [scan_frame(body, offset, length) for offset, length in find_frames(body, 0, len(body))]

    assert flat_items(items) == log.records
    assert [item.offset + item.length for item in items] == [item.offset for item in items[1:]] + [
        len(body)
    ] * bool(items)


def test_a_frame_by_itself_is_refused_if_it_is_not_understood():
    frame = pack_frame(10, 0, 1, 0, TS, b"")

    assert scan_frame(frame, 0, len(frame)) is None
