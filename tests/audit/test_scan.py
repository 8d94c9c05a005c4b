"""Whoever scans a file makes the same row of it."""

from __future__ import annotations

import os

import pytest

from topics.audit import scan
from topics.audit.files import ReadOnlyDisk
from topics.audit.fsck import examine
from topics.audit.recovery import read, segment_tasks, wal_tasks
from topics.audit.scan import scan_all
from topics.testing.planting import plant
from topics.testing.sample_store import build, disk_of, write_out


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
    from topics.audit.fsck import Options, fsck

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
