"""The writer of one shard: files, offsets, frame numbers, rotation and CommitMarks (storage 2 and 3). Sans-IO.

It turns a batch into disk operations and is told when they are done; who carries them out (a thread, the caller, the
simulator) is not its business. The core owns every frame but the CommitMark.

Order of operations, on which recovery rests:
  rotation     sync old file; closing mark; sync; header into next.tmp; sync; rename; sync directory; first frame
  batch        [mark of what was synced before] frames in one write; then one fdatasync if the batch asks for it
A mark is due whenever the synced offset has moved since the last one, but never for a mark alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from topics.codec.log.control import MARK_FRAME, CommitMark, encode_mark
from topics.codec.log.walheader import HEADER_SIZE, WalHeader
from topics.engine.batch import WalBatch, WalPosition
from topics.host.directory.layout import CURRENT_FILE, NEXT_FILE, hint, shard_dir, wal_path
from topics.kernel.limits import MIB, WAL_FILE_GROWTH, WAL_RESERVE_STEP, Limits
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import WalFileId

MARK_SIZE: Final = MARK_FRAME.size
_TWO_MARKS: Final = 2 * MARK_SIZE


def bytes_with_marks(size: int) -> int:
    """Of so many bytes of batches with the most that their marks take: that of the batch on its way, of the next one,
    and the last. And one a MiB: no more batches than that wait, by what is one batch.
    """
    return size + (3 + size // MIB) * MARK_SIZE


def bytes_without_marks(free: int) -> int:
    """The most bytes of batches that fit into so many with their marks; 0 if none do."""
    free = max(free - 3 * MARK_SIZE, 0)
    marked, rest = divmod(free, MIB + MARK_SIZE)
    return marked * MIB + min(rest, MIB - 1)  # with a byte more there is a mark more


class Create(msgspec.Struct, frozen=True):
    """A file of real zeros."""

    path: str
    size: int

    def run(self, disk: Disk) -> None:
        disk.create(self.path, self.size)


class ExtendFile(msgspec.Struct, frozen=True):
    path: str
    size: int

    def run(self, disk: Disk) -> None:
        disk.extend(self.path, self.size)


class WalWrite(msgspec.Struct, frozen=True):
    path: str
    offset: int
    chunks: Sequence[bytes]

    def run(self, disk: Disk) -> None:
        disk.write(self.path, self.offset, self.chunks)


class SyncData(msgspec.Struct, frozen=True):
    path: str

    def run(self, disk: Disk) -> None:
        disk.sync_data(self.path)


class SyncDir(msgspec.Struct, frozen=True):
    path: str

    def run(self, disk: Disk) -> None:
        disk.sync_dir(self.path)


class Rename(msgspec.Struct, frozen=True):
    source: str
    target: str

    def run(self, disk: Disk) -> None:
        disk.rename(self.source, self.target)


DiskOp = Create | ExtendFile | WalWrite | SyncData | SyncDir | Rename


def carry_out_ops(disk: Disk, ops: Sequence[DiskOp]) -> None:
    """Carry operations out, one after another. Raises what the disk raises; nothing is retried."""
    for op in ops:
        op.run(disk)


class PlannedWrite(msgspec.Struct, frozen=True):
    """`write` hands the batch to the operating system, `sync` makes it durable; `at` is where its frames begin."""

    write: Sequence[DiskOp]
    sync: Sequence[DiskOp]
    at: WalPosition


class WalFile:
    """One shard's log being written. At most one plan is in flight."""

    __slots__ = (
        "_busy", "_entropy", "_limits", "_marked", "_next_frame", "_path", "_pending", "_reserved", "_size", "_synced",
        "_tail", "appended", "directory", "file", "file_id", "generation", "made", "shard",
    )  # fmt: skip

    def __init__(self, generation: int, shard: int, entropy: Entropy, limits: Limits | None = None) -> None:
        self.generation = generation
        self.shard = shard
        self.directory = shard_dir(generation, shard)
        self._entropy = entropy
        self._limits = limits or Limits()
        self.file: WalFileId | None = None
        self._path = ""
        self.file_id = b""
        self._size = 0
        self._tail = 0
        self._next_frame = 1
        self._reserved = 0
        self._synced: tuple[int, int] | None = None  # (file, offset) an fdatasync has returned for
        self._marked: tuple[int, int] | None = None  # the same as the last mark says, its own bytes included
        self._pending: tuple[int, int, int] | None = (
            None  # of the write on its way: bytes, frames, marks among them
        )
        self._busy = False
        self.appended = 0  # bytes since the store was opened
        self.made = 0  # bytes of files, since then, with the next one

    def go_on(
        self,
        file: WalFileId,
        file_id: bytes,
        *,
        size: int,
        tail: int,
        next_frame: int,
        marked: bool = False,
    ) -> None:
        """Continue a recovered file: everything before `tail` has just been synced. `marked`: its last frame is a mark
        that says so of everything before itself, so another one would say nothing new.
        """
        assert self.file is None
        assert HEADER_SIZE <= tail <= size
        self.file, self.file_id, self._size, self._tail, self._next_frame = (
            file,
            file_id,
            size,
            tail,
            next_frame,
        )
        self._path = wal_path(file)
        self._synced = (file.first_frame, tail)
        self._marked = self._synced if marked else None

    # What there is room for.

    def room(self) -> int:
        """Bytes of batches that surely fit: into this file, or else into the reserved next one (storage 3)."""
        size = max(self._size - self._tail, self._reserved - HEADER_SIZE)
        return bytes_without_marks(size)

    @property
    def reserved_bytes(self) -> int:
        """Of the next file; 0 if there is none."""
        return self._reserved

    def wanted_reserve(self, needed: int = 0, free: int | None = None) -> int | None:
        """Size the next file should be reserved with now; None if the reserve is good. `needed`: of one write. `free`:
        bytes that it may take beside those it has. Where it would take more than half it is a step of growth smaller,
        or more of them, but no smaller than the first file: it is of no use without one behind it (decision 141).
        """
        first, largest = self._limits.wal_file_first, self._limits.wal_file_max
        size = min(max(self._size * WAL_FILE_GROWTH, first), largest)
        least = max(min(first, size), HEADER_SIZE + bytes_with_marks(needed))
        size = max(size, least)
        while free is not None and size > max((free + self._reserved) // 2, least):
            size = max(size // WAL_FILE_GROWTH, least)
        return None if self._reserved >= size else size

    def least_reserve(self) -> int | None:
        """Size of the smallest next file that serves deletes on a full disk; None if there is room for them."""
        size = HEADER_SIZE + bytes_with_marks(self._limits.wal_reserve)
        return None if self.room() >= self._limits.wal_reserve or self._reserved >= size else size

    def reserve(self, size: int) -> list[DiskOp]:
        """Take the space of the next file ahead of need, with real zeros.

        In steps, each synced: one sync of 64 MiB of zeros would hold up the syncs of a hundred writes beside it.
        """
        path = f"{self.directory}/{NEXT_FILE}"
        ops: list[DiskOp] = []
        at = self._reserved
        while at < size:
            stop = min(at + WAL_RESERVE_STEP, size)
            ops += [ExtendFile(path, stop) if at else Create(path, stop), SyncData(path)]
            at = stop
        return ops

    def reserved(self, size: int) -> None:
        self.made += size - self._reserved
        self._reserved = size

    # Where it is.

    @property
    def busy(self) -> bool:
        """True while a batch or a mark is on its way."""
        return self._busy

    @property
    def tail(self) -> tuple[int, int]:
        """Offset behind the last frame written, and the number of the next one."""
        assert not self._busy
        return self._tail, self._next_frame

    # Writing.

    def rotates(self, batch: WalBatch) -> bool:
        """True if the batch will not go into the present file: then the next one must not be changing."""
        return batch.size > 0 and (self.file is None or self._tail + batch.size + _TWO_MARKS > self._size)

    def place(self, batch: WalBatch, ts: int, *, begins_file: bool) -> PlannedWrite:
        """The operations of one batch. It goes into one file; a mark of what was synced goes first if one is due.

        `begins_file`: as `rotates` says of it.
        """
        assert not self._busy
        self._busy = True
        ops: Sequence[DiskOp] = self._rotate(batch.size, ts) if begins_file else ()
        file, at, path, size, chunks, marks = self.file, self._tail, self._path, batch.size, batch.chunks, 0
        assert file is not None
        if size:
            if self._synced != self._marked and (mark := self._due_mark(ts)):
                chunks, size, marks = (mark, *chunks), size + MARK_SIZE, 1
            assert at + size + MARK_SIZE <= self._size
            write = WalWrite(path, at, chunks)
            ops = (*ops, write) if ops else (write,)
        self._pending = (size, batch.frames + marks, marks)
        sync = (SyncData(path),) if batch.sync else ()
        return PlannedWrite(ops, sync, WalPosition(file, at + size - batch.size))

    def wrote(self) -> None:
        """The write of the plan has returned."""
        assert self._pending is not None
        (size, frames, marks), self._pending = self._pending, None
        if marks:
            self._marked = self._synced
        self._tail += size
        self._next_frame += frames
        self.appended += size

    def synced(self) -> None:
        """The sync of the plan has returned."""
        assert self._pending is None
        assert self.file is not None
        self._synced = (self.file.first_frame, self._tail)

    def done(self) -> None:
        """The plan is finished: synced, or not to be synced."""
        self._busy = False

    # Marks.

    @property
    def mark_due(self) -> bool:
        """True if the synced offset has moved since the last mark (beyond that mark's own bytes), and one more fits."""
        return (
            self._synced != self._marked
            and self._synced is not None
            and self.file is not None
            and not self._busy
            and self._tail + MARK_SIZE <= self._size
        )

    def closing_mark(self, ts: int) -> Sequence[DiskOp]:
        """Write and sync one more mark: the shard is idle, or shuts down. Followed by `closed`."""
        assert self.mark_due
        assert self.file is not None
        self._busy = True
        mark = self._due_mark(ts)
        path = self._path
        self._pending = (len(mark), 1, 0)
        return [WalWrite(path, self._tail, [mark]), SyncData(path)]

    def closed(self) -> None:
        """The closing mark is durable."""
        self.wrote()
        self.synced()
        self._marked = self._synced
        self._busy = False

    def ending_mark(self, ts: int) -> Sequence[DiskOp]:
        """Write and sync the last mark of a generation, of a file that was just gone on with. It covers itself, as no
        other mark does: rotations close files as well, so a log that lost its last files would pass for a whole one.
        Room for a mark is left behind it, as behind every batch: should the generation go on, it closes this file.
        """
        assert self.file is not None
        assert not self._busy
        assert self._synced == (self.file.first_frame, self._tail)
        stop = self._tail + MARK_SIZE
        mark = encode_mark(CommitMark(self.file_id, self.file.first_frame, stop), ts=ts)
        grown = [ExtendFile(self._path, stop + MARK_SIZE)] if stop + MARK_SIZE > self._size else []
        return [*grown, WalWrite(self._path, self._tail, [mark]), SyncData(self._path)]

    def _due_mark(self, ts: int) -> bytes:
        if self._synced is None or self._synced == self._marked or self._tail + MARK_SIZE > self._size:
            return b""
        file, offset = self._synced
        mark = encode_mark(CommitMark(self.file_id, file, offset), ts=ts)
        assert len(mark) == MARK_SIZE
        return mark

    # Rotation.

    def _rotate(self, size: int, ts: int) -> list[DiskOp]:
        ops: list[DiskOp] = []
        if self.file is not None:
            old = self._path
            ops.append(SyncData(old))
            self._synced = (self.file.first_frame, self._tail)
            mark = self._due_mark(ts)
            if mark:
                ops += [WalWrite(old, self._tail, [mark]), SyncData(old)]
                self._tail += len(mark)
                self._next_frame += 1
                self._synced = (self.file.first_frame, self._tail)
        ops += self._begin_file(size)
        return ops

    def _begin_file(self, size: int) -> list[DiskOp]:
        ops: list[DiskOp] = []
        if self._reserved < HEADER_SIZE + size + _TWO_MARKS:  # it is the first one, by `room`
            wanted = self.wanted_reserve(size)
            assert wanted is not None
            ops += self.reserve(wanted)
            self.reserved(wanted)
        self.file = WalFileId(self.generation, self.shard, self._next_frame)
        self.file_id = self._entropy.token(8)
        header = WalHeader(
            generation=self.generation, shard=self.shard, first_frame=self._next_frame, file_id=self.file_id
        )
        self._path = wal_path(self.file)
        temporary, path = f"{self.directory}/{NEXT_FILE}", self._path
        ops += [
            WalWrite(temporary, 0, [header.encode()]),
            SyncData(temporary),
            Rename(temporary, path),
            SyncDir(self.directory),
            # In place: the hint is as long as ever, so a full disk cannot fail it and with it the shard.
            WalWrite(f"{self.directory}/{CURRENT_FILE}", 0, [hint(self.file)]),
        ]
        self._size, self._tail, self._reserved = self._reserved, HEADER_SIZE, 0
        return ops

    def begin(self) -> list[DiskOp]:
        """Make the first file of a new shard."""
        assert self.file is None
        return self._begin_file(0)

    def statistics(self) -> dict[str, int]:
        return {
            "size": self._size,
            "tail": self._tail,
            "reserved": self._reserved,
            "next_frame": self._next_frame,
        }
