"""The archive of the log on a disk that is full: what is told, and what goes on."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.host.directory.layout import log_files_bytes
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk


class SmallArchive:
    """A disk whose `archive/` is another one, with room for so many bytes. `bad`: a file that cannot be read."""

    def __init__(self, disk, room):
        self._disk = disk
        self.room = room
        self.bad = ""

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def rename(self, source, target):
        if target.startswith("archive/") != source.startswith("archive/"):
            raise OSError(errno.EXDEV, "cross-device link")
        self._disk.rename(source, target)

    def write(self, path, offset, chunks):
        if path.startswith("archive/"):
            size = sum(map(len, chunks))
            if size > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= size
        self._disk.write(path, offset, chunks)

    def read(self, path, offset, size):
        if path == self.bad:
            raise OSError(errno.EIO, "Input/output error", path)
        return self._disk.read(path, offset, size)

    def unlink(self, path):
        if path.startswith("archive/"):
            self.room += self._disk.size(path) or 0
        self._disk.unlink(path)


def options(**rules):
    return StoreOptions(
        min_free_bytes=0,
        archive=ArchiveRules(**rules),
        segments=SegmentRules(records_max=8, bytes_max=100_000, age_ms=0),
        limits=Limits(wal_file_first=4096, wal_file_max=4096, wal_reserve=1024),
    )


def store_with(room, clock=None, **rules):
    disk = SimDisk(1)
    port = SmallArchive(disk, room)
    opened = open_simulated(disk, clock or ManualClock(), SeededEntropy(1), options(**rules), port=port)
    return Store(opened, port, housekeeping=False), disk, port


def put(store, count=40):
    for _ in range(count):
        store.topic("t").put({"x": "y" * 200})
    store.sync()


def names(disk, folder):
    return [name for name in disk.names(f"{folder}/gen-0/shard-00") if name.startswith("wal-")]


@pytest.mark.rule("T1.7", "T5.3")
def test_an_archive_without_room_is_told_with_its_place_and_checkpoints_go_on():
    store, disk, port = store_with(0)
    put(store)
    store.checkpoint()
    put(store)
    store.topic("t").delete(before_seq=40)
    for _ in range(3):
        with pytest.raises(Rejected) as refused:
            store.checkpoint()
    told = refused.value

    assert told.code is Code.DISK_LOW
    assert "no space for the log in archive/gen-0/shard-00/ of the data directory" in told.message
    assert "wal_archive_bytes" in told.message
    assert "checkpoints go on, and the log that belongs there stays in wal/" in told.message
    assert store._opened.checkpointer.kept[0].segments == store._opened.checkpointer.kept[1].segments
    segments = [name for name in disk.names("topics/0000000000000001") if name.endswith(".data")]
    assert min(segments) == "seg-00000000000000000033.data"  # what was deleted has gone
    logs = names(disk, "wal")
    assert names(disk, "archive") == []
    port.room = 1 << 20
    store.checkpoint()
    assert len(names(disk, "wal")) < len(logs)
    assert {*names(disk, "wal"), *names(disk, "archive")} == set(logs)


@pytest.mark.rule("T1.7")
def test_what_the_archive_no_longer_keeps_makes_room_for_what_is_to_go_there():
    """Its bound is by age, and the disk is full before: the old files go first."""
    clock = ManualClock()
    store, disk, _ = store_with(5 * 4096, clock, age_ms=60_000)
    for _ in range(2):
        put(store)
        store.checkpoint()
    kept = names(disk, "archive")
    assert kept
    with pytest.raises(Rejected, match="no space for the log"):
        for _ in range(4):
            put(store)
            store.checkpoint()
    clock.advance(120_000)
    for _ in range(4):  # each takes what there is room for, and trims
        put(store, 1)
        with suppress(Rejected):
            store.checkpoint()
    put(store)
    store.checkpoint()

    assert not set(kept[:-1]) & set(names(disk, "archive"))


@pytest.mark.rule("T1.7", "T5.11")
def test_a_log_file_that_cannot_be_read_is_not_archived_and_holds_up_nothing_else():
    store, disk, port = store_with(1 << 20)
    put(store)
    store.checkpoint()
    put(store)
    stays = names(disk, "wal")[1]
    port.bad = f"wal/gen-0/shard-00/{stays}"
    store.topic("t").delete(before_seq=40)
    for _ in range(3):
        with pytest.raises(Fatal, match=f"{port.bad}: Input/output error"):
            store.checkpoint()

    segments = [name for name in disk.names("topics/0000000000000001") if name.endswith(".data")]
    assert min(segments) == "seg-00000000000000000033.data"
    assert stays in names(disk, "wal")
    assert stays not in names(disk, "archive")
    assert store._opened.checkpointer.log_bytes == log_files_bytes(disk)  # those before it have gone
    port.bad = ""
    store.checkpoint()
    assert stays in names(disk, "archive")
    assert stays not in names(disk, "wal")
