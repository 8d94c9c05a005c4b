"""Whether there is room for a repair: asked before it begins, for one that ends on a full disk has helped nobody.

An upper bound, of what is there at once: the new segments and the snapshot beside all that is old, and a copy aside of
each file that is replaced. Logs and snapshots are moved aside, which takes room only where they lie on other disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from topics.audit.recovery import RecoveredDirectory
from topics.host.checkpoint.snapshots import META_DIR
from topics.host.directory.layout import find_shards, segment_path, shard_dir
from topics.kernel.config import Durability
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.ports import Disk
from topics.log.segments import Segment

TOPICS: Final = "topics"
LOGS: Final = "wal"
REPLACED: Final = ("data", "idx", "col")
_OF_FILE: Final = 4096  # that a file takes beyond its bytes
_OF_RECORD: Final = 64  # in .idx and .col, beside its labels
_OF_STATE: Final = 1 << 16


def check_room(
    disk: Disk, seen: Disk, state: RecoveredDirectory, remade: Mapping[int, Sequence[Segment]], where: str
) -> None:
    """`seen`: the disk with what is cold. `remade`: by topic id the segments that are made anew.

    Raises:
        CannotOpen: there is not room enough; it says where, how much is needed and how much is free.
    """
    copies = sum(_size_of(seen, topic_id, one) for topic_id, all_of_it in remade.items() for one in all_of_it)
    snapshots = _sizes(disk, META_DIR)
    needed = {TOPICS: copies + _of_log(state), META_DIR: max(snapshots, default=0) + _OF_STATE, "": copies}
    free = {folder: disk.free_bytes(folder if disk.names(folder) else "") for folder in (*needed, LOGS)}
    if free[LOGS] != free[""]:
        needed[""] += sum(size for key in find_shards(disk) for size in _sizes(disk, shard_dir(*key)))
    if free[META_DIR] != free[""]:
        needed[""] += sum(snapshots)
    together: dict[int, dict[str, int]] = {}
    for folder, size in needed.items():  # folders with as much free lie on one disk, or may as well
        together.setdefault(free[folder], {})[folder] = size
    for room, sizes in together.items():
        if sum(sizes.values()) > room:
            place = where if "" in sizes else f"{where}/{min(sizes)}"
            raise CannotOpen(
                Unusable.NO_SPACE,
                f"{place}: a repair takes up to {sum(sizes.values())} bytes there and {room} are free: free some, or "
                "copy the directory to a larger disk and repair it there. Nothing was changed",
                path=where,
            )


def _size_of(disk: Disk, topic_id: int, segment: Segment) -> int:
    paths = [segment_path(topic_id, segment.first, part) for part in REPLACED]
    return sum((disk.size(path) or 0) + _OF_FILE for path in paths)


def _of_log(state: RecoveredDirectory) -> int:
    """Bytes of the segments that are made of what only the log has."""
    size = 0
    for _, topic in sorted(state.topics.items()):
        index = topic.index
        start = index.position(topic.segments.stored_seq + 1)
        if topic.config.durability is not Durability.EPHEMERAL and start < index.stop:
            size += sum(index.lengths[start:]) + _OF_RECORD * (index.stop - start)
            size += len(REPLACED) * _OF_FILE
    return size


def _sizes(disk: Disk, folder: str) -> list[int]:
    return [disk.size(f"{folder}/{name}") or 0 for name in disk.names(folder)]
