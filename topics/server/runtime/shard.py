"""One shard's writer: a Trio task owns the order of things, a thread does the system calls (architecture 4).

The task takes a batch, has it written, tells the engine, has it synced, tells the engine. While a batch is in a system
call the next one grows: group commit without a timer. Reserving the next file goes beside it in another thread, so that
64 MiB of zeros hold up nobody; the file that is being made is never begun at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from topics.engine.batch import WalBatch
from topics.engine.engine import Engine
from topics.host.walfile import PlannedWrite
from topics.host.writer import ShardWriter
from topics.kernel.limits import SHARD_IDLE_MARK_MS
from topics.server.runtime.log import log
from topics.server.runtime.thread import Calls, Threads

_RESERVE_CHECK_S: Final = 1.0

Took = tuple[float, float]  # ms of the write and of the sync of a batch
_INLINE_S: Final = 0.001
_SLOW_FOR_S: Final = 1.0
NOTHING_TOOK: Final[Took] = (0.0, 0.0)


@attrs.define
class WalCounts:
    """What a shard has done since the start."""

    batches: int = 0
    frames: int = 0
    bytes: int = 0
    syncs: int = 0


class ShardTask:
    """`told` is called whenever the engine was told something: tickets may have ended. `observe_sync`: in seconds."""

    def __init__(
        self,
        engine: Engine,
        writer: ShardWriter,
        told: Callable[[Took], None],
        observe_sync: Callable[[float], None],
        threads: Threads,
    ) -> None:
        self.engine = engine
        self.writer = writer
        self.counts = WalCounts()
        self._told = told
        self._observe_sync = observe_sync
        self._threads = threads
        self._took: Took = NOTHING_TOOK
        self._slow_until = 0.0
        self._bell = trio.Event()
        self._closing = False
        self._wants_reserve = trio.Event()
        self._reserving: trio.Event | None = None
        self._rotating: trio.Event | None = None

    # From outside.

    @property
    def rung(self) -> bool:
        """True if the task will look for work without being rung again."""
        return self._bell.is_set()

    def ring(self) -> None:
        """There may be something to write."""
        self._bell.set()

    def close(self) -> None:
        """Write what is left, sync, mark, end."""
        self._closing = True
        self.ring()
        self._wants_reserve.set()

    @property
    def next_file_changes(self) -> bool:
        return self._reserving is not None or self._rotating is not None

    async def make_room(self, needed: int) -> bool:
        """Wait for a reserve on its way, or take a larger one for this write. False if there is no space."""
        if self.next_file_changes:
            await self._wait_next_file()
            return True
        return await self.reserve(needed) or not self.writer.disk_low

    async def reserve(self, needed: int = 0) -> bool:
        """Reserve the next file if it is due. False if there is no space, or nothing to do."""
        assert not self.next_file_changes
        self._reserving = trio.Event()
        try:
            writer = self.writer
            free_bytes = await self._threads.run(writer.free_bytes)
            size = writer.wanted_reserve(free_bytes, needed)
            if size is None:
                return False
            error = await self._threads.run(partial(writer.reserve, size))
            return writer.end_reserve(size, error)
        finally:
            self._reserving.set()
            self._reserving = None

    # The task.

    async def run(self) -> None:
        """Until `close`, and then until all is written, synced and marked."""
        thread = self._threads.dedicated(f"topics-wal-{self.writer.shard}")
        try:
            with trio.CancelScope(shield=True):  # write, sync and publish end together (style 20)
                while not self._closing:
                    self._bell = trio.Event()
                    if not await self._write_one(thread):
                        await self._rest(thread)
                await self._finish(thread)
        finally:
            thread.close()

    async def keep_reserve(self) -> None:
        """Until `close`: the next file is there before it is needed, and a disk that was low is looked at again."""
        while not self._closing:
            self._wants_reserve = trio.Event()
            if not self.next_file_changes and self.writer.failed is None:
                try:
                    await self.reserve()
                except OSError as error:
                    log.warning("wal.reserve_failed", shard=self.writer.shard, error=str(error))
            with trio.move_on_after(_RESERVE_CHECK_S):
                await self._wants_reserve.wait()

    async def _rest(self, thread: Calls) -> None:
        """Wait for work; a shard that has rested gets its closing mark."""
        wal, writer = self.writer.wal, self.writer
        while not self._bell.is_set():
            if not (wal.mark_due and writer.failed is None):
                await self._bell.wait()
                return
            with trio.move_on_after(SHARD_IDLE_MARK_MS / 1000):
                await self._bell.wait()
                return
            if self.engine.rested(writer.shard, SHARD_IDLE_MARK_MS):
                await self._mark(thread)

    async def _finish(self, thread: Calls) -> None:
        if self.writer.failed is not None:
            return
        self.engine.request_sync(self.writer.shard)
        while await self._write_one(thread):
            pass
        await self._mark(thread)

    async def _mark(self, thread: Calls) -> None:
        if self.writer.failed is None and self.writer.wal.mark_due:
            ops = self.writer.begin_mark()
            self.writer.end_mark(await thread.run(partial(self.writer.carry_out, ops)))
            self._told(self._took)

    async def _write_one(self, thread: Calls) -> bool:
        """One batch, all its stages. False if there was none."""
        if self.writer.failed is not None:
            return False
        batch = self.engine.take_batch(self.writer.shard)
        if batch is None:
            return False
        rotates = self.writer.wal.rotates(batch)
        while rotates and self._reserving is not None:
            await self._reserving.wait()  # the file it goes into is being made
        plan = self.writer.place(batch)
        if rotates:
            self._rotating = trio.Event()
        try:
            error = await self._carry_out(thread, batch, plan)
        finally:
            if self._rotating is not None:
                self._rotating.set()
                self._rotating = None
                self._wants_reserve.set()
        if error is not None:
            log.error("wal.failed", shard=self.writer.shard, error=str(error))
            self.writer.fail(batch, error)
        self._told(self._took)
        return True

    async def _carry_out(self, thread: Calls, batch: WalBatch, plan: PlannedWrite) -> OSError | None:
        writer, counts, now_s = self.writer, self.counts, self._threads.now_s
        if batch.silent:
            wrote, error, write_s, sync_s = await thread.run(partial(_write_and_sync, writer, plan, now_s))
        elif self._goes_inline(batch):
            error, write_s = _timed(writer.write, plan, now_s)
            if write_s > _INLINE_S:
                self._slow_until = trio.current_time() + _SLOW_FOR_S
            wrote, sync_s = error is None, 0.0
        else:
            error, write_s = await thread.run(partial(_timed, writer.write, plan, now_s))
            wrote, sync_s = error is None, 0.0
        self._took = (write_s * 1000, 0.0)
        if not wrote:
            return error
        counts.batches += 1
        counts.frames += batch.frames
        counts.bytes += batch.size
        self._took = (write_s * 1000, sync_s * 1000)
        writer.after_write(batch, plan)
        if not batch.silent:
            self._told(self._took)
            if batch.sync:
                error, sync_s = await thread.run(partial(_timed, writer.sync, plan, now_s))
                self._took = (write_s * 1000, sync_s * 1000)
        if batch.sync and error is None:
            counts.syncs += 1
            self._observe_sync(sync_s)
            writer.after_sync(batch, plan)
        return error

    def _goes_inline(self, batch: WalBatch) -> bool:
        """A small write that no sync follows ends in the page cache, sooner than a thread would begin with it.

        Unless the system makes writers wait: then the next ones go to the thread for a while (decision 11).
        """
        return (
            not batch.sync
            and self._rotating is None
            and batch.size <= self._threads.inline_bytes_max
            and trio.current_time() >= self._slow_until
        )

    async def _wait_next_file(self) -> None:
        for event in (self._reserving, self._rotating):
            if event is not None:
                await event.wait()


def _timed(
    step: Callable[[PlannedWrite], OSError | None], plan: PlannedWrite, now_s: Callable[[], float]
) -> tuple[OSError | None, float]:
    started = now_s()
    error = step(plan)
    return error, now_s() - started


def _write_and_sync(
    writer: ShardWriter, plan: PlannedWrite, now_s: Callable[[], float]
) -> tuple[bool, OSError | None, float, float]:
    error, write_s = _timed(writer.write, plan, now_s)
    if error is not None:
        return False, error, write_s, 0.0
    error, sync_s = _timed(writer.sync, plan, now_s)
    return True, error, write_s, sync_s
