"""fsck looks at what is kept of the log for restores, as closely as at the log."""

from __future__ import annotations

import os

import pytest

import topics
from tests.support.damaged_logs import (
    LARGE,
    Case,
    damage,
    files_of,
    log_of_everything,
    names,
    put_file,
    whole,
)
from topics.audit.fsck import Options, fsck
from topics.audit.scan.rows import Severity, WalTask
from topics.audit.scan.scan import scan_all
from topics.engine.recovery.judge import examine_log_file as look_at
from topics.host.system.readonly import ReadOnlyDisk
from topics.host.wal.walfile import MARK_SIZE
from topics.log.regions import WalFileId


def look(disk, **options):
    return fsck(disk, where="a store", options=Options(settled=True, **options))


def told(disk):
    return [(one.check, one.file, one.topic, one.seq) for one in look(disk).errors]


@pytest.fixture
def case():
    """A store with several files in its archive."""
    case = Case(*[LARGE] * 20)
    case.checkpoint()
    case.checkpoint()
    case.write(*names(3))
    assert len(archive_of(case.disk)) > 2
    return case


def archive_of(disk):
    return sorted(path for path in files_of(disk) if path.startswith("archive/"))


def test_an_archive_that_is_whole_is_counted_and_nothing_is_wrong(case):
    paths = [path for path in files_of(case.disk) if "/wal-" in path]
    seen = []
    report = fsck(case.disk, where="a store", progress=lambda done, total: seen.append((done, total)))

    assert report.violations == []
    assert report.bytes >= sum(case.disk.size(path) for path in paths)
    assert seen[-1][0] == seen[-1][1] >= sum(case.disk.size(path) for path in paths)
    assert look(log_of_everything().disk).violations == []


@pytest.mark.rule("T1.7", "T4.10")
@pytest.mark.parametrize("at", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_damaged_record_of_the_archive_is_told_by_file_topic_and_seq(case, at):
    path = archive_of(case.disk)[at]
    damage(case.disk, path, LARGE)
    ((check, file, topic, seq),) = told(case.disk)

    assert (check, file, topic) == ("archive", path, "a")
    assert 3 < seq <= 23
    assert "a restore that would go past it is refused" in look(case.disk).violations[0].detail
    assert look(case.disk).exit_code == 1


@pytest.mark.rule("T1.7", "T4.10")
def test_any_byte_of_an_archived_file_that_is_not_as_it_was_is_told(case):
    for path in archive_of(case.disk):
        data = whole(case.disk, path)
        used = len(data.rstrip(b"\0"))
        for byte in (3, 20, 44, 50, used // 2, used - 1, used + 5):
            if byte < len(data):
                case.disk.flip(path, byte * 8)
                assert {(check, file) for check, file, _, _ in told(case.disk)} == {("archive", path)}, byte
                case.disk.flip(path, byte * 8)
        end = look_at(WalFileId(0, 0, int(path[-24:-4])), data).end
        for size in (0, 20, 48, end - MARK_SIZE, used - 100, used - 1):
            put_file(case.disk, path, data[:size])
            assert ("archive", path) in {(check, file) for check, file, _, _ in told(case.disk)}, size
        put_file(case.disk, path, data)
    assert told(case.disk) == []


@pytest.mark.rule("T1.7", "T4.10")
@pytest.mark.parametrize("behind", [-1, 5], ids=["closing_mark", "zeros"])
def test_the_last_file_of_a_generation_that_has_ended_was_whole_to_its_end(case, behind):
    """Nothing goes on behind it, so by itself it would be a log that was cut short by a crash."""
    case.change_shards(2)
    for _ in range(3):
        case.write(b"1")
        case.checkpoint()
    path = [path for path in archive_of(case.disk) if "/gen-0/" in path][-1]
    assert not [path for path in files_of(case.disk) if path.startswith("wal/gen-0/") and "wal-" in path]
    assert told(case.disk) == []
    case.disk.flip(
        path, (look_at(WalFileId(0, 0, int(path[-24:-4])), whole(case.disk, path)).end + behind) * 8
    )

    assert {(check, file) for check, file, _, _ in told(case.disk)} == {("archive", path)}


def test_a_hole_is_worth_a_note_and_an_older_file_that_is_not_there_nothing(case):
    first, second, *_ = archive_of(case.disk)
    before = whole(case.disk, first)
    case.disk.unlink(first)
    assert look(case.disk).violations == []

    put_file(case.disk, first, before)
    case.disk.unlink(second)
    (hole,) = look(case.disk).violations

    assert (hole.check, hole.severity, hole.file) == ("archive", Severity.NOTE, first)
    assert "frames" in hole.detail
    assert look(case.disk).exit_code == 0


def test_a_file_may_be_in_both_places(case):
    """A move to another disk that was broken off."""
    last = archive_of(case.disk)[-1]
    put_file(case.disk, "wal/" + last.removeprefix("archive/"), whole(case.disk, last))

    assert told(case.disk) == []


def test_files_may_be_removed_from_the_archive_while_it_is_looked_at(case):
    def scan(tasks, tell):
        for task in tasks[::2]:
            if isinstance(task, WalTask) and task.archived:
                case.disk.unlink(task.file)
        return scan_all(case.disk, tasks, progress=tell)

    report = fsck(case.disk, where="a store", options=Options(scan=scan))

    assert report.exit_code == 0


@pytest.mark.parametrize(
    "name", ["archive", "archive/gen-0", "archive/gen-0/shard-00/wal-00000000000000000001.log"]
)
def test_what_is_no_file_or_directory_of_the_archive_is_named(tmp_path, name):
    with topics.open(tmp_path / "d") as store:
        store.create("a").put({"n": 1})
    there = tmp_path / "d" / name
    there.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(there)
    (told,) = look(ReadOnlyDisk(tmp_path / "d")).violations

    assert (told.file, told.check, told.severity) == (name, "leftover", Severity.ERROR)
