"""Opening a store on a simulated disk as a driver would, and reading what is on a disk without changing it.

LOCK is an ordinary file here: its line is that of `host.directory.lock`, written in place before recovery (who owns)
and synced by `confirm` behind it (which boot was recovered, which logs have begun) and when a shard fails, so its own
torn states are part of the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import attrs

from topics.engine.recovery.recover import Recovered
from topics.host.cold.ownership import settle_place
from topics.host.cold.segment_stores import LocalSegmentStore, SegmentStore
from topics.host.directory.layout import Format, read_format
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, OwnerRecord, same_boot
from topics.host.directory.readstate import read_state
from topics.kernel.ports import Clock, Disk, Entropy
from topics.store.opened import Opened, StoreOptions
from topics.store.opening import open_store
from topics.testing.below import Below
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

COLD_FOLDER = "cold"
_PID = 1
_INODE = 1


class RunEnd(Enum):
    """What ends with a process."""

    PROCESS = "process deaths"
    PAGES = "process deaths with pages dropped"  # behind a failed write or sync, when memory runs short
    MOUNT = "mounts"  # its file system, taken away and mounted again
    POWER = "power losses"


def end_as(disk: SimDisk, end: RunEnd, shape: Shape) -> None:
    """The process ends. `shape`: what becomes of bytes that no sync covered, where they are not simply kept."""
    match end:
        case RunEnd.POWER:
            disk.power_loss(shape)
        case RunEnd.MOUNT:
            disk.mount_again(shape)
        case _:
            disk.process_death()
    if end is RunEnd.PAGES:
        disk.drop_caches()


def restarted(disk: SimDisk) -> bool:
    """What LOCK says: has the machine restarted since the last completed recovery?"""
    return not same_boot(
        _owner(disk), boot_id=disk.boot_id, device=disk.device, inode=_INODE, mount=disk.mount
    )


def may_lose_pages(opened: Opened | None) -> bool:
    """Whether a write or sync has failed, and LOCK could be told: only then must a loss of pages be noticed."""
    writers = opened.writers if opened else ()
    return any(writer.failed is not None and writer.lock_error is None for writer in writers)


def open_simulated(
    disk: SimDisk,
    clock: Clock,
    entropy: Entropy,
    options: StoreOptions,
    *,
    port: Disk | None = None,
    cold: SegmentStore | None = None,
) -> Opened:
    """Take the lock, recover, confirm. `port`: what the store sees instead of the disk itself.

    Raises:
        OSError, Fatal: the disk failed; open again.
        SimCrash: it crashed.
    """
    port = port or disk
    machine_restarted, owner = restarted(disk), _owner(disk)
    if port.size(LOCK_NAME) is None:
        port.create(LOCK_NAME, RECORD_SIZE)
        port.sync_data(LOCK_NAME)
        port.sync_dir("")

    settle_place(port, inode=_INODE, remembered=0 if owner is None else owner.inode)

    def confirm(logs: Sequence[Format]) -> None:
        begun = () if owner is None else owner.begun
        record = OwnerRecord(
            pid=_PID, boot_id=disk.boot_id, device=disk.device, inode=_INODE, begun=begun, mount=disk.mount
        )
        keep(record.begin(logs))

    def forget_boot() -> None:
        if (found := _owner(disk)) is not None:
            keep(attrs.evolve(found, boot_id=None))

    def keep(record: OwnerRecord) -> None:
        port.write(LOCK_NAME, 0, [record.encode()])
        port.sync_data(LOCK_NAME)

    return open_store(
        port,
        clock,
        entropy,
        where="simulated",
        machine_restarted=machine_restarted,
        confirm=confirm,
        forget_boot=forget_boot,
        options=options,
        cold=cold,
    )


def cold_folder(disk: Disk) -> SegmentStore:
    """A cold tier on the same machine: it fails as its disk does, and loses power with it."""
    return LocalSegmentStore(Below(disk, COLD_FOLDER), COLD_FOLDER)


def peek(disk: SimDisk) -> Recovered:
    """What recovery would read on the disk as it is now; on a copy, so that nothing is changed or counted."""
    twin = SimDisk()
    twin.restore(disk.snapshot())
    form = read_format(twin, "simulated") or Format(1, 0)
    return read_state(twin, form, same_boot=not restarted(disk)).recovered


def _owner(disk: SimDisk) -> OwnerRecord | None:
    if disk.size(LOCK_NAME) is None:
        return None
    return OwnerRecord.decode(disk.content(LOCK_NAME)[:RECORD_SIZE])
