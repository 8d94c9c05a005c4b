"""Which files of a log some directories have, and one file out of several copies of it (storage 7).

They may be data directories (`wal/` and `archive/`), what a repair has put aside, or copies of any of these. Two copies
of a file differ where one was made earlier, or where one is damaged. The one that is whole for longer is taken that
far, and the rest from whichever knows more of it. So nothing is lost that any copy has, and each makes good another's
damage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from topics.engine.image import Place
from topics.engine.judge import FileLook, look
from topics.engine.recover import ShardKey
from topics.host.archive import ARCHIVE_DIR
from topics.host.largest import read_log
from topics.host.layout import find_wal_files_in, read_hint_in, shards_in, wal_path_in
from topics.host.owner import owner_on
from topics.host.snapshots import find_snapshots, read_snapshot
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

ROOTS: Final = ("wal", ARCHIVE_DIR, "")


@attrs.frozen
class _Piece:
    """What a copy gives: its bytes from `start` on."""

    disk: Disk
    path: str
    start: int


@attrs.frozen
class Found:
    """A WAL file. `name`: of its first copy, for messages. `pieces`: each goes on where it starts, instead of the one
    before. `archived`: a copy was in an archive, where no file is that was not closed.
    """

    file: WalFileId
    name: str
    pieces: Sequence[_Piece]
    archived: bool = False

    def read(self) -> bytes:
        """All of it. Raises `Corrupt` if it cannot be read."""
        buffer = b""
        for piece in self.pieces:
            try:
                own = read_log(piece.disk, piece.path)
            except OSError as error:
                raise Corrupt(f"{self.name} of the log cannot be read: {error.strerror or error}") from error
            buffer = buffer[: piece.start] + own[piece.start :] if piece.start else own
        return buffer

    def joined(self, other: Found) -> Found:
        """This file and another copy of it as one.

        Raises:
            Corrupt: they are no copies of one file.
        """
        assert self.file == other.file
        own, its = self.read(), other.read()
        archived = self.archived or other.archived
        if own == its:
            return attrs.evolve(self, archived=archived)
        seen, its_seen = look(self.file, own), look(self.file, its)
        shorter, end = sorted((seen.end, its_seen.end))
        if own[:shorter] != its[:shorter]:
            raise Corrupt(
                f"{other.name} is of another history than {self.name}: give only directories of one store"
            )
        longer, rest, less, more = self, other, seen, its_seen
        if seen.end < its_seen.end:
            longer, rest, less, more = other, self, its_seen, seen
        pieces = tuple(longer.pieces)
        if _known_behind(more, end) > _known_behind(less, end):
            pieces += tuple(attrs.evolve(piece, start=max(piece.start, end)) for piece in rest.pieces)
        return attrs.evolve(longer, pieces=pieces, archived=archived)


Logs = Mapping[ShardKey, Mapping[int, Found]]


def found_at(disk: Disk, root: str, file: WalFileId, where: str = "") -> Found:
    """The file as it lies in the directory `root` of a disk. `where`: what messages call that."""
    path = wal_path_in(root, file)
    return Found(
        file, f"{where}/{path}" if where else path, (_Piece(disk, path, 0),), archived=root == ARCHIVE_DIR
    )


def find_logs(disks: Sequence[Disk], names: Sequence[str] = ()) -> Logs:
    """Every WAL file there is, by shard and by its first frame. `names`: what messages call the disks.

    Raises:
        Corrupt: two files of one name are no copies of each other, or one cannot be read.
    """
    logs: dict[ShardKey, dict[int, Found]] = {}
    for at, disk in enumerate(disks):
        for root in ROOTS:
            for key in shards_in(disk, root):
                for file in find_wal_files_in(disk, root, *key):
                    own = logs.setdefault(key, {})
                    found = found_at(disk, root, file, names[at] if names else "")
                    before = own.get(file.first_frame)
                    own[file.first_frame] = found if before is None else before.joined(found)
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


def places_reached(disks: Sequence[Disk]) -> Mapping[ShardKey, Place]:
    """How far each shard's log has got by the snapshots that are intact: all before was durable when one was kept. Of
    a shard of which a snapshot says no more than that it has ended, `file` is 0.
    """
    reached: dict[ShardKey, Place] = {}
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


def _known_behind(seen: FileLook, end: int) -> tuple[int, int]:
    """How much of what lies behind `end` a copy has: up to which intact frame, and up to which byte."""
    intact = max((item.offset for item in seen.beyond if item.offset >= end), default=0)
    return intact, seen.stop if seen.stop > end else 0
