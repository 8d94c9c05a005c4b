"""`open` and `Store`: a data directory in the caller's process. Thread-safe; group commit across threads.

`put*`, `create`, `configure` and `delete` return when their class says so: `fsync` after the sync that covers them,
`disk` and `memory` when the operating system has the bytes. Every refusal is `topics.Rejected` with nothing written;
`topics.Fatal` means the outcome is unknown until the store is opened again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from topics.calls import consumers, records, topics
from topics.calls.blocking import TopicStore
from topics.calls.call import Call, Steps, carry_out, drive
from topics.calls.consumers import answer_consumers
from topics.calls.definitions import routers, schedules
from topics.calls.messages import TopicSummary, summary_of
from topics.calls.page import Page, make_page
from topics.calls.queues import jobs
from topics.calls.queues.checks import peeked
from topics.calls.queues.values import LeasedRecord, PeekedJob, leased_of, peeked_of
from topics.calls.watching.rules import Asked
from topics.calls.watching.watch import Feed
from topics.codec.log.frame import FrameView
from topics.codec.manifest import Written
from topics.embed.backup import back_up
from topics.embed.catching_up import catch_up, catch_up_by, catch_up_from
from topics.embed.claims import claim, give_back, give_up
from topics.embed.compaction import CompactorThread
from topics.embed.driver import LocalEngine
from topics.embed.findings import Findings
from topics.embed.housekeeping import Housekeeper
from topics.embed.lock import Reentered
from topics.embed.moving import MoverThread
from topics.embed.readers import wait_for_news
from topics.embed.records import NamedRecords
from topics.embed.rounds_feed import RoundsFeed
from topics.engine import commands, replies
from topics.engine.engine import Engine
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.compaction import Compaction, CompactionResult
from topics.host.directory.lock import DirectoryLock
from topics.host.system.compress import compress_records
from topics.host.system.disk import OsDisk
from topics.kernel.checks import flag
from topics.kernel.errors import Corrupt
from topics.kernel.limits import Limits
from topics.kernel.ports import Clock, Disk
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.waiting import Waited, news_since, waits_on
from topics.store.directory import ClaimedDirectory
from topics.store.opened import Opened, StoreOptions, options_of
from topics.store.reading import read_page
from topics.store.stats import StoreStats, stats_of
from topics.store.viewing import view

R = TypeVar("R")
_seq_of: Final = attrgetter("seq")
Views: TypeAlias = Sequence[FrameView]


def open(  # noqa: A001 -- `topics.open` is the product's name for it, as in `gzip.open`
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
    options: StoreOptions | None = None,
    **fields: Any,
) -> Store:
    """Open a data directory, recovering it; make it if it is not there and `create` is true.

    `options`: how it runs; or some of its fields by themselves, as in `topics.open(path, sync="fsync")`.

    One process owns a directory at a time. A damaged log opens read-only: see `Store.damages`.

    With `read_only` nothing is made, changed or owned: it is for a backup, and for a directory on a read-only mount.
    Reads give what a start would find there; writes are refused (`storage_read_only`).

    Raises:
        CannotOpen: in use, foreign, newer, unwritable, missing; the message says what to do.
        Rejected: invalid_request, naming the option.
    """
    options = options_of(options, fields)
    if flag("read_only", read_only):
        opened, disk = view(path, clock=clock, options=options)
        return Store(opened, disk, where=str(path))
    directory = ClaimedDirectory.claim(path, create=create)
    opened = directory.recover(clock=clock, options=options)
    return Store(opened, directory.disk, lock=directory.lock, where=str(directory.root))


class Store(Findings, TopicStore):
    """An open data directory. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        opened: Opened,
        disk: Disk,
        *,
        lock: DirectoryLock | None = None,
        where: str = "",
        housekeeping: bool = True,
    ) -> None:
        self.where = where
        self.limits: Limits = opened.engine.limits
        self.is_remote = False
        self._opened = opened
        self._disk = disk
        self._lock = lock
        self._closing = threading.Lock()
        self._closed = False
        self._local = LocalEngine(opened.engine, opened.writers)
        self._named = NamedRecords(self._local, opened.reader, self.limits.page_bytes)
        self._keeper = Housekeeper(self._local)
        self._mover = MoverThread(self._local, opened.reader.read)
        self._compactor: CompactorThread | None = None
        if opened.checkpointer is not None:
            self._compactor = CompactorThread(self._local, opened.checkpointer)
        if housekeeping and opened.writers:
            self._keeper.start()
            if self._compactor is not None:
                self._compactor.start()

    def stats(self) -> StoreStats:
        """What the store holds, in numbers: a look at each topic."""
        return self._look(stats_of)

    def compact(self) -> CompactionResult:
        """Give back now what deleted, expired and evicted records hold in segments; says how much that was.

        Happens by itself, more slowly: see `StoreOptions.checkpoint_interval_ms`. What is kept for how long and up to
        which size is each topic's `ttl_ms`, `cap_records` and `cap_bytes`. What lies in the cold tier takes longer. A
        segment that is found damaged stays as it is: see `damages`.

        Raises:
            Rejected: the store is read-only, or the disk is so full that not even the state can be kept.
            Fatal: the disk failed; nothing is lost, and it is tried again.
        """
        compactor, checkpointer = self._writable_compactor()
        compaction = Compaction(checkpointer)
        compactor.carry_out(compaction.steps)
        assert compaction.result is not None
        return compaction.result

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        compactor, checkpointer = self._writable_compactor()
        return back_up(
            checkpointer,
            self._opened.cold,
            dest,
            with_cold=with_cold,
            cut=lambda backup: compactor.carry_out(backup.steps),
            check=self._local.check_open,
            tell=tell,
        )

    def clock_moved(self) -> None:
        """Do what is due now, and answer who waits for it: the clock that `open` was given was set forward.

        Without this he is answered a second later or so, for nobody watches a clock. A call that begins later sees it.
        """
        self._local.check_open()
        self._local.tick()

    def close(self) -> None:
        if self._local.is_forked:
            return
        if self._local.is_inside or (self._compactor is not None and self._compactor.is_inside):
            raise Reentered
        with self._closing:  # a second closer waits until the directory is free
            if self._closed:
                return
            try:
                if self._compactor is not None and not self._local.closing:
                    self._compactor.catch_up()
                self._local.begin_close()
                self._keeper.join()
                self._mover.close()
                if self._compactor is not None:
                    self._compactor.close()
                self._local.finish()
            finally:  # whatever interrupts it, the directory is free again: recovery does what is left
                self._closed = True
                self._opened.cold.close()
                if self._lock is not None:
                    if isinstance(self._disk, OsDisk):
                        self._disk.close()
                    self._lock.release()

    def _writable_compactor(self) -> tuple[CompactorThread, Checkpointer]:
        self._local.check_open()
        checkpointer = self._opened.checkpointer
        if checkpointer is None:
            self._opened.engine.check_writable(0)  # which tells why there is none
        assert self._compactor is not None
        assert checkpointer is not None
        return self._compactor, checkpointer

    def feed(self, asked: Asked) -> Feed:
        return RoundsFeed(asked, self, self._local)

    def do(self, steps: Steps[R]) -> R:
        return carry_out(steps, self._answer)

    def _answer(self, call: Call[Any]) -> object:
        """What the engine makes of it."""
        match call:
            case records.WriteCall():
                return self.append(self._opened.classed(call.command(self.limits)), sync=call.sync)
            case jobs.ClaimCall():
                return self._claim(call)
            case jobs.SettleCall() | jobs.RedriveCall():
                return self._local.call(call.command(self.limits))
            case records.ReadCall():
                catch_up(self._local, call.topic)
                return self.read(call.query(self.limits), account=call.account, wait_ms=call.waits_ms)
            case records.DeleteRecordsCall() | topics.PutTopicCall():
                reply = self.call(self._opened.classed(call.command(self.limits)))
                return reply.config if isinstance(reply, replies.TopicPut) else reply
            case jobs.PeekCall():
                return self._peek(call)
            case jobs.SetPausedCall():
                self._local.call(commands.Pause(topic=call.topic, paused=call.paused))
            case jobs.PurgeCall():
                purged = self._local.call(commands.Purge(topic=call.topic))
                assert isinstance(purged, replies.QueuePurged)
                return purged.purged
            case topics.DeleteTopicCall():
                catch_up_from(self._local, call.name)
                gone = self.call(call.command())
                assert isinstance(gone, replies.TopicDeleted)
                return gone.deleted
            case topics.StateCall():
                return self._state(call.topic, touch=flag("touch", call.touch))
            case topics.ListTopicsCall():
                return self._list(call.prefix)
            case topics.SyncCall():
                self._local.sync()
            case topics.CheckpointCall():
                self._writable_compactor()[0].checkpoint()
            case topics.WhyCall() | topics.WhyRangeCall():
                return self._why(call)
            case _:
                return self._of_definition(call)
        return None

    def _of_definition(self, call: Call[Any]) -> object:
        match call:
            case schedules.PutScheduleCall() | routers.PutRouterCall() | routers.DeleteRouterCall():
                return call.answer(self._local.call(call.command(self.limits)))
            case routers.GetRouterCall():
                catch_up_by(self._local, call.name)
                return self._look(call.look)
            case schedules.GetScheduleCall() | schedules.ListSchedulesCall() | routers.ListRoutersCall():
                return self._look(call.look)
            case schedules.DeleteScheduleCall():
                return self._end_schedule(call.name)
        return self._of_consumer(call)

    def _look(self, look: Callable[[Engine], R]) -> R:
        """At what is published."""
        self._local.check_open()
        with self._local.lock:
            return look(self._opened.engine)

    def _of_consumer(self, call: Call[Any]) -> object:
        match call:
            case consumers.ReadConsumerCall():
                return drive(call.steps(), self._step)
            case consumers.SeekCall() | consumers.CommitCall():
                return self._local.call(call.command())
            case consumers.DeleteConsumerCall():
                ended = self._local.call(call.command())
                assert isinstance(ended, replies.ConsumerDeleted)
                return ended.deleted
        return self._look(lambda engine: answer_consumers(engine.catalog, call))

    def _step(self, asked: Call[Any] | commands.CommitConsumer) -> object:
        return self._local.call(asked) if isinstance(asked, commands.CommitConsumer) else self._answer(asked)

    def _end_schedule(self, name: str) -> bool:
        topic = self._look(lambda engine: engine.schedules.topic_of(name))
        if topic is None:
            return False
        gone = self._local.call(commands.DeleteSchedule(topic=topic, schedule=name))
        return isinstance(gone, replies.ScheduleDeleted) and gone.deleted

    def _state(self, name: str, *, touch: bool) -> replies.TopicState:
        self._local.check_open()
        catch_up(self._local, name)
        self._local.let_time_pass(name)
        return self._look(lambda engine: engine.topic_state(name, touch=touch))

    def _list(self, prefix: str) -> Sequence[TopicSummary]:
        return self._look(
            lambda engine: [summary_of(engine.topic_state(name)) for name in engine.names(prefix)]
        )

    def _why(self, call: topics.WhyCall | topics.WhyRangeCall) -> object:
        from topics.embed.why import answer_of  # with all that reads a log: few ask

        ask = self._look(lambda _: answer_of(self._opened, call))
        try:
            return ask()
        except Corrupt:
            self._local.check_open()  # `close` takes the files away
            raise

    def _claim(self, call: jobs.ClaimCall) -> list[LeasedRecord]:
        """Jobs whose records are damaged are given up, and left out as those are that have ended since."""
        command = call.command(self.limits)
        claimed = claim(self._local, command)
        if not claimed.jobs:
            return []
        try:
            if len(claimed.jobs) == 1:
                job = claimed.jobs[0]
                if (view := self._named.one_at_hand(claimed.topic_id, job.seq)) is not None:
                    return leased_of(call.queue, (view,), (job,))
            seqs = list(map(_seq_of, claimed.jobs))
            views, left, damaged = self._named.find(claimed.topic_id, seqs, command.bytes_max)
        except BaseException:
            give_back(self._local, claimed)
            raise
        if damaged:
            give_up(self._local, claimed, damaged)
        if left:
            give_back(self._local, claimed, left)
        told = claimed.jobs if len(views) == len(seqs) else [job for job in claimed.jobs if job.seq in views]
        return leased_of(call.queue, [views[job.seq] for job in told], told)

    def _peek(self, call: jobs.PeekCall) -> list[PeekedJob]:
        self._local.check_open()
        wanted, limit = peeked(call.state, call.limit, self.limits, seqs=call.seqs)
        with self._local.lock:
            found = self._opened.engine.peek(call.topic, wanted, limit)
            topic = self._opened.engine.catalog.find(call.topic)
        assert topic is not None
        seqs = [job.seq for job in found]
        views, _, _ = self._named.find(topic.topic_id, seqs, self.limits.page_bytes_default)
        return peeked_of((views[job.seq], job) for job in found if job.seq in views)

    # Also for the journals, whose topics have names that nobody else may use.

    def append(self, command: commands.Append, *, sync: bool = False) -> replies.Appended:
        """Compress as the topic says, then append."""
        # Without the lock: two looks into dicts, and whether the store is open is asked by the call.
        config = self._opened.engine.topic_config(command.topic) or command.config
        reply = self._local.call(compress_records(command, config), sync=sync)
        assert isinstance(reply, replies.Appended)
        return reply

    def call(
        self, command: commands.PutTopic | commands.DeleteRecords | commands.DeleteTopic
    ) -> replies.Reply:
        self._local.check_open()
        self._local.let_time_pass(command.topic)  # what has expired makes nobody wait for an empty topic
        return self._local.call(command)

    def read(self, query: DiffQuery, *, account: bool, wait_ms: int = 0) -> Page:
        """One page; with `wait_ms`, if there is nothing to say yet, one that is waited for."""
        plan, views = self._page(query)
        if wait_ms and waits_on(plan):
            plan, views = self._page_to_come(query, plan, time.monotonic() + wait_ms / 1000)
        return make_page(plan, views, account=account)

    def _page_to_come(self, query: DiffQuery, plan: DiffPlan, until_s: float) -> tuple[DiffPlan, Views]:
        """As soon as there is something to say, or when the time is over."""
        waited, in_time = Waited(query, plan), True
        views: Views = ()
        while in_time and waited.goes_on:
            in_time = wait_for_news(self._local, [news_since(plan)], until_s)
            plan, views = self._page(waited.next_query())
            waited.add(plan)
        return waited.whole(), views

    def _page(self, query: DiffQuery) -> tuple[DiffPlan, Views]:
        self._local.check_open()
        self._local.let_time_pass(query.topic)
        try:
            return read_page(query, self._plan, self._opened.reader.read)
        except Corrupt:
            self._local.check_open()  # `close` takes the files away
            raise

    def _plan(self, query: DiffQuery) -> DiffPlan:
        with self._local.lock:
            return self._opened.engine.plan_diff(query)
