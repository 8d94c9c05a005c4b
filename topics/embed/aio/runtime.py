"""The engine driven by Trio: the one place that touches it, in a server as in `open_trio` (architecture 3 and 4).

Everything runs on the loop's thread, so no lock is needed: `submit` proposes and waits for its ticket, a shard's task
writes, `_after_call` empties the engine's outbox behind every call that may have filled it. Only system calls leave the
thread. A caller who is cancelled loses his answer, never his write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import attrs
import outcome
import trio

from topics.embed.aio.alarms import Alarms
from topics.embed.aio.claims import Claims
from topics.embed.aio.compactor import CompactorTask
from topics.embed.aio.deliveries import Deliveries
from topics.embed.aio.events import NOBODY, EventLog
from topics.embed.aio.fetch import Fetcher
from topics.embed.aio.gauge import Gauge
from topics.embed.aio.hands import Hands
from topics.embed.aio.hub import Hub, now_us
from topics.embed.aio.jobs import JobDesk
from topics.embed.aio.mover import MoverTask
from topics.embed.aio.pages import PageReader
from topics.embed.aio.shard import ShardTask
from topics.embed.aio.thread import Threads
from topics.embed.aio.wheel import Wheel
from topics.engine.commands import Append, Command, Release, Retire, WaitForCopies
from topics.engine.replies import Appended, Reply, TopicState
from topics.engine.tickets import Stage, Ticket
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.system.compress import compress_records
from topics.kernel.config import Compression
from topics.kernel.errors import Code, Fatal, Rejected, TopicsError
from topics.kernel.limits import INGEST_WAITING_MAX
from topics.sched.governor import RETRY_AFTER_MS
from topics.store.damages import found_since
from topics.store.opened import Opened
from topics.store.writer import NOTHING_TOOK, BatchTiming

Ended = Callable[[Ticket, BatchTiming], None]
_ROOM_TRIES: Final = 3
LET_GO_BYTES: Final = 4096


class Runtime:
    """A recovered store in use. `observe_sync`: of each fdatasync, in seconds. `observe_delivery`: from a write until
    what is sent of it was made for who waited. `observe_turn`: of each topic with news that was not told at once, until
    its turn came. `log`: where it tells what happens. `ended`: what is said to who comes when it is closing.
    """

    def __init__(
        self,
        opened: Opened,
        *,
        observe_sync: Callable[[float], None] | None = None,
        observe_delivery: Callable[[float], None] | None = None,
        observe_turn: Callable[[float], None] | None = None,
        threads: Threads | None = None,
        log: EventLog = NOBODY,
        ended: str = "the store is closed; open it again",
    ) -> None:
        self.threads = threads or Threads()
        self._log = log
        self._ended = ended
        self.opened = opened
        self.engine = opened.engine
        self.hub = Hub(self._priority, observe_turn or _nobody)
        self.wheel = Wheel()
        self.claims = Claims(self)
        more = (observe_sync or _nobody, self.threads, log, self.claims.propose, self.hub.governor)
        self.shards = [ShardTask(self.engine, writer, self._after_call, *more) for writer in opened.writers]
        self.compactor: CompactorTask | None = None
        if opened.checkpointer is not None:
            found = partial(found_since, opened)
            self.compactor = CompactorTask(
                opened.checkpointer, self.threads, self.submit, self.ring_all, found, log
            )
        self.mover = MoverTask(self.engine, opened.reader.read, self.threads, self.submit, self.after_call)
        self.closing = False
        self._fetcher = Fetcher(opened.reader, self.threads)
        self.pages = PageReader(self.engine, self._fetcher, self.hub, self.let_time_pass)
        self.deliveries = Deliveries(self.engine, observe_delivery)
        self.jobs = JobDesk(self.engine, self._fetcher, self, self.claims, log)
        self.hands = Hands(self.engine, self.jobs)
        self._in_flight = 0
        self._is_gathering = False
        self._took = NOTHING_TOOK
        self._alarms = Alarms(self.engine, self.after_call)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The storage nursery: opened first, closed last. Behind it everything is written, synced and marked."""
        async with trio.open_nursery() as writers:
            for shard in self.shards:
                writers.start_soon(shard.run)
            try:
                async with trio.open_nursery() as keepers:
                    for shard in self.shards:
                        keepers.start_soon(shard.keep_reserve)
                    keepers.start_soon(self._alarms.run)
                    keepers.start_soon(self.mover.run)
                    keepers.start_soon(self.wheel.run)
                    keepers.start_soon(self.hub.run)
                    keepers.start_soon(Gauge(self.hub).run)
                    if self.compactor is not None:
                        keepers.start_soon(self.compactor.run)
                    try:
                        yield
                    finally:
                        self.refuse()
                        keepers.cancel_scope.cancel()
                self.engine.log_exact_heads()
            finally:  # writers are shielded: whatever went wrong, they are told, or nobody would ever end
                for shard in self.shards:
                    shard.close()
                self.opened.cold.close()
        self._log.info(
            "storage.closed", failed=[shard.writer.shard for shard in self.shards if shard.writer.failed]
        )

    def refuse(self) -> None:
        """Nothing new is accepted from here on, and nobody waits."""
        self.closing = True
        self.end_waits()

    def check_open(self) -> None:
        if self.closing:
            raise Rejected(Code.SHUTTING_DOWN, self._ended)

    def check_pressure(self, topic: str) -> None:
        """Raises `Rejected(throttled)` if a write from outside is not to be proposed now (semantics 10)."""
        if not self.hub.governor.refuses:
            return
        found = self.engine.catalog.find(topic)
        shard = 0 if found is None else self.engine.shard_of(found.topic_id)
        waiting = sum(1 for _ in self.engine.waiting(shard))
        if waiting >= INGEST_WAITING_MAX:
            raise Rejected(
                Code.THROTTLED,
                f"topic {topic!r}: the server is too busy, and {waiting} writes wait on its shard; try again later",
                retry_after_ms=RETRY_AFTER_MS,
            )

    # Writing.

    async def submit(self, command: Command, *, sync: bool = False) -> Reply:
        """Propose, have it written as its class asks, and answer.

        Raises:
            Rejected: refused; nothing was written.
            Fatal: the write or sync failed; the outcome is unknown until the next recovery.
        """
        ticket, _ = await self._proposed(command, sync=sync)
        return ticket.result()

    async def append(self, command: Append, *, sync: bool = False) -> tuple[Appended, BatchTiming]:
        """Compress as the topic says, then append. Returns what the disk took for it, too."""
        ticket, took = await self._proposed(await self.compressed(command), sync=sync)
        reply = ticket.result()
        assert isinstance(reply, Appended)
        return reply, took

    async def compressed(self, command: Append) -> Append:
        """With its records compressed as the topic says, in a thread."""
        config = self.engine.topic_config(command.topic) or command.config
        if config.compression is Compression.NONE:
            return command
        return await self.threads.run(partial(compress_records, command, config))

    async def begin(self, command: Command, ended: Ended) -> None:
        """Propose, and wait until it is in frames, as mostly it is at once: commands take effect in the order of these
        calls. `ended` is called once, with the ticket and what its batch took, when it has ended: perhaps before this
        returns.

        Raises:
            Rejected: refused; nothing was written, and `ended` is not called.
        """
        ticket, took = await self._proposed(command, until_in_frames=True)
        self._at_end(ticket, took, ended)

    def appends_at_once(self, topic: str) -> bool:
        """Whether an append to it may go to `begin_now`: it is there, and nothing is compressed for it in a thread."""
        config = self.engine.topic_config(topic)
        return config is not None and config.compression is Compression.NONE

    def begin_now(self, command: Command, ended: Ended) -> bool:
        """As `begin`, without waiting. False if that could take some: then nothing was proposed.

        Raises:
            Rejected: refused; nothing was written, and `ended` is not called.
        """
        self.check_open()
        self.claims.propose()
        try:
            ticket = self.engine.propose(command, asks_room=True)
        finally:
            self._after_call(NOTHING_TOOK)
        if ticket.stage is Stage.WAITING:
            withdrawn = self.engine.withdraw(ticket)
            assert withdrawn, command  # its topic is there, so nothing is made for this
            self._after_call(NOTHING_TOOK)
            return False
        _let_go(ticket, command)
        self._at_end(ticket, NOTHING_TOOK, ended)
        return True

    def write_together(self, propose: Callable[[], None]) -> None:
        """What this proposes is one batch a shard. It is written before this returns, where the shard rests and nothing
        of the batch blocks; else by the shard's task.
        """
        self._is_gathering = True
        try:
            propose()
        finally:
            self.claims.propose()
            self._is_gathering = False
            for shard in self.shards:
                if self.engine.wants_write(shard.writer.shard):
                    shard.write_now()

    def give(self, command: Release) -> None:
        """Have it carried out, if it can be; nobody waits for it."""
        self.claims.propose()
        with suppress(Rejected):
            try:
                self.engine.propose(command)
            finally:
                self._after_call(NOTHING_TOOK)

    def end_waits(self) -> None:
        """The server drains: whoever waits for news or for jobs is answered now."""
        self.hub.tell_all()
        self.jobs.end_waits()

    async def let_time_pass(self, topic: str) -> None:
        """Before a read reports a floor that time alone has moved, the watermark for it is published (semantics 4).

        Where none can be logged (read-only, no space) the floor stands still instead.
        """
        with suppress(Rejected, Fatal):
            due = self.engine.read_due(topic)
            if due is not None:
                await self.submit(due)

    def topic_state(self, name: str, *, touch: bool) -> TopicState:
        """As the engine has it, older by what it waits for its turn. Raises `Rejected(topic_not_found)`."""
        state = self.engine.topic_state(name, touch=touch)
        boost = self.hub.ready.age_boost(name, now_us())
        return attrs.evolve(state, effective_priority=state.effective_priority + boost) if boost else state

    @property
    def in_flight(self) -> int:
        """Commands proposed and not yet answered."""
        return self._in_flight + self.claims.in_flight

    # Checkpoints.

    def writable_compactor(self) -> tuple[CompactorTask, Checkpointer]:
        """Who takes checkpoints, and what of. Raises `Rejected` if nothing is written: with why, and what to do."""
        checkpointer = self.opened.checkpointer
        if checkpointer is None:
            self.engine.check_writable(0)  # which tells why there is none
        assert self.compactor is not None
        assert checkpointer is not None
        return self.compactor, checkpointer

    # Inside.

    async def _proposed(
        self, command: Command, *, sync: bool = False, until_in_frames: bool = False
    ) -> tuple[Ticket, BatchTiming]:
        """A ticket that is done, or in frames if that is enough, and what its batch took."""
        tries, created = _ROOM_TRIES, False
        while True:
            self.check_open()
            self.claims.propose()
            took, ticket = NOTHING_TOOK, None
            try:
                try:
                    ticket = self.engine.propose(command, sync=sync, asks_room=tries > 0)
                    ticket.created = ticket.created or created
                finally:
                    self._after_call(NOTHING_TOOK)
                if not ticket.done:
                    _let_go(ticket, command)
                    if until_in_frames and ticket.stage is Stage.PENDING:
                        return ticket, took
                    took = await self._wait(ticket)
                refused = ticket.error
                if refused is None or refused.code is not Code.DISK_LOW:
                    return ticket, took
            except Rejected as error:
                refused = error
            if refused.code is not Code.DISK_LOW or tries == 0:
                raise refused
            # Once more where there is none: why there is none was not known before it was tried.
            tries = tries - 1 if await self.make_room(refused) else 0
            created = created or (ticket is not None and ticket.created)

    async def _wait(self, ticket: Ticket) -> BatchTiming:
        """Until it is done. Returns what its batch took."""
        ticket.waiter = partial(self._go_on, trio.lowlevel.current_task())
        self._in_flight += 1
        try:
            took: BatchTiming = await trio.lowlevel.wait_task_rescheduled(partial(self._leave, ticket))
            return took
        finally:
            self._in_flight -= 1

    async def make_room(self, refused: TopicsError) -> bool:
        shard, needed = refused.detail["shard"], refused.detail["needed_bytes"]
        assert isinstance(shard, int)
        assert isinstance(needed, int)
        return await self.shards[shard].make_room(needed)

    def _after_call(self, took: BatchTiming) -> None:
        """Empty the outbox: whoever waits goes on and learns what his batch took; shards with work are rung."""
        engine = self.engine
        if engine.has_effects:
            effects = engine.take_effects()
            for ticket in effects.finished:
                if ticket.waiter is not None:
                    self._took = took  # whoever is called may call the engine
                    ticket.waiter()
            self.hub.tell(effects.news)
            if effects.ended_leases:
                self.hands.tell_ended(effects.ended_leases)
        if engine.deadline_moved:
            self._alarms.look()
        if engine.has_orders:
            self.mover.ring()
        for shard in () if self._is_gathering else self.shards:
            if not shard.rung and engine.wants_write(shard.writer.shard):
                shard.ring()
        if self.compactor is not None and self.compactor.ended is not None:
            self.compactor.ended.set()

    def _at_end(self, ticket: Ticket, took: BatchTiming, ended: Ended) -> None:
        if ticket.done:
            ended(ticket, took)
        else:
            self._in_flight += 1
            ticket.waiter = partial(self._tell_ended, ticket, ended)

    def _tell_ended(self, ticket: Ticket, ended: Ended) -> None:
        self._in_flight -= 1
        ended(ticket, self._took)

    def _go_on(self, task: trio.lowlevel.Task) -> None:
        """Whoever waited for a ticket: it has finished, by a batch that took so long."""
        trio.lowlevel.reschedule(task, outcome.Value(self._took))

    def _leave(self, ticket: Ticket, _: object) -> trio.lowlevel.Abort:
        """The caller has gone. A write goes on; what was asked for by his read alone does not."""
        if isinstance(ticket.command, (Retire, WaitForCopies)):
            self.engine.withdraw(ticket)
        ticket.waiter = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _priority(self, topic: str) -> int:
        """Without what waiting adds; of a topic that is gone, any."""
        try:
            return self.engine.topic_state(topic).effective_priority
        except Rejected:
            return 0

    def after_call(self) -> None:
        self._after_call(NOTHING_TOOK)

    def clock_moved(self) -> None:
        """The clock was set forward: what is due is done."""
        self.check_open()
        self.engine.tick()
        self._after_call(NOTHING_TOOK)

    def ring_all(self) -> None:
        for shard in () if self._is_gathering else self.shards:
            shard.ring()


def _let_go(ticket: Ticket, command: Command) -> None:
    """The records of a write that is in frames: while it waits nobody holds them beside the frames.

    Those of an idempotent one stay, for its retries are compared with them; few bytes are not worth the trouble.
    """
    if not isinstance(command, Append) or command.records.size_total < LET_GO_BYTES:
        return
    if ticket.stage is Stage.PENDING and command.idempotency_key is None:
        command.records.let_go()


def _nobody(_: float) -> None: ...
