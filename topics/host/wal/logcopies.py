"""Which files of a log some directories have (storage 7).

They may be data directories (`wal/` and `archive/`), what a repair has put aside, or copies of any of these. One copy
of a file may have been made earlier than another, and is then its beginning. Copies that differ are refused: one of
them is damaged or of another history, and which one is for the operator to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from topics.engine.image import LogPlace
from topics.engine.recovery.recover import ShardKey
from topics.host.checkpoint.snapshots import find_snapshots, read_snapshot
from topics.host.directory.layout import find_wal_files_in, read_hint_in, shards_in, wal_path, wal_path_in
from topics.host.directory.owner import owner_on
from topics.host.directory.size_limits import read_log
from topics.host.wal.archive import ARCHIVE_DIR
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

ROOTS: Final = ("wal", ARCHIVE_DIR, "")


@attrs.frozen
class Found:
    """A WAL file at `path` of a disk. `name`: for messages. `archived`: a copy was in an archive, where no file is that
    was not closed.
    """

    file: WalFileId
    name: str
    disk: Disk
    path: str
    archived: bool = False

    def read(self) -> bytes:
        """All of it. Raises `Corrupt` if it cannot be read."""
        try:
            return read_log(self.disk, self.path)
        except OSError as error:
            raise Corrupt(f"{self.name} of the log cannot be read: {error.strerror or error}") from error

    def or_longer(self, other: Found) -> Found:
        """Of two copies of this file the one that has more.

        Raises:
            Corrupt: neither is the beginning of the other.
        """
        assert self.file == other.file
        own, its = self.read().rstrip(b"\0"), other.read().rstrip(b"\0")
        if not (own.startswith(its) or its.startswith(own)):
            raise _differs(self.name, own, other.name, its)
        longer = self if len(own) >= len(its) else other
        return attrs.evolve(longer, archived=self.archived or other.archived)

    def check_goes_on(self, backup: Disk, stop: int) -> None:
        """Refuse a file that is not as the backup has it, up to where the backup ends."""
        copy = Found(self.file, f"the backup's own {wal_path(self.file)}", backup, wal_path(self.file))
        own, its = self.read()[:stop], copy.read()[:stop]
        if own != its:
            raise _differs(copy.name, its, self.name, own)


def _differs(name: str, own: bytes, other: str, its: bytes) -> Corrupt:
    at = next(
        (at for at, (a, b) in enumerate(zip(own, its, strict=False)) if a != b), min(len(own), len(its))
    )
    return Corrupt(
        f"{other} differs from {name} at offset {at}: one of them is damaged, or they are of different histories; "
        "give only directories of one store, and of two copies the one that is whole"
    )


Logs = Mapping[ShardKey, Mapping[int, Found]]


def found_at(disk: Disk, root: str, file: WalFileId, where: str = "") -> Found:
    """The file as it lies in the directory `root` of a disk. `where`: what messages call that."""
    path = wal_path_in(root, file)
    name = f"{where}/{path}" if where else path
    return Found(file, name, disk, path, archived=root == ARCHIVE_DIR)


def find_logs(disks: Sequence[Disk], names: Sequence[str] = ()) -> Logs:
    """Every WAL file there is, by shard and by its first frame. `names`: what messages call the disks.

    Raises:
        Corrupt: two copies of a file differ, or one cannot be read.
    """
    logs: dict[ShardKey, dict[int, Found]] = {}
    for at, disk in enumerate(disks):
        for root in ROOTS:
            for key in shards_in(disk, root):
                for file in find_wal_files_in(disk, root, *key):
                    own = logs.setdefault(key, {})
                    found = found_at(disk, root, file, names[at] if names else "")
                    before = own.get(file.first_frame)
                    own[file.first_frame] = found if before is None else before.or_longer(found)
    return logs


def newest_named(disks: Sequence[Disk]) -> Mapping[ShardKey, WalFileId]:
    """The newest file of each shard that any CURRENT names, which must be there. To be asked before `find_logs`: a log
    in use goes on meanwhile.
    """
    named: dict[ShardKey, WalFileId] = {}
    for disk in disks:
        for root in ROOTS:
            for key in shards_in(disk, root):
                hint = read_hint_in(disk, root, *key)
                if hint is not None:
                    named[key] = max(hint, named.get(key, hint))
    return named


def shards_begun(disks: Sequence[Disk]) -> Mapping[int, int]:
    """How many shards each generation has of which a LOCK says that it has begun."""
    shards: dict[int, int] = {}
    for disk in disks:
        owner = owner_on(disk)
        for generation, count in () if owner is None else owner.begun:
            shards[generation] = max(count, shards.get(generation, 0))
    return shards


def places_reached(disks: Sequence[Disk]) -> Mapping[ShardKey, LogPlace]:
    """How far each shard's log has got by the snapshots that are intact: all before was durable when one was kept. Of
    a shard of which a snapshot says no more than that it has ended, `file` is 0.
    """
    reached: dict[ShardKey, LogPlace] = {}
    for disk in disks:
        for number in find_snapshots(disk):
            try:
                places = read_snapshot(disk, number).places
            except Corrupt:
                continue  # fsck tells
            for place in places:
                before = reached.setdefault((place.generation, place.shard), place)
                if (place.file, place.offset) > (before.file, before.offset):
                    reached[place.generation, place.shard] = place
    return reached
