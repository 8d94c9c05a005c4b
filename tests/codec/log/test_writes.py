"""Whole writes, one by one: where each begins and ends, what it reaches, and where the walk stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scene import SMALL, Scene
from topics.codec.log.control import LossRange, encode_control
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.log.writes import whole_writes


def log_of(*sizes):
    """A WAL file with writes of so many records each."""
    scene = Scene(limits=SMALL)
    scene.open()
    for size in sizes:
        scene.put("t", *[b"%d" % i for i in range(size)], idempotency_key=b"k%d" % size)
    return scene.disk.content(scene.files()[0])


@pytest.mark.rule("T7.3")
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_the_walk_has_every_frame_that_a_scan_has_and_each_write_its_records(sizes):
    data = log_of(*sizes)
    found, seen = list(whole_writes(data, HEADER_SIZE)), scan(data, HEADER_SIZE, len(data))
    reached = [write.reaches[1] for write in found if 1 in write.reaches]

    assert sum(write.frames for write in found) == seen.frames
    assert [write.stop for write in found] == [*[write.start for write in found[1:]], seen.end]
    assert reached == sorted(set(reached))


@pytest.mark.rule("T7.3")
def test_a_write_that_is_cut_short_or_broken_anywhere_is_not_given():
    data = log_of(3)
    *kept, last = whole_writes(data, HEADER_SIZE)
    for at in range(last.start, last.stop):
        torn = data[:at] + bytes(len(data) - at)
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        assert list(whole_writes(torn, HEADER_SIZE)) in (kept, [*kept, last])
        assert list(whole_writes(flipped, HEADER_SIZE)) == kept
    assert list(whole_writes(data[: last.stop - 1], HEADER_SIZE)) == kept


def test_a_loss_range_reaches_its_last_seq():
    frame = encode_control(LossRange(5, 90, "crash"), topic_id=7, ts=3)
    (write,) = whole_writes(frame, 0)

    assert (write.reaches, write.ts, write.frames, write.stop) == ({7: 90}, 3, 1, len(frame))
