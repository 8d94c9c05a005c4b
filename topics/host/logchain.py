"""The log behind a backup: WAL files that were archived, or are in use still, each going on where the one before ended.

They may come from several directories: a data directory (its `wal/` and its `archive/`), a copy of either. A file that
is in two of them is the same file. What does not follow, byte for byte and frame by frame, is refused: a hole would
make a history that never was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from topics.codec.manifest import Manifest, Position
from topics.codec.walheader import HEADER_SIZE, decode_header
from topics.codec.writes import WholeWrite, whole_writes
from topics.engine.recover import ShardKey
from topics.host.archive import ARCHIVE_DIR
from topics.host.layout import find_wal_files_in, shards_in, wal_path_in
from topics.host.walfile import wal_path
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

ROOTS: Final = ("wal", ARCHIVE_DIR, "")


@attrs.frozen
class Found:
    """A WAL file of some directory."""

    file: WalFileId
    disk: Disk
    path: str

    def read(self) -> bytes:
        try:
            return self.disk.read(self.path, 0, self.disk.size(self.path) or 0)
        except OSError as error:
            raise Corrupt(f"{self.path} of the log cannot be read: {error.strerror or error}") from error


@attrs.frozen
class Link:
    """A file of a chain, and the offset behind which it is new: what is before it is in the backup."""

    found: Found
    start: int

    def writes(self) -> Iterator[WholeWrite]:
        return whole_writes(self.found.read(), self.start)


Chains = Mapping[ShardKey, Sequence[Link]]


def find_logs(disks: Sequence[Disk]) -> dict[ShardKey, dict[int, Found]]:
    """Every WAL file there is, by shard and by its first frame."""
    logs: dict[ShardKey, dict[int, Found]] = {}
    for disk in disks:
        for root in ROOTS:
            for key in shards_in(disk, root):
                for file in find_wal_files_in(disk, root, *key):
                    logs.setdefault(key, {})[file.first_frame] = Found(file, disk, wal_path_in(root, file))
    return logs


def chains_behind(base: Disk, manifest: Manifest, disks: Sequence[Disk]) -> Chains:
    """What goes on where the backup ends, shard by shard, generations in order.

    Raises:
        Corrupt: a file is missing or damaged in the middle, or of another history than the backup.
        OSError: a disk failed.
    """
    logs = find_logs(disks)
    chains: dict[ShardKey, Sequence[Link]] = {}
    newest = max((position.generation for position in manifest.vector), default=0)
    for position in manifest.vector:
        key = (position.generation, position.shard)
        chains[key] = _chain_from(base, position, logs.get(key, {}))
    for key in sorted(logs):
        if key[0] > newest:
            chains[key] = list(_chain(logs[key], 1, HEADER_SIZE, 1))
    return chains


def _chain_from(base: Disk, position: Position, files: Mapping[int, Found]) -> list[Link]:
    first = files.get(position.file)
    later = [number for number in files if number > position.file]
    if first is None:
        if later:
            raise Corrupt(
                f"the log goes on with frame {min(later)} of shard {position.shard}; the file with frame "
                f"{position.next_frame}, where the backup ends, is not there: give the directory that has it too"
            )
        return []
    path = wal_path(first.file)
    if base.read(path, 0, position.offset) != first.disk.read(first.path, 0, position.offset):
        raise Corrupt(f"{first.path} is of another history: it does not begin as the backup's own {path}")
    return list(_chain(files, position.file, position.offset, position.next_frame))


def _chain(files: Mapping[int, Found], first: int, start: int, next_frame: int) -> Iterator[Link]:
    """Files from `first` on. Only the last may end in what is not whole: the write that was under way."""
    numbers = sorted(number for number in files if number >= first)
    expected = first
    for number in numbers:
        found = files[number]
        if number != expected:
            raise Corrupt(
                f"{found.path}: frames {expected} to {number - 1} of the log are missing or damaged before it"
            )
        buffer = found.read()
        header = decode_header(buffer) if any(buffer) else None
        if header is None or (header.generation, header.shard, header.first_frame) != found.file:
            if number != numbers[-1]:
                raise Corrupt(f"{found.path}: its header is that of another file")
            return
        yield Link(found, start)
        expected = next_frame + sum(write.frames for write in whole_writes(buffer, start))
        start, next_frame = HEADER_SIZE, expected
