"""A data directory whose folders lie on two file systems, by links: a store does all that it does on one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import topics
from topics.audit.fsck import fsck
from topics.audit.repair.offline import repair_directory
from topics.engine.checkpoint import SegmentRules
from topics.host.backup.verifying import verify_backup
from topics.host.system.disk import OsDisk
from topics.host.system.readonly import ReadOnlyDisk
from topics.host.wal.archive import ArchiveRules
from topics.kernel.limits import Limits
from topics.store.opened import StoreOptions

OPTIONS = StoreOptions(
    min_free_bytes=0,
    archive=ArchiveRules(),
    segments=SegmentRules(records_max=8),
    limits=Limits(wal_file_first=4096, wal_file_max=8192, wal_reserve=1024),
)


@pytest.fixture
def other(tmp_path):
    """A directory on another file system than `tmp_path`, which may itself be in memory."""
    here = tmp_path.stat().st_dev
    places = [place for place in map(Path, ("/dev/shm", "/var/tmp")) if place.is_dir()]
    shared = next((place for place in places if place.stat().st_dev != here), None)
    if shared is None:
        pytest.skip("this machine has no second file system to write to")
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path)


def linked(tmp_path, other, folder):
    root = tmp_path / "data"
    root.mkdir()
    (root / folder).symlink_to(other)
    return root


def filled(root):
    with topics.open(root, options=OPTIONS) as store:
        for n in range(40):
            store.topic("t").put_many([{"data": n}, {"data": "x" * 300}])
            if n % 8 == 7:
                store.sync()
                store.checkpoint()


def test_names_and_space_are_those_of_the_file_system_that_has_the_folder(tmp_path, other):
    disk = OsDisk(linked(tmp_path, other, "wal"))
    disk.create("file", 10)
    with pytest.raises(OSError, match="cross-device") as refused:
        disk.rename("file", "wal/file")

    assert refused.value.errno == errno.EXDEV
    there, here = os.statvfs(other), os.statvfs(tmp_path)
    assert there.f_blocks != here.f_blocks
    assert abs(disk.free_bytes("wal/none") - there.f_bavail * there.f_frsize) < 1 << 26
    disk.close()


@pytest.mark.rule("T1.7", "T4.11", "T7.1")
@pytest.mark.parametrize("folder", ["wal", "topics", "archive"])
def test_a_log_is_archived_a_backup_is_taken_and_what_is_damaged_repaired(tmp_path, other, folder):
    root = linked(tmp_path, other, folder)
    filled(root)
    with topics.open(root, options=OPTIONS) as store:
        written = store.backup(tmp_path / "b")
        store.topic("t").put_many([{"data": "behind"}])
    assert (written.linked > 0) is (folder != "topics")
    assert verify_backup(OsDisk(tmp_path / "b"), "b").findings == []
    assert len(list((root / "archive").rglob("wal-*.log"))) > 1
    assert not list((root / "archive").rglob("*.tmp"))

    segment = min(root.glob("topics/*/seg-*.data"))
    data = bytearray(segment.read_bytes())
    data[20] ^= 1
    segment.unlink()  # the backup may have it, too
    segment.write_bytes(data)
    done = repair_directory(root)
    kept = root / done.aside

    assert done.lost == {"t": [(1, 1)]}
    assert (kept / segment.relative_to(root)).read_bytes() == data
    assert list(kept.glob("wal/*/*/wal-*.log"))
    assert not fsck(ReadOnlyDisk(root), where="here").errors
    with topics.open(root, options=OPTIONS) as store:
        assert [record.data for record in store.topic("t").records(from_seq=1) if hasattr(record, "data")][
            -1
        ] == "behind"
