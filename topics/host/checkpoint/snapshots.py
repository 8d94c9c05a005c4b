"""Snapshots on the disk: meta/snapshot.NNNN.bin, each the state at a cut (storage 1 and 5). Every call blocks.

The two newest are kept: should the last one be damaged, recovery begins with the one before it, so nothing that either
needs is taken away.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import Final

import attrs

from topics.codec.snapshot import SNAPSHOT_HEAD, check_head, decode_snapshot, encode_snapshot
from topics.engine import image
from topics.engine.image import LogPlace, Snapshot
from topics.host.system.temporary import write_file
from topics.kernel.errors import Corrupt
from topics.kernel.limits import SNAPSHOT_BYTES_MAX
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId

META_DIR: Final = "meta"
KEPT_MAX: Final = 2
_TEMPORARY: Final = f"{META_DIR}/snapshot.tmp"
SNAPSHOT_NAME: Final = r"snapshot\.(?P<number>[0-9]{4,18})\.bin"  # the next number of any fits, too
_NAME: Final = re.compile(SNAPSHOT_NAME, re.ASCII)


@attrs.frozen(eq=False)
class Kept:
    """A snapshot that is there and intact, and what it needs of other files. Its state is not held in memory."""

    number: int
    places: Sequence[LogPlace]
    segments: frozenset[SegmentId]

    @staticmethod
    def of(number: int, snapshot: Snapshot) -> Kept:
        return Kept(number, snapshot.places, snapshot.state.segment_ids())


def snapshot_path(number: int) -> str:
    return f"{META_DIR}/snapshot.{number:04d}.bin"


def find_snapshots(disk: Disk) -> list[int]:
    """Their numbers, ascending."""
    return sorted(number for name in disk.names(META_DIR) if (number := number_of(name)) is not None)


def number_of(name: str) -> int | None:
    """The number of the snapshot in a file of that name; None if nobody would write one there."""
    match = _NAME.fullmatch(name)
    number = 0 if match is None else int(match["number"])
    return number if number and snapshot_path(number) == f"{META_DIR}/{name}" else None


def read_snapshot(disk: Disk, number: int) -> Snapshot:
    """One snapshot.

    Raises:
        Corrupt: it is damaged, or of another number than its name says.
    """
    path = snapshot_path(number)
    size = disk.size(path) or 0
    check_head(disk.read(path, 0, SNAPSHOT_HEAD.size), size)
    found, body = decode_snapshot(disk.read(path, 0, size))
    if found != number:
        raise Corrupt(f"snapshot: it is number {found}", field="number")
    return image.decode(body)


def write_snapshot(disk: Disk, number: int, snapshot: Snapshot, *, free_min: int = 0) -> Kept:
    """Keep a snapshot, atomically and durably. All it refers to is durable already.

    `free_min`: bytes that stay free on the disk, but for a snapshot which is so small that all that are kept would fit
    at its size, and the next one beside them: with it space comes back. A large one holds much of the log that there
    was no room to copy, and would fill the disk.

    Raises:
        OSError: it is not kept, and what was written of it is given back: the disk may be full.
    """
    data = encode_snapshot(number, image.encode(snapshot))
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise OSError(
            errno.EFBIG, f"{len(data)} bytes of state, and at most {SNAPSHOT_BYTES_MAX} are kept", _TEMPORARY
        )
    free = disk.free_bytes()
    if free < free_min + len(data):
        taken = sum(disk.size(snapshot_path(before)) or 0 for before in find_snapshots(disk))
        if free + taken < (KEPT_MAX + 1) * len(data):
            raise OSError(errno.ENOSPC, f"no room for {len(data)} bytes", _TEMPORARY)
    if not disk.names(META_DIR):
        disk.make_dir(META_DIR)
        disk.sync_dir("")
    write_file(disk, _TEMPORARY, data)
    disk.rename(_TEMPORARY, snapshot_path(number))
    disk.sync_dir(META_DIR)
    return Kept.of(number, snapshot)


def drop_snapshots(disk: Disk, kept: Sequence[Kept]) -> None:
    """Remove all but these, the oldest first."""
    numbers = {one.number for one in kept}
    for number in find_snapshots(disk):
        if number not in numbers:
            disk.unlink(snapshot_path(number))
