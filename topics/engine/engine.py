"""The engine: many topics, many shards, no I/O (architecture 3).

A driver calls it and carries out what it answers: `propose` a command, `take_batch` to write, `written`, `synced` or
`failed` when it is, `take_effects` for whom to tell. Nothing awaits, nothing blocks; each call reads the injected
Clock at most once, and each that may end or wake a ticket ends in `_settle`. Under `checking` that ends with
`verify.check_state`, which asserts the numbered invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from topics.engine import verify
from topics.engine.apply import Catalog, CatalogView
from topics.engine.batch import Shard, Shortage, WalBatch, WalPosition, folded_together
from topics.engine.checkpoint import Checkpoints, SegmentRules
from topics.engine.commands import Command, Retire, Sync
from topics.engine.deadlines import timing
from topics.engine.deadlines.timers import SYNC
from topics.engine.moving.moves import Moves, resume_moves
from topics.engine.propose import propose, propose_woken
from topics.engine.queue.claim import serve_claims
from topics.engine.queue.control import JobView, QueueFigures, peek, queue_figures, queue_state
from topics.engine.recovery import restart
from topics.engine.replies import TopicState
from topics.engine.routers.catching_up import answer_caught_up
from topics.engine.routers.late import Forwards, order_late_copies
from topics.engine.routers.looking import RouterDesk
from topics.engine.schedules.firing import arm_all
from topics.engine.schedules.looking import ScheduleDesk
from topics.engine.state import Effects, EngineState
from topics.engine.tickets import Stage, Ticket
from topics.kernel.clock import EngineTime
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.ids import shard_of
from topics.kernel.limits import FLOOR_STALENESS_MS, SYNC_INTERVAL_MS, Limits
from topics.kernel.ports import Calendar, Clock
from topics.log import retention
from topics.log.jobs.transitions import JobState
from topics.log.reads import diff, records
from topics.log.reads.frames import Extent, extent_of
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.log.reads.waiting import News
from topics.log.topic import Topic

_DURABLE: Final = News.DURABLE
Figures = Iterator[tuple[Topic, int, QueueFigures | None]]


class Engine:
    """The façade of the core."""

    def __init__(
        self,
        clock: Clock,
        *,
        shards: int = 1,
        catalog: Catalog | None = None,
        limits: Limits | None = None,
        sync_interval_ms: int = SYNC_INTERVAL_MS,
        checking: bool = False,
        rules: SegmentRules | None = None,
        lease_nonce: int = 0,
        calendar: Calendar | None = None,
        fires: bool = True,
    ) -> None:
        catalog, time = catalog or Catalog(), EngineTime(clock)
        self._state = EngineState(
            catalog, time, shards, limits or Limits(), lease_nonce, calendar, fires=fires
        )
        self._sync_interval_ms = sync_interval_ms
        self._checking = checking
        self.moves = Moves(self._state, self._settle)
        self.forwards = Forwards(self._state, self._settle)
        self.schedules = ScheduleDesk(self._state)
        self.routers = RouterDesk(self._state)
        self.checkpoints = Checkpoints(self._state, rules or SegmentRules())

    @property
    def state(self) -> EngineState:
        """For `verify`, models and tests: nobody else looks here (ci/tidy)."""
        return self._state

    @property
    def limits(self) -> Limits:
        return self._state.limits

    def resume(self, *, machine_restarted: bool) -> None:
        """After recovery: log what the restart took, before anything else is proposed (storage 4)."""
        restart.resume(self._state, machine_restarted=machine_restarted)
        resume_moves(self._state)
        self._state.to_forward = dict(self._state.lanes)
        arm_all(self._state)
        self._settle()

    def make_read_only(self, why: str, *, how: str, durable_known: bool) -> None:
        """Refuse every write. `why`: the log is damaged (storage 4), or nobody asked to write; `how` to write again.
        `durable_known`: false if nothing was synced again, and what is missing was durable too: no seq is said to be.
        """
        restart.refuse_writes(self._state, Fatal(why, how=how), durable_known=durable_known)

    def check_writable(self, shard: int) -> None:
        """Raises `Rejected` if the shard is read-only: storage_read_only, with why and what to do."""
        self._state.check_writable(shard)

    # Commands.

    def propose(self, command: Command, *, sync: bool = False, asks_room: bool = False) -> Ticket:
        """Check a command and assign what it needs. `sync`: answered only after the fdatasync that covers it.
        `asks_room`: refused disk_low, it will be given room and proposed again, so it is also if its copies have none.

        Raises:
            Rejected: nothing was assigned or written.
        """
        ticket = Ticket(command, sync=sync, asks_room=asks_room)
        propose(self._state, ticket, self._state.time.read())
        self._settle()
        return ticket

    def propose_all(self, tickets: Sequence[Ticket]) -> None:
        """As `propose`, of claims that waited for each other and are served together. One that is refused, ends."""
        self._state.time.read()
        self._state.ready += [(ticket, None) for ticket in tickets]
        self._settle()

    def withdraw(self, ticket: Ticket) -> bool:
        """Whoever proposed it has gone: if it still waits it never happens. False if it goes on or has ended.

        A write for which its topic is being made goes on, and so does a claim that has jobs by now.
        """
        if ticket.stage is not Stage.WAITING or ticket.created:
            return False
        self._state.withdraw(ticket)
        self._settle()
        return True

    # The writer's side.

    def take_batch(self, shard: int) -> WalBatch | None:
        """What to write next on a shard; None while a batch is in flight or there is nothing to do."""
        return self._state.shards[shard].take(self._state.time.read())

    def waiting(self, shard: int) -> Iterator[Ticket]:
        """The tickets whose frames wait on a shard for the next batch, in order."""
        return (entry.ticket for entry in self._state.shards[shard].pending if entry.ticket is not None)

    def wants_write(self, shard: int) -> bool:
        """True if `take_batch` would have something to give."""
        queue = self._state.shards[shard]
        return (
            bool(queue.pending)
            and queue.in_flight is None
            and queue.read_only is None
            and not queue.cut_wanted
        )

    def written(self, batch: WalBatch, at: WalPosition) -> None:
        """The batch was handed to the operating system. Frames that need no sync are published."""
        state, shard, offset = self._state, self._shard_of(batch), at.offset
        assert not shard.written
        shard.written = True
        for entry in batch.entries:
            entry.place(offset)
            offset += entry.size
        assert offset == at.offset + batch.size
        if not shard.unsynced and batch.size:
            shard.unsynced = True
            if not batch.sync:
                state.by_timer.set(SYNC, batch.shard, shard.synced_ms + self._sync_interval_ms)
        self._apply(shard, batch, at, staged=False)
        if batch.sync:
            for entry in batch.entries:
                if not (entry.staged or (entry.must_sync and entry.ticket is not None and entry.ticket.sync)):
                    state.finish_entry(entry)
        else:
            for entry in batch.entries:
                state.finish_entry(entry)
            shard.in_flight = None
        self._settle()

    def synced(self, batch: WalBatch, at: WalPosition) -> None:
        """The batch, and everything written before it, is durable."""
        state, shard = self._state, self._shard_of(batch)
        assert shard.written
        assert batch.sync
        self._apply(shard, batch, at, staged=True)
        for lane, written_seq in shard.unsynced_lanes.values():
            # A topic that went over to ephemeral meanwhile has nothing on the disk any more.
            durable_seq = min(written_seq, lane.written_seq)
            if durable_seq > lane.durable_seq:
                lane.durable_seq = durable_seq
                state.tell(lane, _DURABLE)
                if state.routes.leading_from(lane.topic_id):
                    state.to_forward[lane.topic_id] = lane
        shard.unsynced_lanes.clear()
        shard.unsynced = False
        state.by_timer.drop(SYNC, batch.shard)
        state.time.read()
        shard.synced_ms = state.time.timer_ms
        shard.in_flight = None
        for entry in batch.entries:
            state.finish_entry(entry)
        self._settle()

    def failed(self, batch: WalBatch, error: Fatal) -> None:
        """The write or the sync failed: the shard is read-only until restart, the outcome unknown (storage 3)."""
        shard = self._shard_of(batch)
        left = [e for e in batch.entries if not shard.written or e.staged]
        answered = [e for e in batch.entries if shard.written and not e.staged]
        shard.in_flight = None
        for entry in answered:
            if entry.ticket is not None and not entry.ticket.done:
                self._state.fail(entry.ticket, error)
        self._state.fail_shard(shard, error, left)
        self._settle()

    def shard_failed(self, shard: int, error: Fatal) -> None:
        """A write or sync outside a batch (a mark) failed: the same as for a batch."""
        self._state.fail_shard(self._state.shards[shard], error, [])
        self._settle()

    def request_sync(self, shard: int) -> Ticket | None:
        """Have everything written on the shard synced by the next batch; None if it is read-only."""
        if self._state.shards[shard].read_only is not None:
            return None
        return self.propose(Sync(shard=shard))

    def rested(self, shard: int, idle_ms: int) -> bool:
        """True if nothing has waited or been synced on the shard for so long."""
        queue = self._state.shards[shard]
        self._state.time.read()
        return queue.quiet and self._state.time.timer_ms - queue.synced_ms >= idle_ms

    def space(self, shard: int, bytes_left: int, shortage: Shortage | None = None) -> None:
        """How many bytes the shard's files surely take; told before propose, so that 507 comes before any seq."""
        queue = self._state.shards[shard]
        queue.space_left, queue.shortage = bytes_left, shortage

    # Time.

    def now_ms(self) -> int:
        return self._state.time.read()

    def tick(self) -> None:
        """What time alone brings: floors that TTL moved, exact heads of rested topics, timed syncs; bounded work."""
        timing.tick(self._state, self._state.time.read())
        self._settle()

    def next_deadline_ms(self) -> int | None:
        """When `tick` next has something to do; None if nothing is due ever. A driver sleeps from `now_ms` to then."""
        self._state.time.read()
        return timing.next_deadline_ms(self._state)

    @property
    def deadline_moved(self) -> bool:
        """True if the next deadline may be earlier than `next_deadline_ms` last said."""
        return self._state.by_time.moved or self._state.by_timer.moved

    def log_exact_heads(self) -> None:
        """Clean shutdown: every topic's exact head goes to the log (storage 4)."""
        timing.log_exact_heads(self._state, self._state.time.read())
        self._settle()

    # Reading.

    def read_due(self, name: str) -> Retire | None:
        """The command to propose before a read may report a floor that time alone has moved; None if none is due."""
        lane, topic = self._state.topic(name)
        due_ms = retention.next_due_ms(topic)
        now_ms = self._state.time.read()
        if due_ms is None or due_ms > now_ms or self._state.shards[lane.shard].read_only is not None:
            return None
        return Retire(topic=name) if now_ms - topic.watermark_ms >= FLOOR_STALENESS_MS else None

    def plan_diff(self, query: diff.DiffQuery) -> diff.DiffPlan:
        """Plan a read; touches nothing but the time of last reading. Raises `Rejected`: topic_not_found."""
        lane, topic = self._state.topic(query.topic)
        now_ms = self._state.time.read()
        lane.last_read_ms = now_ms
        return diff.plan(topic, query, now_ms=now_ms, durable_seq=lane.durable_seq)

    def plan_records(self, query: RecordsQuery) -> RecordsPlan:
        """Plan a read of records by their seqs. Raises `Rejected`: topic_not_found, if this topic is gone."""
        topic = self._state.catalog.topics.get(query.topic_id)
        if topic is None:
            raise Rejected(Code.TOPIC_NOT_FOUND, f"the topic with id {query.topic_id} was deleted")
        return records.plan(topic, query)

    def record_extent(self, topic_id: int, seq: int) -> Extent | None:
        """Where a record lies; None if it is gone."""
        topic = self._state.catalog.topics.get(topic_id)
        return None if topic is None else extent_of(topic, seq)

    def topic_state(self, name: str, *, touch: bool = False) -> TopicState:
        """The state of a topic as published. Raises `Rejected`: topic_not_found."""
        lane, topic = self._state.topic(name)
        now_ms = self._state.time.read()
        if touch:
            lane.last_read_ms = now_ms
        return lane.topic_state(queue_state(lane, topic, now_ms), now_ms)

    def peek(self, name: str, wanted: JobState | Sequence[int], limit: int) -> Sequence[JobView]:
        """Jobs of a queue, by state or seq (`queue.control.peek`). Raises `Rejected`: topic_not_found, not_a_queue."""
        lane, _ = self._state.topic(name)
        return peek(lane, wanted, limit, self._state.time.read())

    def topic_config(self, name: str) -> TopicConfig | None:
        """The published config of a topic; None if there is no such topic."""
        topic = self._state.catalog.find(name)
        return None if topic is None else topic.config

    def names(self, prefix: str = "", after: str = "", count_max: int | None = None) -> list[str]:
        """Names of the public topics, ascending, that start with `prefix` and come after `after`; the first so many."""
        return self._state.catalog.names(prefix, after, count_max)

    def topic_figures(self, queues_max: int, sees: Callable[[str], bool] = bool) -> Figures:
        """Each topic as of its turn, its durable seq; how its jobs stand, of the first `queues_max` that it `sees`."""
        for lane in list(self._state.lanes.values()):
            if lane.topic is not None:
                counted = queues_max > 0 and sees(lane.topic.name)
                queue = queue_figures(lane, lane.topic, self._state.time.read()) if counted else None
                yield lane.topic, lane.durable_seq, queue
                queues_max -= counted

    @property
    def topic_count(self) -> int:
        return len(self._state.catalog.topics)

    @property
    def read_only_shards(self) -> Sequence[int]:
        """Shards that refuse writes until the store is opened again."""
        return [shard.number for shard in self._state.shards if shard.read_only is not None]

    @property
    def has_orders(self) -> bool:
        """True if `forwards` or `moves` have one to take."""
        return bool(self._state.forward_orders or self._state.orders)

    @property
    def has_effects(self) -> bool:
        """True if `take_effects` has anything to give."""
        effects = self._state.effects
        return bool(effects.finished or effects.news or effects.ended_leases)

    def take_effects(self) -> Effects:
        """The one outbox: what ended and what changed since the last call."""
        effects = self._state.effects
        self._state.effects = Effects()
        return effects

    # What there is.

    @property
    def shards(self) -> int:
        return len(self._state.shards)

    @property
    def catalog(self) -> CatalogView:
        """Every topic as published. Any thread may look one up."""
        return self._state.catalog

    def shard_of(self, topic_id: int) -> int:
        """The shard in whose log the frames of this topic are."""
        return shard_of(topic_id, self.shards)

    # Inside.

    def _apply(self, shard: Shard, batch: WalBatch, at: WalPosition, *, staged: bool) -> None:
        """All of them, before the first is answered. What lies in another shard's log is not synced with this."""
        for group in folded_together(batch.entries, staged=staged):
            self._state.apply_entries(group, at.file)
            lane = group[0].lane
            if lane is not None and lane.shard == shard.number and lane.written_seq > lane.durable_seq:
                shard.unsynced_lanes[lane.topic_id] = (lane, lane.written_seq)

    def _shard_of(self, batch: WalBatch) -> Shard:
        shard = self._state.shards[batch.shard]
        assert shard.in_flight is batch
        return shard

    def _settle(self) -> None:
        """Answer and propose again what was woken, then (under test) check every invariant."""
        state = self._state
        while state.ready or state.to_serve or state.to_forward:
            if state.to_forward:
                written, state.to_forward = state.to_forward, {}
                for lane in written.values():
                    order_late_copies(state, lane)
            if state.to_serve:
                changed, state.to_serve = state.to_serve, {}
                for lane in changed.values():
                    serve_claims(state, lane, state.time.high_ms)
            if state.ready:
                propose_woken(state)
        if state.readings:
            answer_caught_up(state)
        if self._checking:
            verify.check_state(self._state)
