"""One shard on Trio: a task says which batch comes next, a thread does the system calls (architecture 4).

While a batch is in a system call the next one grows: group commit without a timer. Reserving the next file goes beside
it in another thread, so that 64 MiB of zeros hold up nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Final

import trio

from topics.embed.aio.events import NOBODY, EventLog
from topics.embed.aio.thread import Threads
from topics.engine.batch import WalBatch
from topics.engine.engine import Engine
from topics.host.checkpoint.steps import Blocking, Step, Steps, Tell
from topics.kernel.limits import SHARD_IDLE_MARK_MS
from topics.sched.governor import Governor
from topics.store.steps import drive_async
from topics.store.writer import BatchTiming, ShardWriter, WalMeter

Run = Callable[[Callable[[], None]], Awaitable[None]]
Do = Callable[[Step], Awaitable[None] | None]
_RESERVE_CHECK_S: Final = 1.0
_INLINE_MS: Final = 1.0
_SLOW_FOR_S: Final = 1.0


class ShardTask:
    """`told` is called whenever the engine was told something: tickets may have ended. `propose`: before a batch is
    taken, so that what waited for others to come is in it. `governor`: says how long synced writes wait for each other.
    `observe_sync`: in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        writer: ShardWriter,
        told: Callable[[BatchTiming], None],
        observe_sync: Callable[[float], None],
        threads: Threads,
        log: EventLog = NOBODY,
        propose: Callable[[], None] | None = None,
        governor: Governor | None = None,
    ) -> None:
        self.engine = engine
        self.writer = writer
        self.meter = writer.meter = WalMeter(threads.now_s)
        writer.next_file_settled = self._next_file_settled
        self._told = told
        self._propose = propose
        self._observe_sync = observe_sync
        self._governor = governor
        self._is_shared = False  # the last batch was synced, for several
        self._threads = threads
        self._log = log
        self._do_beside: Do = partial(self._do, threads.run)
        self._syncs = 0
        self._slow_until = 0.0
        self._bell = trio.Event()
        self._closing = False
        self._is_writing = False  # some steps are under way, here or in a thread
        self._taken: WalBatch | None = None  # by `write_now`, for the task
        self._wants_reserve = trio.Event()
        self._took_space = trio.Event()
        self._settled = trio.Event()

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

    def write_now(self) -> None:
        """Write what waits, before this returns, if the task rests and no step blocks. Else the task does.

        Marks are the task's: one is due behind a sync, and syncs are its own.
        """
        if self._is_writing or self._taken is not None or self._awaits_others:
            self.ring()
            return
        batch = self._take()
        if batch is None:
            return
        if self._goes_inline(batch.size) and self._write_here(batch):
            self._took_space.set()
        else:
            self._taken = batch
            self.ring()

    async def make_room(self, needed: int) -> bool:
        """Room for a write that was refused. False if there is no space."""
        try:
            return await drive_async(self.writer.making_room(needed), self._do_beside)
        finally:
            self._took_space.set()

    async def reserve(self) -> bool:
        """Reserve the next file if it is due. False if there is no space, or nothing to do."""
        return await drive_async(self.writer.reserving(), self._do_beside)

    # The task.

    async def run(self) -> None:
        """Until `close`, and then until all is written, synced and marked."""
        thread = self._threads.dedicated(f"topics-wal-{self.writer.shard}")
        do = partial(self._do, thread.run)
        try:
            with trio.CancelScope(shield=True):  # write, sync and publish end together (style 20)
                while not self._closing:
                    await self._gather()
                    self._bell = trio.Event()
                    if not await self._write_one(do):
                        await self._rest(do)
                await self._write_one(do)
                await self._drive(self.writer.closing(), do)
        finally:
            thread.close()

    async def keep_reserve(self) -> None:
        """Until it is cancelled, or the shard has failed: the next file is there before it is needed, and it is known
        whether the disk is low. That is asked behind what takes space, at most once a second, and each second while it
        is low: of an idle server the disk is asked nothing.
        """
        writer, was_low = self.writer, False
        while writer.failed is None:
            self._wants_reserve, self._took_space = trio.Event(), trio.Event()
            if not writer.next_file_changes:
                await self.reserve()
            if writer.disk_low != was_low:
                was_low = writer.disk_low
                self._tell_space()
            with trio.move_on_after(_RESERVE_CHECK_S):
                await self._wants_reserve.wait()
            if not writer.disk_low:
                await self._took_space.wait()

    def _tell_space(self) -> None:
        shard, short = self.writer.shard, self.writer.shortage
        if short is None:
            self._log.info("disk.enough", shard=shard)
        else:
            self._log.warning("disk.low", shard=shard, why=f"writes are refused: {short.message}")

    @property
    def _awaits_others(self) -> bool:
        return self._governor is not None and self._is_shared and self._governor.commit_us > 0

    async def _gather(self) -> None:
        """Under pressure writes that are to be synced wait for others, if there are any (semantics 10)."""
        if not self._awaits_others:
            return
        assert self._governor is not None
        window_us = self._governor.commit_us
        if len(list(islice(self.engine.waiting(self.writer.shard), 2))) == 2:
            await trio.sleep(window_us / 1_000_000)

    async def _rest(self, do: Do) -> None:
        """Wait for work; a shard that has rested gets its closing mark."""
        writer = self.writer
        while not self._bell.is_set():
            if not (writer.wal.mark_due and writer.failed is None):
                await self._bell.wait()
                return
            with trio.move_on_after(SHARD_IDLE_MARK_MS / 1000):
                await self._bell.wait()
                return
            if writer.wants_mark:
                await self._drive(writer.marking(), do)

    async def _write_one(self, do: Do) -> bool:
        """One batch, all its stages. False if there was none."""
        writer = self.writer
        batch, self._taken = self._taken or self._take(), None
        if batch is None:
            return False
        file = writer.wal.file
        if not (self._goes_inline(batch.size) and self._write_here(batch)):
            await self._drive(writer.writing(batch), do)
        self._took_space.set()
        if writer.wal.file is not file:
            self._wants_reserve.set()
        return True

    def _take(self) -> WalBatch | None:
        if self._propose is not None:
            self._propose()
        batch = self.engine.take_batch(self.writer.shard)
        if batch is not None:
            self._is_shared = batch.sync and len(batch.entries) > 1
        return batch

    async def _drive(self, steps: Steps, do: Do) -> None:
        self._is_writing = True
        try:
            await drive_async(steps, do)
        finally:
            self._is_writing = False

    def _write_here(self, batch: WalBatch) -> bool:
        """Write it before this returns. False, and nothing is done, if a step of it blocks."""
        self._is_writing = True
        try:
            if not self.writer.write_through(batch, _called):
                return False
            self._note_slow_write()
            self._tell()
        finally:
            self._is_writing = False
        return True

    def _do(self, run: Run, step: Step) -> Awaitable[None] | None:
        """`run`: where what blocks goes, unless it is over sooner here."""
        if isinstance(step, Blocking):
            if step.cached_bytes is None or not self._goes_inline(step.cached_bytes):
                return run(step.call)
            step.call()
            self._note_slow_write()
        elif isinstance(step, Tell):
            self._tell()
        else:
            return self._settled.wait()
        return None

    def _tell(self) -> None:
        if (failed := self.writer.failed) is not None:
            self._log.error("wal.failed", shard=self.writer.shard, error=str(failed.__cause__))
        meter = self.meter
        if meter.syncs != self._syncs:
            self._syncs = meter.syncs
            self._observe_sync(meter.took[1] / 1000)
        self._told(meter.took)

    def _goes_inline(self, cached_bytes: int) -> bool:
        """A small write that no sync follows ends in the page cache, sooner than a thread would begin with it.

        Unless the system makes writers wait: then the next ones go to the thread for a while (decision 11).
        """
        return cached_bytes <= self._threads.inline_bytes_max and trio.current_time() >= self._slow_until

    def _note_slow_write(self) -> None:
        if self.meter.took[0] > _INLINE_MS:
            self._slow_until = trio.current_time() + _SLOW_FOR_S

    def _next_file_settled(self) -> None:
        """Whoever waits for the next file looks again."""
        self._settled.set()
        self._settled = trio.Event()


def _called(call: Callable[[], None]) -> None:
    call()
