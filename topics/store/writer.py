"""One shard's log being written: the order of things, once, whoever carries it out (architecture 3).

    batch    place, write, tell the engine, sync, tell the engine
    mark     write and sync one, when the shard rests or ends
    reserve  look for space, make the next file; never while a batch begins that file

Each is a generator of steps, of which a driver holds its lock around the engine's side and lets go of it in `Blocking`.
Between batches, which one comes next is the driver's to say: at most one generator that writes is under way a shard.

Any error of a write or sync fails the batch and makes the shard read-only: it is never papered over and never tried
again on the same pages (storage 3). Before anybody hears of it the boot id leaves LOCK, for the kernel may drop what
was written and not synced, and the next start must not take that for the mere end of a process (storage 4).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from topics.engine.batch import Shortage, WalBatch
from topics.engine.engine import Engine
from topics.host.checkpoint.steps import Blocking, Step, Steps, Tell, WaitForBatch
from topics.host.system.refusals import refusal_line
from topics.host.wal.tailcache import TailCache
from topics.host.wal.walfile import DiskOp, PlannedWrite, WalFile, WalWrite, carry_out_ops
from topics.kernel.errors import Fatal
from topics.kernel.limits import SHARD_IDLE_MARK_MS
from topics.kernel.ports import Disk
from topics.store.steps import drive

BatchTiming = tuple[float, float]  # ms of the write and of the sync of a batch
NOTHING_TOOK: Final[BatchTiming] = (0.0, 0.0)
_TELL: Final = Tell()
_WAIT: Final = WaitForBatch()


class Free(NamedTuple):
    """Free bytes where the log lies, and the fewest where segments and snapshots do, and in which folder that is; often
    it is one file system.
    """

    log: int
    data: int
    folder: str = ""


@attrs.define
class WalMeter:
    """What a shard has done since the start, and what the last batch took. `now_s`: by what that is measured."""

    now_s: Callable[[], float] = time.perf_counter
    batches: int = 0
    frames: int = 0
    bytes: int = 0
    syncs: int = 0
    took: BatchTiming = NOTHING_TOOK


class ShardWriter:
    """One shard's engine side, file and disk. `where`: the directory's name in messages. `tail_bytes`: how much of what
    it wrote last stays in memory. `forget_boot`: see `DirectoryLock`.

    A driver sets `meter`, if somebody is to be told, and `next_file_settled`, which is called when the next file
    changes no more: who waits for it looks again.
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
        self.meter: WalMeter | None = None
        self.next_file_settled: Callable[[], None] = _nobody
        self.next_file_changes = False  # it is being made, or begun: never both at once, it is one file
        self._settled = 0
        self._where = where
        self.shortage: Shortage | None = None
        self._min_free_bytes = min_free_bytes
        self._free = Free(0, 0)
        self._forget_boot = forget_boot

    @property
    def wants_keeper(self) -> bool:
        """True if a mark will be due once the shard rests, or the next file is to be reserved."""
        return self.wal.mark_due or (not self.wal.reserved_bytes and not self.disk_low)

    @property
    def wants_mark(self) -> bool:
        """True if the shard has rested for so long that its closing mark is due."""
        return (
            self.failed is None and self.wal.mark_due and self.engine.rested(self.shard, SHARD_IDLE_MARK_MS)
        )

    # The steps of what there is to do.

    def writing(self, batch: WalBatch, *, apart: bool = False) -> Steps:
        """A batch that was just taken, all its stages. What fails ends the shard until the next recovery.

        `apart`: its write and its sync are two steps even where nothing is told between them.
        """
        begins_file = self.wal.rotates(batch)
        while begins_file and self.next_file_changes:
            yield _WAIT  # it goes into the file that is being made
        if begins_file:
            self.next_file_changes = True
        plan = self.place(batch, begins_file=begins_file)
        try:
            if batch.silent and not apart:
                yield Blocking(partial(self._write_and_sync, plan))
                self._after_write(batch, plan)
            else:
                cached_bytes = None if batch.sync or begins_file else batch.size
                yield Blocking(partial(self.write, plan), cached_bytes)
                self._after_write(batch, plan)
                if batch.sync:
                    yield _TELL
                    yield Blocking(partial(self.sync, plan))
            if batch.sync:
                self._after_sync(batch, plan)
        except OSError as error:
            self._fail(batch, error)
        finally:
            if begins_file:
                self._settle_next_file()
        yield _TELL

    def write_through(self, batch: WalBatch, unlocked: Callable[[Callable[[], None]], None]) -> bool:
        """As `writing`, of a batch that ends in the page cache and in the present file, without a step: most are such,
        and one of one record is short. `unlocked` calls what blocks. False, and nothing is done, if it is another.
        """
        if batch.sync or self.wal.rotates(batch):
            return False
        plan = self.place(batch)
        try:
            unlocked(partial(self.write, plan))
            self._after_write(batch, plan)
        except OSError as error:
            self._fail(batch, error)
        return True

    def marking(self) -> Steps:
        """The closing mark of a shard that rests, if one is due."""
        if self.failed is not None or not self.wal.mark_due:
            return
        ops = self.wal.closing_mark(self.engine.now_ms())
        try:
            yield Blocking(partial(self._carry_out, ops))
        except OSError as error:
            self.failed = self._fatal(error)
            self.engine.shard_failed(self.shard, self.failed)
        else:
            self.wal.closed()
            self._note_written(ops[0], self.wal.tail[0])
            self._tell_space()
        yield _TELL

    def reserving(self, needed: int = 0) -> Generator[Step, None, bool]:
        """Make the next file ahead of need, for one write of `needed` bytes too. False if there is no space for it, or
        nothing to do. What fails here is not of the log yet, and ends nothing.
        """
        assert not self.next_file_changes
        self.next_file_changes = True
        try:
            yield Blocking(self._look_for_space)
            size = self._wanted_reserve(needed)
            if size is None:
                return False
            try:
                yield Blocking(partial(carry_out_ops, self.disk, self.wal.reserve(size)))
            except OSError as error:  # appends are refused until it can be had (storage 3)
                self.disk_low = True
                self.shortage = self.shortage or self._not_reserved(size, error)
                return False
            self.wal.reserved(size)
            return True
        finally:
            self._tell_space()
            self._settle_next_file()

    def making_room(self, needed: int) -> Generator[Step, None, bool]:
        """Wait for a next file on its way, or make a larger one for a write that was refused. False if there is no
        space.
        """
        if not self.next_file_changes:
            return (yield from self.reserving(needed)) or not self.disk_low
        before = self._settled  # the next one may be on its way before this waiter's turn comes
        while self._settled == before:
            yield _WAIT
        return True

    def closing(self) -> Steps:
        """The end: all that waits is written, synced and marked."""
        if self.failed is not None:
            return
        self.engine.request_sync(self.shard)
        while (batch := self.engine.take_batch(self.shard)) is not None:
            yield from self.writing(batch)
        yield from self.marking()

    # The same, by whoever is alone with the store.

    def drain(self) -> None:
        """Write until nothing is left."""
        while (batch := self.engine.take_batch(self.shard)) is not None:
            drive(self.writing(batch), _do_alone)

    def mark(self) -> None:
        """As `marking`."""
        drive(self.marking(), _do_alone)

    def keep_reserve(self, needed: int = 0) -> bool:
        """As `making_room`."""
        return drive(self.making_room(needed), _do_alone)

    def close(self) -> None:
        """As `closing`."""
        drive(self.closing(), _do_alone)

    # A batch. `write` and `sync` are system calls.

    def place(self, batch: WalBatch, *, begins_file: bool = False) -> PlannedWrite:
        return self.wal.place(batch, batch.ts, begins_file=begins_file)

    def write(self, plan: PlannedWrite) -> None:
        """Hand the batch to the operating system."""
        if (meter := self.meter) is None:
            self._carry_out(plan.write)
            return
        started = meter.now_s()
        self._carry_out(plan.write)
        meter.took = ((meter.now_s() - started) * 1000, 0.0)

    def sync(self, plan: PlannedWrite) -> None:
        if (meter := self.meter) is None:
            self._carry_out(plan.sync)
            return
        started = meter.now_s()
        self._carry_out(plan.sync)
        meter.took = (meter.took[0], (meter.now_s() - started) * 1000)

    def _write_and_sync(self, plan: PlannedWrite) -> None:
        self.write(plan)
        self.sync(plan)

    def _after_write(self, batch: WalBatch, plan: PlannedWrite) -> None:
        if (meter := self.meter) is not None:
            meter.batches += 1
            meter.frames += batch.frames
            meter.bytes += batch.size
        self.wal.wrote()
        if batch.size:
            self._note_written(plan.write[-1], plan.at.offset + batch.size)
        self._tell_space()
        self.engine.written(batch, plan.at)
        if not batch.sync:
            self.wal.done()

    def _after_sync(self, batch: WalBatch, plan: PlannedWrite) -> None:
        if self.meter is not None:
            self.meter.syncs += 1
        self.wal.synced()
        self.wal.done()
        self.engine.synced(batch, plan.at)

    def _note_written(self, written: DiskOp, stop: int) -> None:
        """A write up to `stop` has returned: before that nobody could know of its bytes."""
        assert isinstance(written, WalWrite)
        assert self.wal.file is not None
        self.tail.add(self.wal.file, written.offset, written.chunks, stop - written.offset)

    def _carry_out(self, ops: Sequence[DiskOp]) -> None:
        """System calls of a batch or a mark. An error ends the shard, so LOCK is told first."""
        try:
            for op in ops:
                op.run(self.disk)
        except OSError:
            if self._forget_boot is not None:
                try:
                    self._forget_boot()
                except OSError as lock_error:
                    self.lock_error = lock_error
            raise

    def _fail(self, batch: WalBatch, error: OSError) -> None:
        self.failed = self._fatal(error)
        self.engine.failed(batch, self.failed)

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

    # Space.

    @property
    def free_bytes(self) -> int:
        """Where the log or the segments lie, whichever has less; as it was when a file was last made."""
        return min(self._free.log, self._free.data)

    def _look_for_space(self) -> None:
        """Free space, the last known if a disk will not say. System calls."""
        with suppress(OSError):
            data, folder = min((self.disk.free_bytes(folder), folder) for folder in ("", "topics"))
            self._free = Free(self.disk.free_bytes(self.wal.directory), data, folder)

    def _wanted_reserve(self, needed: int) -> int | None:
        """Size to reserve the next file with; None if there is nothing to do, or no space to do it in.

        On a low disk, what deletes, watermarks, raises and marks need is reserved all the same. That of the segments
        counts, too: without room there no checkpoint gives any space back.
        """
        size = self.wal.wanted_reserve(needed, self._free.log - self._min_free_bytes)
        reserved = self.wal.reserved_bytes  # the disk counts them as taken
        self.shortage = self._too_little(self._free, size - reserved if size else 0)
        self.disk_low = self.shortage is not None
        self._tell_space()
        if not self.disk_low:
            return size
        least = self.wal.least_reserve()
        return least if least is not None and least - reserved <= self._free.log else None

    def _settle_next_file(self) -> None:
        self.next_file_changes = False
        self._settled += 1
        self.next_file_settled()

    def _tell_space(self) -> None:
        """Appends need more than the reserve, so on a low disk they are refused and deletes are not (storage 3)."""
        room = self.wal.room()
        if self.disk_low:
            room = min(room, self.engine.limits.wal_reserve)
        self.engine.space(self.shard, room, self.shortage)

    def _too_little(self, free: Free, more: int) -> Shortage | None:
        """What lacks for a next file that takes `more` bytes, and beside it."""
        floor = self._min_free_bytes
        if free.log < floor + more:
            folder, found, needed = self.wal.directory, free.log, floor + more
            what = (
                f"{more} for the next log file, and min_free_bytes {floor} beside it"
                if more
                else "min_free_bytes"
            )
        elif free.data < floor:
            folder, found, needed, what = free.folder, free.data, floor, "min_free_bytes"
        else:
            return None
        path = f"{self._where}/{folder}".rstrip("/")
        return Shortage(
            f"{path} has not enough disk space: {found} bytes are free, {needed} are needed ({what}): free some, or"
            " lower min_free_bytes",
            {"path": path, "free_bytes": found, "needed_free_bytes": needed, "min_free_bytes": floor},
        )

    def _not_reserved(self, size: int, error: OSError) -> Shortage:
        why = refusal_line(error, Path(self._where))
        return Shortage(
            f"the next log file, of {size} bytes, cannot be made: {why}",
            {"path": f"{self._where}/{self.wal.directory}", "free_bytes": self._free.log, "file_bytes": size},
        )


def _do_alone(step: Step) -> None:
    """Nobody else is told, and nobody else changes the next file."""
    assert not isinstance(step, WaitForBatch)
    if isinstance(step, Blocking):
        step.call()


def _nobody() -> None:
    """Nobody waits for the next file."""
