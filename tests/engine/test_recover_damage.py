"""Damaged logs, frame by frame: what is judged damaged, what the view keeps, and what is believed of a broken head."""

from __future__ import annotations

import pytest

from topics.codec.control import CommitMark, TopicCreate, encode_control
from topics.codec.frame import Run, encode_run
from topics.codec.walheader import HEADER_SIZE, WalHeader
from topics.engine.judge import State, judge, look
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.log.regions import WalFileId

FILE = WalFileId(0, 0, 1)
FILE_ID = b"12345678"


def log_of(*chunks, zeros=500, generation=0, shard=0):
    header = WalHeader(generation=generation, shard=shard, first_frame=1, file_id=FILE_ID).encode()
    return header + b"".join(chunks) + bytes(zeros)


def create(topic_id, name, *, epoch=1, **config):
    payload = TopicCreate(name, epoch, TopicConfig(**config).echo(), 64)
    return encode_control(payload, topic_id=topic_id, ts=1000)


def record(topic_id, seq, data=b'"data"', ts=1000):
    columns = RecordColumns([data])
    return encode_run(topic_id, seq, ts, columns, durable=False, keyed=None, write_frames=1)[0]


def records(topic_id, first, last):
    return b"".join(record(topic_id, seq) for seq in range(first, last + 1))


def mark(offset, ts=1000):
    return encode_control(CommitMark(FILE_ID, 1, offset), topic_id=0, ts=ts)


def with_zeros_last(frame_at, count):
    """The first of the frames that differ in ts alone whose last `count` bytes are zero, and no more than these."""
    ts = 1
    while not frame_at(ts).endswith(bytes(count)) or frame_at(ts).endswith(bytes(count + 1)):
        ts += 1
    return frame_at(ts)


def broken(chunk, at=40):
    """The chunk with one bit turned over, behind the head unless `at` says otherwise."""
    return chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]


def seqs_of(verdict):
    return [
        seq
        for item, _ in verdict.items()
        if isinstance(item, Run)
        for seq in range(item.seq_start, item.seq_stop)
    ]


# Frames that end in zeros.


@pytest.mark.rule("T4.8", "T4.9")
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_mark_whose_checksum_ends_in_zeros_still_covers_what_is_before_it(zeros):
    before = create(1, "t") + records(1, 1, 2)
    whole = before + records(1, 3, 3)
    last = with_zeros_last(lambda ts: mark(HEADER_SIZE + len(whole), ts), zeros)

    found = judge([look(FILE, log_of(before, broken(record(1, 3)), last))], same_boot=False)
    assert State.CORRUPT is found.state
    assert [(HEADER_SIZE + len(before), (1, 3))] == [(d.offset, d.plausible) for d in found.damages]
    assert seqs_of(found) == [1, 2]


@pytest.mark.rule("T4.19")
@pytest.mark.parametrize("zeros", [1, 2])
def test_a_last_record_whose_checksum_ends_in_zeros_is_kept_past_damage(zeros):
    last = with_zeros_last(lambda ts: record(1, 3, ts=ts), zeros)
    log = log_of(create(1, "t"), record(1, 1), broken(record(1, 2)), last)

    for data in (log, log.rstrip(b"\0") + bytes(zeros)):  # zeros behind, and the file's end
        found = judge([look(FILE, data)], same_boot=True)
        assert State.CORRUPT is found.state
        assert [damage.plausible for damage in found.damages] == [(1, 2)]
        assert seqs_of(found) == [1, 3]


def test_a_whole_log_whose_last_frame_ends_in_zeros_is_clean_and_one_cut_at_them_loses_nothing_but_them():
    last = with_zeros_last(lambda ts: record(1, 2, ts=ts), 2)
    log = log_of(create(1, "t"), record(1, 1), last)

    found = judge([look(FILE, log)], same_boot=True)
    assert (State.CLEAN, 0, len(log) - 500) == (found.state, found.lost_bytes, found.tail.end)
    torn = judge([look(FILE, log_of(create(1, "t"), record(1, 1), broken(last)))], same_boot=True)
    assert State.TORN is torn.state
    assert len(last) - 2 == torn.lost_bytes


@pytest.mark.rule("T4.17", "T4.19")
def test_a_torn_last_record_is_not_searched_for_the_frames_that_its_data_holds():
    inner = record(1, 2, b'"somebody"')
    last = record(1, 2, inner + bytes(2000))
    log = log_of(create(1, "t"), record(1, 1), last[:300], zeros=3000)

    found = judge([look(FILE, log)], same_boot=True)
    assert State.TORN is found.state
    assert found.beyond == []
