"""`open_trio` and `AsyncStore`: a data directory in a program on Trio, by tasks and without a lock.

    async with topics.open_trio("./data") as store:
        await store.topic("quakes").put({"mag": 4.2})

Its calls are those of `topics.open`, awaited. A caller who is cancelled loses his answer, never his write. Opening,
system calls and what is long go to threads; checking and encoding what is put is done on the loop, so who puts a
hundred megabytes at once holds up his own tasks.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import trio

from topics.calls import consumers, records, topics
from topics.calls.awaiting import AsyncTopicStore
from topics.calls.call import Call, Steps, carry_out_async, drive_async
from topics.calls.consumers import answer_consumers
from topics.calls.definitions import routers, schedules
from topics.calls.messages import TopicSummary, summary_of
from topics.calls.page import Page, make_page
from topics.calls.queues import jobs
from topics.calls.queues.checks import peeked
from topics.calls.queues.values import LeasedRecord, leased_of, peeked_of
from topics.calls.watching.async_watch import AsyncFeed
from topics.calls.watching.rules import Asked
from topics.codec.log.frame import FrameView
from topics.codec.manifest import Written
from topics.embed.aio.async_rounds_feed import AsyncRoundsFeed
from topics.embed.aio.runtime import Runtime
from topics.embed.backup import back_up
from topics.embed.findings import Findings
from topics.engine.commands import (
    CommitConsumer,
    DeleteRecords,
    DeleteSchedule,
    DeleteTopic,
    Pause,
    Purge,
    PutTopic,
    Sync,
)
from topics.engine.replies import (
    ConsumerDeleted,
    QueuePurged,
    Reply,
    ScheduleDeleted,
    TopicDeleted,
    TopicPut,
    TopicState,
)
from topics.host.backup.live_backup import Backup
from topics.host.checkpoint.compaction import Compaction, CompactionResult
from topics.kernel.checks import flag
from topics.kernel.errors import Corrupt, TopicsError
from topics.kernel.ports import Clock
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.waiting import Waited, waits_on
from topics.store.directory import ClaimedDirectory
from topics.store.opened import Opened, StoreOptions, options_of
from topics.store.stats import StoreStats, stats_of
from topics.store.viewing import view

R = TypeVar("R")


@asynccontextmanager
async def open_trio(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
    options: StoreOptions | None = None,
    **fields: Any,
) -> AsyncIterator[AsyncStore]:
    """As `open`, for the tasks of a program on Trio: the store until the block ends. Then everything is written and
    synced, and the directory is free. What the block raises is raised as it is, and not in a group.

    Raises:
        CannotOpen: in use, foreign, newer, unwritable, missing; the message says what to do.
        Rejected: invalid_request, naming the option.
    """
    options = options_of(options, fields)
    if flag("read_only", read_only):
        opened, _ = await trio.to_thread.run_sync(partial(view, path, clock=clock, options=options))
        async with _running(opened, where=str(path)) as store:
            yield store
        return
    directory = await trio.to_thread.run_sync(partial(ClaimedDirectory.claim, path, create=create))
    try:
        opened = await trio.to_thread.run_sync(partial(directory.recover, clock=clock, options=options))
        async with _running(opened, where=str(directory.root)) as store:
            yield store
    finally:
        directory.release()


@asynccontextmanager
async def _running(opened: Opened, *, where: str) -> AsyncIterator[AsyncStore]:
    raised: Exception | None = None
    runtime = Runtime(opened)
    async with runtime.running():
        try:
            yield AsyncStore(runtime, where=where)
        except Exception as error:  # noqa: BLE001 -- raised below
            raised = error
        await _catch_up(runtime)
    if raised is not None:
        raise raised


async def _catch_up(runtime: Runtime) -> None:
    """A round if one is due by what was written: a store that is open for a moment has no other time for it."""
    compactor, checkpointer = runtime.compactor, runtime.opened.checkpointer
    if (
        compactor is not None
        and checkpointer is not None
        and not compactor.failures
        and checkpointer.is_full()
    ):
        with suppress(TopicsError):  # the log has it all; the next one tries again
            await compactor.checkpoint()


class AsyncStore(Findings, AsyncTopicStore):
    """An open data directory, for the tasks of one run of Trio."""

    def __init__(self, runtime: Runtime, *, where: str) -> None:
        self.where = where
        self.limits = runtime.engine.limits
        self.is_remote = False
        self._runtime = runtime
        self._opened = runtime.opened

    def feed(self, asked: Asked) -> AsyncFeed:
        return AsyncRoundsFeed(
            asked, self._runtime, read=partial(self._read, account=False, wait_ms=0), do=self.do
        )

    async def do(self, steps: Steps[R]) -> R:
        return await carry_out_async(steps, self._answer)

    async def aclose(self) -> None:
        """Take nothing more: every call is refused from here on. The directory is free when the block has ended."""
        self._runtime.refuse()
        await trio.lowlevel.checkpoint()

    async def clock_moved(self) -> None:
        """As `Store.clock_moved`."""
        self._runtime.clock_moved()
        await trio.lowlevel.checkpoint()

    async def stats(self) -> StoreStats:
        """What the store holds, in numbers: a look at each topic."""
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        return stats_of(self._runtime.engine)

    async def compact(self) -> CompactionResult:
        """As `Store.compact`."""
        compactor, checkpointer = self._runtime.writable_compactor()
        compaction = Compaction(checkpointer)
        await compactor.carry_out(compaction.steps)
        assert compaction.result is not None
        return compaction.result

    async def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        compactor, checkpointer = self._runtime.writable_compactor()

        def cut(backup: Backup) -> None:
            trio.from_thread.run(compactor.carry_out, backup.steps)

        def check() -> None:
            trio.from_thread.check_cancelled()
            self._runtime.check_open()

        def told(done: int, total: int) -> None:
            if tell is not None:
                trio.from_thread.run_sync(tell, done, total)

        take = partial(
            back_up,
            checkpointer,
            self._opened.cold,
            dest,
            with_cold=with_cold,
            cut=cut,
            check=check,
            tell=told,
        )
        return await trio.to_thread.run_sync(take)

    async def _answer(self, call: Call[Any]) -> object:
        """What the engine makes of it."""
        runtime = self._runtime
        match call:
            case records.WriteCall():
                return (
                    await runtime.append(self._opened.classed(call.command(self.limits)), sync=call.sync)
                )[0]
            case records.ReadCall():
                await runtime.mover.catch_up(call.topic)
                return await self._read(call.query(self.limits), account=call.account, wait_ms=call.waits_ms)
            case records.DeleteRecordsCall() | topics.PutTopicCall():
                reply = await self._submit(self._opened.classed(call.command(self.limits)))
                return reply.config if isinstance(reply, TopicPut) else reply
            case jobs.ClaimCall():
                return await self._claim(call)
            case jobs.SettleCall():
                return await runtime.jobs.settle(call.command(self.limits))
            case jobs.RedriveCall():
                return await runtime.submit(call.command(self.limits))
            case jobs.PeekCall():
                wanted, limit = peeked(call.state, call.limit, self.limits, seqs=call.seqs)
                shown = await runtime.jobs.peek_records(
                    call.topic, wanted, limit, bytes_max=self.limits.page_bytes_default
                )
                return peeked_of(shown)
            case jobs.SetPausedCall() | jobs.PurgeCall():
                return await self._look_after(call)
            case topics.DeleteTopicCall():
                await runtime.mover.catch_up(*runtime.engine.routers.dests_behind(call.name))
                gone = await self._submit(call.command())
                assert isinstance(gone, TopicDeleted)
                return gone.deleted
            case topics.StateCall():
                return await self._state(call.topic, touch=flag("touch", call.touch))
            case topics.ListTopicsCall():
                return await self._list(call.prefix)
            case topics.SyncCall():
                await self._sync()
            case topics.CheckpointCall():
                await runtime.writable_compactor()[0].checkpoint()
            case topics.WhyCall() | topics.WhyRangeCall():
                return await self._why(call)
            case _:
                return await self._of_definition(call)
        return None

    async def _of_definition(self, call: Call[Any]) -> object:
        match call:
            case schedules.PutScheduleCall() | routers.PutRouterCall() | routers.DeleteRouterCall():
                return call.answer(await self._runtime.submit(call.command(self.limits)))
            case routers.GetRouterCall():
                return await self._router(call)
            case schedules.GetScheduleCall() | schedules.ListSchedulesCall() | routers.ListRoutersCall():
                self._runtime.check_open()
                await trio.lowlevel.checkpoint()
                return call.look(self._runtime.engine)
            case schedules.DeleteScheduleCall():
                return await self._end_schedule(call.name)
        return await self._of_consumer(call)

    async def _router(self, call: routers.GetRouterCall) -> routers.Router:
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        engine = self._runtime.engine
        ends = engine.routers.topics_of(call.name)
        if ends is not None:
            await self._runtime.mover.catch_up(ends[1])
        return call.look(engine)

    async def _of_consumer(self, call: Call[Any]) -> object:
        match call:
            case consumers.ReadConsumerCall():
                return await drive_async(call.steps(), self._step)
            case consumers.SeekCall() | consumers.CommitCall():
                return await self._runtime.submit(call.command())
            case consumers.DeleteConsumerCall():
                ended = await self._runtime.submit(call.command())
                assert isinstance(ended, ConsumerDeleted)
                return ended.deleted
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        return answer_consumers(self._runtime.engine.catalog, call)

    async def _step(self, asked: Call[Any] | CommitConsumer) -> object:
        if isinstance(asked, CommitConsumer):
            return await self._runtime.submit(asked)
        return await self._answer(asked)

    async def _submit(self, command: PutTopic | DeleteRecords | DeleteTopic) -> Reply:
        """What has expired by now makes nobody wait for an empty topic."""
        await self._runtime.let_time_pass(command.topic)
        return await self._runtime.submit(command)

    async def _claim(self, call: jobs.ClaimCall) -> Sequence[LeasedRecord]:
        found = await self._runtime.jobs.claim_records(call.command(self.limits))
        if found is None:
            self._runtime.check_open()
        return leased_of(call.queue, [view for view, _ in found or ()], [job for _, job in found or ()])

    async def _look_after(self, call: jobs.SetPausedCall | jobs.PurgeCall) -> int | None:
        if isinstance(call, jobs.SetPausedCall):
            await self._runtime.submit(Pause(topic=call.topic, paused=call.paused))
            return None
        purged = await self._runtime.submit(Purge(topic=call.topic))
        assert isinstance(purged, QueuePurged)
        return purged.purged

    async def _why(self, call: topics.WhyCall | topics.WhyRangeCall) -> object:
        from topics.embed.why import answer_of  # with all that reads a log: few ask

        self._runtime.check_open()
        ask = answer_of(self._opened, call)
        try:
            return await self._runtime.threads.run(ask)
        except Corrupt:
            self._runtime.check_open()  # the end of the block takes the files away
            raise

    async def _end_schedule(self, name: str) -> bool:
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        topic = self._runtime.engine.schedules.topic_of(name)
        if topic is None:
            return False
        gone = await self._runtime.submit(DeleteSchedule(topic=topic, schedule=name))
        return isinstance(gone, ScheduleDeleted) and gone.deleted

    async def _state(self, name: str, *, touch: bool) -> TopicState:
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        await self._runtime.mover.catch_up(name)
        await self._runtime.let_time_pass(name)
        return self._runtime.topic_state(name, touch=touch)

    async def _list(self, prefix: str) -> Sequence[TopicSummary]:
        self._runtime.check_open()
        await trio.lowlevel.checkpoint()
        engine = self._runtime.engine
        return [summary_of(engine.topic_state(name)) for name in engine.names(prefix)]

    async def _sync(self) -> None:
        """One failed shard does not stop the rest; its failure is raised."""
        self._runtime.check_open()
        failure: TopicsError | None = None
        for shard in self._runtime.shards:
            try:
                await self._runtime.submit(Sync(shard=shard.writer.shard))
            except TopicsError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _read(self, query: DiffQuery, *, account: bool, wait_ms: int) -> Page:
        await trio.lowlevel.checkpoint()
        plan, views = await self._page(query)
        if wait_ms and waits_on(plan):
            plan, views = await self._page_to_come(query, plan, trio.current_time() + wait_ms / 1000)
        return make_page(plan, views, account=account)

    async def _page_to_come(
        self, query: DiffQuery, plan: DiffPlan, until_s: float
    ) -> tuple[DiffPlan, Sequence[FrameView]]:
        """As soon as there is something to say, or when the time is over."""
        waited, in_time = Waited(query, plan), True
        views: Sequence[FrameView] = ()
        while in_time and waited.goes_on:
            self._runtime.check_open()
            # A page without records has nothing to fetch, so since it was planned nobody else has had his turn.
            with trio.move_on_at(until_s) as scope:
                await self._runtime.hub.wait(query.topic)
            in_time = not scope.cancelled_caught
            plan, views = await self._page(waited.next_query())
            waited.add(plan)
        return waited.whole(), views

    async def _page(self, query: DiffQuery) -> tuple[DiffPlan, Sequence[FrameView]]:
        self._runtime.check_open()
        try:
            return await self._runtime.pages.views(query)
        except Corrupt:
            self._runtime.check_open()  # its end takes the files away
            raise
