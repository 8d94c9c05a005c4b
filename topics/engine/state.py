"""Everything the engine holds, and the few moves every command is made of: enqueue, park, ride, finish, fail.

No policy of any single command is here (propose has it) and no rule of the log (apply has it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.engine.apply import Catalog, apply
from topics.engine.batch import Entry, Shard, Shortage
from topics.engine.commands import Checkpointed, Claim, Sync
from topics.engine.deadlines.timers import FIRE, OF_TOPICS, REST, RETIRE, SERVE, SYNC, Timers
from topics.engine.lane import Lane
from topics.engine.moving.orders import MoveOrder, MovesInto
from topics.engine.replies import Reply
from topics.engine.routers.orders import ForwardOrder
from topics.engine.routers.reading import Reading
from topics.engine.routers.routes import Routes
from topics.engine.schedules.alarm import Alarm
from topics.engine.tickets import DONE, Stage, Ticket
from topics.engine.writing.admit import TotalBytes
from topics.kernel.clock import EngineTime
from topics.kernel.errors import Code, Fatal, Rejected, TopicsError
from topics.kernel.ids import shard_of
from topics.kernel.limits import PARKED_PER_TOPIC_MAX, PENDING_BYTES_MAX, TOPIC_IDLE_MS, Limits
from topics.kernel.ports import Calendar
from topics.log import retention
from topics.log.jobs.transitions import JobState
from topics.log.reads.waiting import NO_NEWS, News
from topics.log.regions import Source, WalFileId
from topics.log.topic import Topic

NOWHERE = WalFileId(0, 0, 0)
_PENDING: Final = Stage.PENDING  # as `DONE`
_UNKNOWN_SHORTAGE: Final = Shortage("not enough disk space for it, or for the next log file: free some", {})
_EACH: Final = [News(value) for value in range(16)]
_BOTH: Final = {(one, other): one | other for one in _EACH for other in _EACH}  # a union is made slowly


class Effects:
    """What a call brought about: tickets that are done, news by topic, and by the id of a queue of which somebody asks
    for that (`Claim.told_end`) the jobs of which a lease has ended.
    """

    __slots__ = ("ended_leases", "finished", "news")

    def __init__(self) -> None:
        self.finished: list[Ticket] = []
        self.news: dict[str, News] = {}
        self.ended_leases: dict[int, list[int]] = {}


class Ride(msgspec.Struct, eq=False):
    """A ticket that waits until so many others have ended. `answer`: what then answers it if all have ended well; else,
    or without one, it is proposed again.
    """

    ticket: Ticket
    awaited: int
    answer: Entry | None


class EngineState:
    """The catalog (the log's side), the lanes and shards (the allocators' side), time, and the outbox."""

    __slots__ = (
        "alarms", "by_time", "by_timer", "calendar", "catalog", "effects", "fires", "forward_orders", "lanes",
        "lanes_by_name", "lease_nonce", "limits", "moves", "next_lease", "next_topic_id", "orders", "putting",
        "readings", "ready", "rides", "routes", "routing", "shards", "time", "to_forward", "to_serve", "total",
    )  # fmt: skip

    def __init__(
        self, catalog: Catalog, time: EngineTime, shards: int, limits: Limits, lease_nonce: int = 0,
        calendar: Calendar | None = None, *, fires: bool = True,
    ) -> None:  # fmt: skip
        self.catalog = catalog
        self.time = time
        self.limits = limits
        self.total = TotalBytes(limits.total_bytes)
        time.witness(catalog.high_ts)
        time.read()
        self.shards = [Shard(number, time.timer_ms) for number in range(shards)]
        self.next_topic_id = catalog.next_topic_id
        self.lanes: dict[int, Lane] = {}
        self.lanes_by_name: dict[str, Lane] = {}
        self.by_time = Timers()  # of the engine's time
        self.by_timer = Timers()  # of `timer_ms`
        self.effects = Effects()
        self.rides: dict[Ticket, list[Ride]] = {}  # by the ticket that is waited for
        self.ready: list[tuple[Ticket, Entry | None]] = []  # to be proposed again, or answered by the entry
        self.moves: dict[str, MovesInto] = {}  # by the name of the topic that records go to
        self.orders: deque[MoveOrder] = deque()  # for a driver to take
        self.to_serve: dict[int, Lane] = {}  # queues of which something has changed
        self.lease_nonce, self.next_lease = lease_nonce, 1
        self.calendar, self.fires = calendar, fires  # of schedules
        self.alarms: dict[int, Alarm] = {}  # by the id of a schedule
        self.putting: dict[str, Ticket] = {}  # by the name of a schedule that is on its way
        self.routing: Ticket | None = None  # the change of a router that is on its way
        self.routes = Routes(catalog.routers)
        self.forward_orders: deque[ForwardOrder] = deque()  # for a driver to take
        self.to_forward: dict[int, Lane] = {}  # sources that have got something
        self.readings: dict[int, deque[Reading]] = {}  # by the id of the dest that they wait for
        for topic in catalog.topics.values():
            lane = self.new_lane(topic.name, topic.topic_id)
            self.add_lane(lane)
            lane.adopt(topic)
            self.watch_expiry(lane)
            if lane.queue is not None:
                self.to_serve[topic.topic_id] = lane
        for router in catalog.routers.values():
            self.routes.put(router, self.lanes[router.source_id], self.lanes[router.dest_id])

    # Lanes.

    def new_lane(self, name: str, topic_id: int) -> Lane:
        return Lane(name, topic_id, shard_of(topic_id, len(self.shards)))

    def add_lane(self, lane: Lane) -> None:
        self.lanes[lane.topic_id] = lane
        self.lanes_by_name[lane.name] = lane

    def drop_lane(self, lane: Lane) -> None:
        del self.lanes[lane.topic_id]
        if self.lanes_by_name.get(lane.name) is lane:
            del self.lanes_by_name[lane.name]
        for schedule_id in lane.topic.schedules if lane.topic is not None else ():
            self.alarms.pop(schedule_id, None)
            self.by_time.drop(FIRE, schedule_id)
            self.by_timer.drop(FIRE, schedule_id)
        for kind in OF_TOPICS:
            self.by_time.drop(kind, lane.topic_id)
            self.by_timer.drop(kind, lane.topic_id)

    def topic(self, name: str) -> tuple[Lane, Topic]:
        """The published topic of that name, or 404."""
        lane = self.lanes_by_name.get(name)
        if lane is None or lane.topic is None:
            raise no_topic(name)
        return lane, lane.topic

    def watch_expiry(self, lane: Lane) -> None:
        """Note when time alone will next retire a record of this topic."""
        topic = lane.topic
        assert topic is not None
        due_ms = retention.next_due_ms(topic) if topic.config.ttl_ms or topic.deadlines.count else None
        if due_ms is None:
            self.by_time.drop(RETIRE, lane.topic_id)
        else:
            self.by_time.set(RETIRE, lane.topic_id, due_ms)

    def touch(self, lane: Lane) -> None:
        """The topic was written: its exact head is due once it has rested."""
        self.by_timer.set(REST, lane.topic_id, self.time.timer_ms + TOPIC_IDLE_MS)

    # Refusals.

    def check_writable(self, shard: int, lane: Lane | None = None) -> None:
        fatal = self.shards[shard].read_only or (lane.read_only if lane is not None else None)
        if fatal is not None:
            what = f"shard {shard} is read-only since a write failed ({fatal.message})"
            if "how" in fatal.detail:  # from the opening on
                what = f"nothing is written: {fatal.message}"
            how = fatal.detail.get("how", "restart to recover")
            raise Rejected(Code.STORAGE_READ_ONLY, f"{what}; reads go on; {how}", shard=shard)

    def check_space(self, shard_number: int, size: int, *, keep_reserve: bool) -> None:
        """Room for `size` more bytes, before any seq: appends and creations leave the reserve alone (storage 3)."""
        shard = self.shards[shard_number]
        needed = shard.unwritten_bytes + size + (self.limits.wal_reserve if keep_reserve else 0)
        if needed > shard.space_left:
            short = shard.shortage or _UNKNOWN_SHORTAGE
            raise Rejected(
                Code.DISK_LOW,
                f"nothing was written: {short.message}",
                **{**short.detail, "needed_bytes": needed, "shard": shard_number},
            )
        if not shard.may_wait(size):
            raise Rejected(
                Code.THROTTLED,
                f"{shard.pending_bytes} bytes wait to be written; retry",
                limit=PENDING_BYTES_MAX,
            )

    # Moves.

    def enqueue(self, shard: int, entry: Entry) -> None:
        """Hand frames to a shard. An ephemeral entry with nothing before it applies at once."""
        lane = entry.lane
        ticket = entry.ticket
        if ticket is not None:
            ticket.move(_PENDING)
        if entry.memory is not None and not entry.staged and lane is not None and lane.in_flight == 0:
            lane.in_flight += 1
            self.apply_entries((entry,), NOWHERE)
            self.finish_entry(entry)
            return
        self.shards[shard].add(entry)
        if lane is not None:
            lane.in_flight += 1

    def park(self, lane: Lane, ticket: Ticket) -> None:
        if len(lane.parked) >= PARKED_PER_TOPIC_MAX:
            raise Rejected(
                Code.THROTTLED,
                f"topic {lane.name!r}: {len(lane.parked)} commands wait behind a change of the topic; retry",
                limit=PARKED_PER_TOPIC_MAX,
            )
        ticket.move(Stage.WAITING)
        lane.parked.append(ticket)
        ticket.line = lane.parked

    def ride(self, ticket: Ticket, others: list[Ticket], answer: Entry | None = None) -> None:
        """Await the end of every one of these tickets, then answer by the entry, or be proposed again."""
        assert others
        assert ticket not in others
        ticket.move(Stage.WAITING)
        ride = Ride(ticket, len(others), answer)
        for other in others:
            self.rides.setdefault(other, []).append(ride)

    def answer(self, entry: Entry) -> None:
        """Answer by an entry without frames: at once, or behind a sync if it has to wait for one."""
        assert entry.lane is not None
        assert not entry.items
        if entry.waits_for_sync():
            assert entry.lane.barrier is None
            self.check_writable(entry.lane.shard, entry.lane)
            self.enqueue(entry.lane.shard, entry)
        else:
            self.finish_entry(entry)

    def withdraw(self, ticket: Ticket) -> None:
        """A ticket that waits never happens. Whoever it rides ends without it."""
        assert ticket not in self.rides
        assert not isinstance(ticket.command, (Sync, Checkpointed))
        ticket.move(Stage.WITHDRAWN)
        if ticket.line is not None and ticket in ticket.line:
            ticket.line.remove(ticket)
        elif isinstance(ticket.command, Claim):
            lane = self.lanes_by_name.get(ticket.command.topic)
            if lane is not None and lane.queue is not None:
                lane.queue.claimers.pop(ticket, None)

    def finish(self, ticket: Ticket, reply: Reply) -> None:
        ticket.move(DONE)
        ticket.reply = reply
        self._ended(ticket)

    def fail(self, ticket: Ticket, error: TopicsError) -> None:
        ticket.move(DONE)
        ticket.error = error
        self._ended(ticket)

    def tell(self, lane: Lane, news: News) -> None:
        told = self.effects.news
        before = told.get(lane.name)
        told[lane.name] = news if before is None else _BOTH[before, news]

    def tell_ended(self, lane: Lane, seqs: list[int]) -> None:
        """A lease of these jobs has ended."""
        if seqs:
            self.effects.ended_leases.setdefault(lane.topic_id, []).extend(seqs)

    def apply_entries(self, group: Sequence[Entry], at: Source) -> None:
        """Fold the items of the first, which has absorbed the others; their reservations end here, their lane may be
        free again.
        """
        entry = group[0]
        source = entry.memory if entry.memory is not None else at
        for item in entry.items:
            entry.outcome = apply(self.catalog, item, source)
        for each in group:
            each.release()
        lane = entry.lane
        if lane is None:
            return
        lane.in_flight -= len(group)
        assert lane.in_flight >= 0
        news = entry.news()
        if news is not NO_NEWS:
            self.tell(lane, news)
        topic = self.catalog.topics.get(lane.topic_id)
        if topic is not None:
            if lane.topic is None:
                lane.adopt(topic)
            if topic.jobs is not None:
                topic.jobs.advance(self.time.high_ms)  # counts in answers are as of now
            durable_seq = lane.durable_seq
            group[-1].settle()
            if lane.durable_seq != durable_seq:
                self.tell(lane, News.DURABLE)
            if topic.config.ttl_ms or topic.deadlines.count or self.by_time.at_ms(RETIRE, lane.topic_id):
                self.watch_expiry(lane)
            if lane.parked:
                self.wake(lane)
            queue = lane.queue
            if queue is not None and not (
                queue.is_still and self.by_time.at_ms(SERVE, lane.topic_id) == queue.jobs.next_due_ms()
            ):
                self.to_serve[lane.topic_id] = lane
            if self.routes.leading_from(lane.topic_id):
                self.to_forward[lane.topic_id] = lane
        else:  # it is gone; what waits behind that meets the next topic of its name
            self.release_parked(lane)
            self._fail_claimers(lane, no_topic(lane.name))
            if lane.queue is not None and lane.queue.jobs.ended is not None:
                self.tell_ended(
                    lane, lane.queue.jobs.ended + lane.queue.jobs.rows.jobs_in(JobState.IN_FLIGHT)
                )
            self.drop_lane(lane)
            self.routes.drop_touching(lane)

    def finish_entry(self, entry: Entry) -> None:
        """Answer the entry's ticket, unless its command has answered already."""
        ticket = entry.ticket
        if ticket is not None and not ticket.done:
            self.finish(ticket, entry.reply())

    def wake(self, lane: Lane) -> None:
        """Propose parked commands again once nothing is in flight (they park again behind the next barrier)."""
        if lane.in_flight == 0 and lane.barrier is None and lane.topic is not None:
            self.release_parked(lane)

    def release_parked(self, lane: Lane) -> None:
        self.ready.extend((ticket, None) for ticket in lane.parked)
        lane.parked.clear()

    def fail_shard(self, shard: Shard, error: Fatal, entries: list[Entry]) -> None:
        """Everything of the shard on its way fails; it is read-only until restart (storage 3)."""
        assert shard.in_flight is None
        shard.read_only = error
        self.by_timer.drop(SYNC, shard.number)
        failed = entries + shard.pending
        shard.pending = []
        shard.pending_bytes = 0
        for entry in failed:
            entry.release()
            if entry.lane is not None:
                entry.lane.in_flight -= 1
                if entry.lane.shard != shard.number and entry.lane.topic is not None:
                    if entry.frames:  # else it only waited there (`routers.settling`)
                        self._leave_unknown(entry.lane, error)
                    else:
                        self.wake(entry.lane)
            if entry.ticket is not None and not entry.ticket.done:
                self.fail(entry.ticket, error)
        for lane in list(self.lanes.values()):
            if lane.topic is None:
                if shard.number == 0:  # all creations go by shard 0
                    self._fail_parked(lane, error)
                    self.drop_lane(lane)
            elif lane.shard == shard.number:
                self._fail_parked(lane, error)
                lane.next_seq = lane.topic.head_seq + 1  # what failed was assigned and never published
                self.to_serve[lane.topic_id] = lane  # for the leases that have run out meanwhile
        self.to_forward |= {source.topic_id: source for source in self.routes.fall_back(shard.number)}

    def _leave_unknown(self, lane: Lane, error: Fatal) -> None:
        """The topic's deletion may or may not be in the failed shard's file: until that is known, nothing is written
        to it that recovery might take away with it. Reads go on.
        """
        lane.read_only = error
        self._fail_parked(lane, error)

    def _fail_claimers(self, lane: Lane, error: TopicsError) -> None:
        claimers = {} if lane.queue is None else lane.queue.claimers
        for ticket in list(claimers):
            del claimers[ticket]
            self.fail(ticket, error)

    def _fail_parked(self, lane: Lane, error: Fatal) -> None:
        self._fail_claimers(lane, error)
        parked = list(lane.parked)
        lane.parked.clear()
        for ticket in parked:
            self.fail(ticket, error)

    def _ended(self, ticket: Ticket) -> None:
        self.effects.finished.append(ticket)
        if ticket.firing:
            self.by_time.set(FIRE, ticket.firing, self.time.high_ms)
        for ride in self.rides.pop(ticket, ()) if self.rides else ():
            ride.awaited -= 1
            if ticket.error is not None:
                ride.answer = None
            if ride.awaited == 0 and ride.ticket.stage is Stage.WAITING:
                if isinstance(ticket.error, Fatal):
                    self.fail(ride.ticket, ticket.error)
                else:
                    self.ready.append((ride.ticket, ride.answer))


def no_topic(name: str) -> Rejected:
    """What a name that is not there answers."""
    return Rejected(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist", topic=name)
