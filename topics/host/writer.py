"""Carrying one shard's batches to the disk, blocking. Shared by the embedded store's driver and the simulator.

Any error of a write or sync fails the batch and makes the shard read-only: it is never papered over and never tried
again on the same pages (storage 3). Before anybody hears of it the boot id leaves LOCK, for the kernel may drop what
was written and not synced, and the next start must not take that for the mere end of a process (storage 4).

The steps of a batch are separate methods, so that a driver may hold its lock around the engine's calls and let go of it
around the disk's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topics.engine.batch import Shortage, WalBatch
from topics.engine.engine import Engine
from topics.host.refusals import told
from topics.host.tailcache import TailCache
from topics.host.walfile import DiskOp, PlannedWrite, WalFile, Write, run
from topics.kernel.errors import Fatal
from topics.kernel.ports import Disk


class Free(NamedTuple):
    """Free bytes where the log lies, and the fewest where segments and snapshots do, and in which folder that is; often
    it is one file system.
    """

    log: int
    data: int
    folder: str = ""


class ShardWriter:
    """One shard's engine side, file and disk. `where`: the directory's name in messages. `tail_bytes`: how much of what
    it wrote last stays in memory. `forget_boot`: see `DirectoryLock`.
    """

    def __init__(
        self,
        engine: Engine,
        wal: WalFile,
        disk: Disk,
        *,
        where: str,
        min_free_bytes: int,
        tail_bytes: int = 0,
        forget_boot: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self.wal = wal
        self.disk = disk
        self.shard = wal.shard
        self.tail = TailCache(tail_bytes)
        self.failed: Fatal | None = None
        self.disk_low = False
        self.lock_error: OSError | None = None  # LOCK could not be told that the shard has failed
        self._where = where
        self._shortage: Shortage | None = None
        self._min_free_bytes = min_free_bytes
        self._free = Free(0, 0)
        self._closing_mark: Sequence[DiskOp] = ()
        self._forget_boot = forget_boot

    @property
    def wants_keeper(self) -> bool:
        """True if a mark will be due once the shard rests, or the next file is to be reserved."""
        return self.wal.mark_due or (self.wal.lacks_reserve and not self.disk_low)

    # A batch in one go.

    def drain(self) -> None:
        """Write until nothing is left."""
        while self.step():
            pass

    def step(self) -> bool:
        """One batch, all its stages. False if there was none."""
        batch = self.engine.take_batch(self.shard)
        if batch is None:
            return False
        plan = self.place(batch)
        error = self.write(plan)
        if error is None:
            self.after_write(batch, plan)
            if batch.sync:
                error = self.sync(plan)
                if error is None:
                    self.after_sync(batch, plan)
        if error is not None:
            self.fail(batch, error)
        return True

    # Its stages. `write` and `sync` are the system calls; the others are the engine's and belong under a lock.

    def place(self, batch: WalBatch) -> PlannedWrite:
        return self.wal.place(batch, batch.ts)

    def write(self, plan: PlannedWrite) -> OSError | None:
        """Hand the batch to the operating system. An error is a value: the caller fails the batch."""
        return self.carry_out(plan.write)

    def sync(self, plan: PlannedWrite) -> OSError | None:
        return self.carry_out(plan.sync)

    def write_and_sync(self, plan: PlannedWrite) -> tuple[bool, OSError | None]:
        """Both in a row, for a silent batch: whether the write was done, and the error of what was not."""
        error = self.carry_out(plan.write)
        if error is not None:
            return False, error
        return True, self.carry_out(plan.sync)

    def after_write(self, batch: WalBatch, plan: PlannedWrite) -> None:
        self.wal.wrote()
        if batch.size:
            self._note_written(plan.write[-1], plan.at.offset + batch.size)
        self.tell_space()
        self.engine.written(batch, plan.at)
        if not batch.sync:
            self.wal.done()

    def after_sync(self, batch: WalBatch, plan: PlannedWrite) -> None:
        self.wal.synced()
        self.wal.done()
        self.engine.synced(batch, plan.at)

    def fail(self, batch: WalBatch, error: OSError) -> None:
        """The shard ends here until the next recovery."""
        self.failed = self._fatal(error)
        self.engine.failed(batch, self.failed)

    # Marks and space.

    def mark(self) -> None:
        """The closing mark of an idle shard, if one is due."""
        if self.failed is None and self.wal.mark_due:
            self.end_mark(self.carry_out(self.begin_mark()))

    def begin_mark(self) -> Sequence[DiskOp]:
        self._closing_mark = self.wal.closing_mark(self.engine.now_ms())
        return self._closing_mark

    def end_mark(self, error: OSError | None) -> None:
        if error is None:
            self.wal.closed()
            self._note_written(self._closing_mark[0], self.wal.tail[0])
            self.tell_space()
        else:
            self.failed = self._fatal(error)
            self.engine.shard_failed(self.shard, self.failed)

    def keep_reserve(self, needed: int = 0) -> bool:
        """Reserve the next file ahead of need, for one write of `needed` bytes too. False if there is no space."""
        size = self.wanted_reserve(self.free_bytes(), needed)
        if size is None:
            return not self.disk_low
        return self.end_reserve(size, self.reserve(size))

    def reserve(self, size: int) -> OSError | None:
        """System calls: make the next file. What fails here is not of the log yet, and ends nothing."""
        return _tried(self.disk, self.wal.reserve(size))

    def free_bytes(self) -> Free:
        """Free space, the last known if a disk will not say. System calls."""
        with suppress(OSError):
            data, folder = min((self.disk.free_bytes(folder), folder) for folder in ("", "topics"))
            self._free = Free(self.disk.free_bytes(self.wal.directory), data, folder)
        return self._free

    def wanted_reserve(self, free: Free, needed: int = 0) -> int | None:
        """Size to reserve the next file with; None if there is nothing to do, or no space to do it in.

        On a low disk, what deletes, watermarks, raises and marks need is reserved all the same. That of the segments
        counts, too: without room there no checkpoint gives any space back.
        """
        size = self.wal.wanted_reserve(needed)
        self._shortage = self._too_little(free, size or 0)
        self.disk_low = self._shortage is not None
        self.tell_space()
        if not self.disk_low:
            return size
        least = self.wal.least_reserve()
        return least if least is not None and least <= free.log else None

    def end_reserve(self, size: int, error: OSError | None) -> bool:
        """The reserve is there, or it could not be had: then appends are refused until it can (storage 3)."""
        if error is None:
            self.wal.reserved(size)
        else:
            self.disk_low = True
            self._shortage = self._shortage or self._not_reserved(size, error)
        self.tell_space()
        return error is None

    def tell_space(self) -> None:
        """Appends need more than the reserve, so on a low disk they are refused and deletes are not (storage 3)."""
        room = self.wal.room()
        if self.disk_low:
            room = min(room, self.engine.limits.wal_reserve)
        self.engine.space(self.shard, room, self._shortage)

    def _too_little(self, free: Free, size: int) -> Shortage | None:
        """What lacks for a next file of `size` bytes, and beside it."""
        floor = self._min_free_bytes
        if free.log < floor + size:
            folder, found, needed = self.wal.directory, free.log, floor + size
            what = (
                f"{size} for the next log file, and min_free_bytes {floor} beside it"
                if size
                else "min_free_bytes"
            )
            how = "free some, or lower min_free_bytes or wal_file_max"
        elif free.data < floor:
            folder, found, needed, what = free.folder, free.data, floor, "min_free_bytes"
            how = "free some, or lower min_free_bytes"
        else:
            return None
        path = f"{self._where}/{folder}".rstrip("/")
        return Shortage(
            f"{path} has not enough disk space: {found} bytes are free, {needed} are needed ({what}): {how}",
            {"path": path, "free_bytes": found, "needed_free_bytes": needed, "min_free_bytes": floor},
        )

    def _not_reserved(self, size: int, error: OSError) -> Shortage:
        why = told(error, Path(self._where))
        return Shortage(
            f"the next log file, of {size} bytes, cannot be made: {why}",
            {"path": f"{self._where}/{self.wal.directory}", "free_bytes": self._free.log, "file_bytes": size},
        )

    def _note_written(self, written: DiskOp, stop: int) -> None:
        """A write up to `stop` has returned: before that nobody could know of its bytes."""
        assert isinstance(written, Write)
        assert self.wal.file is not None
        self.tail.add(self.wal.file, written.offset, written.chunks, stop - written.offset)

    def _fatal(self, error: OSError) -> Fatal:
        message = f"writing shard {self.shard} failed: {error}"
        if self.lock_error is not None:
            message += (
                f"; nor could LOCK be written ({self.lock_error}): restart the machine before you open the store"
                " again, or nobody may miss what the disk has lost"
            )
        fatal = Fatal(message, shard=self.shard)
        fatal.__cause__ = error
        return fatal

    def carry_out(self, ops: Sequence[DiskOp]) -> OSError | None:
        """System calls of a batch or a mark. An error is a value: the caller ends the shard."""
        error = _tried(self.disk, ops)
        if error is not None and self._forget_boot is not None:
            try:
                self._forget_boot()
            except OSError as lock_error:
                self.lock_error = lock_error
        return error


def _tried(disk: Disk, ops: Sequence[DiskOp]) -> OSError | None:
    try:
        run(disk, ops)
    except OSError as error:
        return error
    return None
