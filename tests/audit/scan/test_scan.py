"""Whoever scans a file makes the same row of it."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.support.planting import plant
from tests.support.sample_store import build, disk_of, write_out
from topics.audit.fsck import Options, examine, fsck
from topics.audit.recovery import read, segment_tasks, wal_tasks
from topics.audit.scan import scan
from topics.audit.scan.rows import SegmentTask
from topics.audit.scan.scan import scan_all
from topics.host.system.readonly import Hiding, ReadOnlyDisk


@pytest.fixture(scope="module")
def files():
    files = build().files
    for kind in ("segment.record: a flipped bit", "wal.damage: a flipped bit"):
        plant(files, kind)
    return files


def tasks_of(disk):
    state = read(disk, "a sample", same_boot=False)
    logs = wal_tasks(disk)
    return state, [*logs, *segment_tasks(state, scan_all(disk, logs))]


@pytest.mark.rule("P1.7")
def test_rows_are_the_same_from_processes_and_from_here(tmp_path, files):
    write_out(files, tmp_path)
    disk = ReadOnlyDisk(tmp_path)
    state, tasks = tasks_of(disk)
    told = []
    here = scan_all(disk, tasks)
    there = scan._scan_in_processes((str(tmp_path), None), tasks, [1] * len(tasks), 2, told.append)

    assert there == here
    assert sum(told) == len(tasks)
    assert {one.check for one in examine(disk, state, there)} >= {"segment.record", "wal.damage"}


def test_a_file_that_is_gone_has_no_row(files):
    disk = disk_of(files)
    _, tasks = tasks_of(disk)
    for task in tasks:
        disk.unlink(task.file)

    assert set(scan_all(disk, tasks)) == {None}


def test_progress_ends_with_every_byte_done(files):
    seen = []
    disk = disk_of(files)
    fsck(disk, where="a sample", options=Options(settled=True), progress=lambda *now: seen.append(now))

    assert seen
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_pipe_that_has_the_name_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "snapshot.0001.bin")
    with pytest.raises(OSError, match="a pipe"):
        ReadOnlyDisk(tmp_path).read("snapshot.0001.bin", 0, 1)


class Going(Hiding):
    """A disk on which these files go away between a look at their size and a read."""

    def size(self, path):
        return self._disk.size(path)


@pytest.mark.rule("P1.7")
@pytest.mark.parametrize("part", ["idx", "col", "del"])
def test_a_file_beside_a_segment_that_goes_away_meanwhile_is_one_that_is_not_there(part):
    """Somebody has the store open: what was gone when it was read is looked for again, and is no failure."""
    disk = disk_of({**build().files})
    _, tasks = tasks_of(disk)
    segments = [task for task in tasks if isinstance(task, SegmentTask)]
    if part == "del":
        for task in segments:
            disk.create(task.part("del"), 4)
    going = frozenset(task.part(part) for task in segments)

    assert scan_all(Going(disk, going), segments) == scan_all(Hiding(disk, going), segments)


class Asked(ReadOnlyDisk):
    """A disk that remembers of which records it was asked for the size."""

    def __init__(self, root):
        super().__init__(root)
        self.sizes = []

    def size(self, path):
        self.sizes += [path] * path.endswith(".data")
        return super().size(path)


@pytest.mark.rule("P1.7")
def test_who_hands_out_tasks_asks_for_no_sizes_of_segments_beyond_those_that_a_start_asks_for(tmp_path):
    """In an object store that is a request each, one after the other; the state knows how much they have. One more is
    to find what is no file.
    """
    write_out(build().files, tmp_path)
    start, disk, told = Asked(tmp_path), Asked(tmp_path), []
    read(start, "a sample", same_boot=False)

    def elsewhere(tasks, tell):
        return scan_all(ReadOnlyDisk(tmp_path), tasks, progress=tell)

    options = Options(settled=True, agreement=False, scan=elsewhere)
    report = fsck(disk, where="a sample", options=options, progress=lambda *now: told.append(now))

    assert not report.violations
    more = Counter(disk.sizes) - Counter(start.sizes)
    assert list(more.values()) == [1] * len(more)
    assert told[-1] == (report.bytes, report.bytes)
