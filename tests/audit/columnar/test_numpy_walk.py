"""Reading a segment at once finds what the walk finds, or nothing; it never finds more."""

from __future__ import annotations

import random

import pytest

from tests.support.planting import plant
from tests.support.sample_store import build, disk_of
from topics.audit.columnar.numpy_walk import walk_by_numpy
from topics.audit.recovery import read, segment_tasks
from topics.codec.segments.segment import DataColumns, walk

pytestmark = pytest.mark.rule("P1.7")


def segments(files):
    """(task, data, idx) of every segment that is there."""
    state = read(disk_of(files), "a sample", same_boot=False)
    return [
        (task, files[task.file][: task.size], files[task.part("idx")])
        for task in segment_tasks(state)
        if task.file in files and not task.stale
    ]


def columns(found):
    return [getattr(found, name) for name in DataColumns.__slots__]


def read_whole(task, data, idx):
    """The columns, or nothing."""
    found = walk_by_numpy(task, data, idx)
    return None if found is None else columns(found[0])


def walked(task, data):
    return walk(data, 0, len(data), topic_id=task.topic_id, first_seq=task.first, seq_stop=task.last + 1)


@pytest.fixture(scope="module")
def sample():
    return build(records=20)


def test_whole_segments_are_read_as_the_walk_reads_them(sample):
    looked = segments(sample.files)

    assert len(looked) > 10
    for task, data, idx in looked:
        assert read_whole(task, data, idx) == columns(walked(task, data))


@pytest.mark.parametrize(
    "kind", ["segment.flag: another value", "segment.idx: it lies", "segment.ts: it falls"]
)
def test_what_is_planted_is_seen_by_both_or_left_to_the_walk(sample, kind):
    files = dict(sample.files)
    plant(files, kind)
    left = 0
    for task, data, idx in segments(files):
        found = read_whole(task, data, idx)
        left += found is None
        assert found is None or found == columns(walked(task, data))

    assert left == (kind == "segment.idx: it lies")


def test_no_flip_of_a_bit_in_data_or_idx_is_read_as_other_records_than_the_walk_gives(sample):
    rng, left = random.Random(1), 0
    looked = segments(sample.files)
    for _ in range(2000):
        task, data, idx = rng.choice(looked)
        changed = [bytearray(data), bytearray(idx)]
        which = rng.choice(changed)
        which[rng.randrange(len(which))] ^= 1 << rng.randrange(8)
        found = read_whole(task, bytes(changed[0]), bytes(changed[1]))
        left += found is None
        assert found is None or found == columns(walked(task, bytes(changed[0])))

    assert 1000 < left < 2000


def test_what_is_cut_short_or_longer_than_its_idx_is_left_to_the_walk(sample):
    task, data, idx = segments(sample.files)[0]

    for other in (data[:-1], data + b"\0", b"", data + data):
        assert walk_by_numpy(task, other, idx) is None
    assert walk_by_numpy(task, data, idx[:30]) is None
