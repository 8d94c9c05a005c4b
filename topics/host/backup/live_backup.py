"""A backup of a store that is being used (storage 7).

    cut: the state as a value, and where each shard's log is      (at most one sync of pause, as a checkpoint's)
    pin: whatever that state needs stays as it is
    sync the log up to the cut                                    from here on the steps are over
    contents: which files, how long                               beside writes and checkpoints
    read them, to a directory or a stream; release the pin

Every record that was acknowledged before the cut is in it and nothing that came later, in any shard: the cut is taken
when nothing is in flight. The result is a data directory: recovery, fsck and Spark read it as any other.

A driver carries out `steps` as it does a checkpoint's; the rest is for any thread. Nothing of a backup can make the
store read-only: an error ends the backup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import msgspec
import xxhash

from topics.codec.manifest import FileEntry, Written
from topics.engine.commands import Sync
from topics.engine.image import Snapshot
from topics.host.backup.contents import BackupFile, Contents, contents_of
from topics.host.backup.destination import finish_backup, make_parents
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.pins import Pin
from topics.host.checkpoint.steps import Propose, ResumeBatches, Steps
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import read_format
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk

Link = Callable[[str], bool]
Tell = Callable[[int], None]


class Backup:
    """One backup of an open store, a context manager: at its end nothing is held back any more.

    `cold`: the cold tier, if what is there is to be copied too.
    """

    def __init__(self, checkpointer: Checkpointer, *, cold: SegmentStore | None = None) -> None:
        self._checkpointer = checkpointer
        self._cold = cold
        self._snapshot: Snapshot | None = None
        self._pin: Pin | None = None

    def steps(self) -> Steps:
        """Cut, pin, sync.

        Raises:
            Rejected: a shard has failed, or too many backups are being taken.
        """
        assert self._snapshot is None
        image, places = yield from self._checkpointer.cut()
        self._snapshot = Snapshot(image, places)
        self._pin = self._checkpointer.pins.add(self._snapshot)
        yield ResumeBatches()
        for writer in self._checkpointer.writers:
            yield Propose(Sync(shard=writer.shard))

    def contents(self) -> Contents:
        """What it is made of. Blocks. Once: the state is given away.

        Raises:
            Corrupt: a file of the log is not there, or the store cannot be read.
        """
        snapshot, self._snapshot = self._snapshot, None
        assert snapshot is not None, "its steps come first"
        disk = self._checkpointer.disk
        try:
            form = read_format(disk, "the data directory")
            assert form is not None
            return contents_of(disk, snapshot, form, cold=self._cold)
        except OSError as error:  # so that an OSError of a backup is one of where it goes
            raise Corrupt(f"the store cannot be read: {error}; see the disk, and try again") from error

    def close(self) -> None:
        """Let go of what it needed. Twice is fine."""
        self._snapshot = None
        if self._pin is not None:
            self._checkpointer.pins.release(self._pin)
            self._pin = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()


class Summing:
    """The bytes of a part on their way, and what the manifest says of them then."""

    def __init__(self, part: BackupFile) -> None:
        self._part = part
        self._sum = xxhash.xxh3_64()
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._part.pieces()
        while True:
            try:
                piece = next(pieces, None)
            except OSError as error:  # as in `Backup.contents`
                raise Corrupt(f"{self._part.path} cannot be read: {error.strerror or error}") from error
            if piece is None:
                return
            self._sum.update(piece)
            self._size += len(piece)
            yield piece

    def entry(self) -> FileEntry:
        """Once all of it was read.

        Raises:
            Corrupt: it is not as long as it was going to be.
        """
        if self._size != self._part.size:
            raise Corrupt(f"{self._part.path}: {self._size} bytes instead of {self._part.size}", field="size")
        return FileEntry(self._part.path, self._size, f"{self._sum.intdigest():016x}")


def write_backup(
    contents: Contents, target: Disk, *, link: Link | None = None, tell: Tell | None = None
) -> Written:
    """Write a backup into an empty directory, its manifest last, all of it durable. Blocks.

    `link`: give the source's file of that path a second name in the target, False if it cannot be. `tell` is told the
    bytes that are done.

    Raises:
        OSError, Corrupt: it is broken off, and what is there is no backup.
    """
    link, tell = link or _link_nothing, tell or _tell_nobody
    done = linked = 0
    entries: list[FileEntry] = []
    made: dict[str, None] = {"": None}
    while contents.parts:
        part = contents.parts.popleft()  # its bytes are let go of when it is written
        make_parents(target, part.path, made)
        summing = Summing(part)
        is_linked = part.linkable and link(part.path)
        at = 0
        if not is_linked:
            target.create(part.path, 0)
        for piece in summing:
            if not is_linked:
                target.write(part.path, at, [piece])
            at += len(piece)
            tell(done + at)
        if not is_linked:
            target.sync_data(part.path)
        entries.append(summing.entry())
        done += at
        linked += at if is_linked else 0
    manifest = msgspec.structs.replace(contents.manifest, files=entries)
    finish_backup(target, manifest, made)
    return Written(manifest=manifest, linked=linked)


def _link_nothing(path: str) -> bool:
    assert path
    return False


def _tell_nobody(done: int) -> None:
    assert done >= 0
