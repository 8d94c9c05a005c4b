"""Repairing a directory of this machine that nobody has open: owned meanwhile, and given free again."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from topics.audit.repair.repairing import Repair, repair
from topics.codec.manifest import MANIFEST_FILE
from topics.host.cold.ownership import settle_place
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.lock import DirectoryLock
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.ports import Clock


def repair_directory(
    root: Path, *, clock: Clock | None = None, cold: SegmentStore | None = None
) -> Repair:  # fmt: skip
    """Own the directory, repair it, give it free.

    Raises:
        CannotOpen: in use (by which process it says), a backup, no data directory, or not to be repaired.
        OSError: the disk failed; run it again.
    """
    if os.path.lexists(root / MANIFEST_FILE):  # before LOCK is made: what is in a backup is as it was written
        raise CannotOpen(
            Unusable.FOREIGN,
            f"{root} is a backup, and none any more once repaired: make a store of it with topics restore {root} DIR, "
            "and repair that",
            path=str(root),
        )
    now_ms = (clock or SystemClock()).now_ms()
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S") + f"{now_ms % 1000:03d}Z"
    lock = DirectoryLock.acquire(root)
    disk = OsDisk(root)
    try:
        settle_place(disk, inode=lock.inode, remembered=lock.remembered)
        return repair(disk, where=str(root), same_boot=not lock.machine_restarted, stamp=stamp, cold=cold)
    finally:
        disk.close()
        lock.release()
