"""Claims, those that wait too, and the pass that deals ready jobs out to them (queues 3).

A claim always joins those that wait. Whenever something of the queue has changed, or its time has come, a pass serves
them all, in one frame: with `claim_jitter_ms` 0 one after the other, else what came within the window shares the jobs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import and_, eq
from typing import Final

from topics.codec.log.leases import Claimed, Grant
from topics.engine.batch import Entry
from topics.engine.commands import Claim
from topics.engine.deadlines.timers import SERVE, WAITED, Timers
from topics.engine.lane import Lane
from topics.engine.moving.moves import begin_move
from topics.engine.queue.waiting import Claimer, QueueLane
from topics.engine.replies import JobsClaimed, LeasedJob
from topics.engine.state import EngineState
from topics.engine.tickets import Stage, Ticket
from topics.engine.writing.change import in_lease_class
from topics.kernel.errors import Rejected, not_a_queue
from topics.kernel.grouped import grouped, values_at
from topics.kernel.limits import PASS_JOBS_MAX
from topics.log.jobs.rows import TOGETHER_MIN
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic

_FRAME_ROOM: Final = 256  # of a frame without its seqs and nodes
_GIVE_UP_RETRY_MS: Final = 1000
_leased_job: Final = partial(tuple.__new__, LeasedJob)  # its own `__new__` costs three times as much


def propose_claim(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Join those that wait; the pass comes at the end of the call."""
    command = ticket.command
    assert isinstance(command, Claim)
    queue, topic = queue_of(lane)
    state.check_writable(lane.shard, lane)
    if command.told_end and queue.jobs.ended is None:
        queue.jobs.ended = []
    if not queue.claimers:
        queue.window_ms = None  # of a cohort that was withdrawn
    if topic.config.claim_jitter_ms and queue.window_ms is None:
        queue.window_ms = now_ms + topic.config.claim_jitter_ms
    until_ms = None if command.wait_ms is None else state.time.timer_ms + command.wait_ms
    ticket.move(Stage.WAITING)
    queue.join(Claimer(ticket, command, until_ms))
    state.to_serve[lane.topic_id] = lane


def queue_of(lane: Lane) -> tuple[QueueLane, Topic]:
    """The queue of a topic that stands.

    Raises:
        Rejected: not_a_queue.
    """
    topic = lane.topic
    assert topic is not None
    if lane.queue is None:
        raise not_a_queue(topic.name)
    return lane.queue, topic


def serve_claims(state: EngineState, lane: Lane, now_ms: int) -> None:
    """Let time pass, deal out what is ready, answer those whose wait is over, and note when to look again."""
    queue, topic = lane.queue, lane.topic
    if (
        queue is None
        or topic is None
        or lane.barrier is not None
        or state.lanes.get(lane.topic_id) is not lane
    ):
        return
    queue.jobs.advance(now_ms)
    if queue.jobs.ended is not None:
        state.tell_ended(lane, queue.jobs.ended)
        queue.jobs.ended = []
    again_ms = queue.jobs.next_due_ms()
    if topic.config.deliveries_max_of(topic.name):
        retry_ms = _give_up(state, lane, queue, topic, now_ms)
        again_ms = _sooner(again_ms, retry_ms)
    if queue.claimers and not queue.jobs.paused:
        # A queue that gathers no cohorts any more has none to wait for.
        if queue.window_ms is None or queue.window_ms <= now_ms or not topic.config.claim_jitter_ms:
            queue.window_ms = None
            due_ms = _deal(state, lane, queue, topic, now_ms)
        else:
            due_ms = queue.window_ms
        again_ms = _sooner(again_ms, due_ms)
    if not queue.claimers:
        queue.forget_old_news()
    elif queue.window_ms is None or queue.jobs.paused:
        for ticket in queue.take_ended(state.time.timer_ms):
            state.finish(ticket, _nothing(lane, queue, topic))
    _set(state.by_time, SERVE, lane, again_ms)
    _set(state.by_timer, WAITED, lane, queue.first_end_ms())


def _give_up(state: EngineState, lane: Lane, queue: QueueLane, topic: Topic, now_ms: int) -> int | None:
    """Jobs that have had all their deliveries go to the dead letters, each with why its last one failed.

    Returns when to try again, if some have to stay.
    """
    dest, order = topic.config.dead_letter_of(topic.name), queue.ready_order(topic)
    assert dest is not None
    if not order.exhausted or state.shards[lane.shard].read_only is not None:
        return None
    by_reason: dict[bytes, list[int]] = {}
    for seq in order.exhausted:
        if topic.index.is_live(seq):
            by_reason.setdefault(queue.jobs.reason(seq), []).append(seq)
    begun: set[int] = set()
    for reason, seqs in by_reason.items():
        try:
            some = begin_move(state, lane, seqs, dest, reason, now_ms)
        except Rejected:  # no space, or too much waits to be written
            break
        begun.update(some)
        if len(some) < len(seqs):  # as many are under way as may be
            break
    order.exhausted = [seq for seqs in by_reason.values() for seq in seqs if seq not in begun]
    return now_ms + _GIVE_UP_RETRY_MS if order.exhausted else None


def _deal(state: EngineState, lane: Lane, queue: QueueLane, topic: Topic, now_ms: int) -> int | None:
    """Serve those that wait. Returns when the rate limit lets the next job go, if only that is in the way."""
    together, order = bool(topic.config.claim_jitter_ms), queue.ready_order(topic)
    while queue.claimers:
        group = list(queue.claimers.values())
        if together:
            turn = queue.turn % len(group)
            group = group[turn:] + group[:turn]
        elif len(group) > 1:  # no more get any
            del group[max(queue.counts(topic)[0], 1) :]
        room, due_ms = _room(queue, topic, now_ms)
        if not room:
            return due_ms
        asked = group[0].asks.count_max if len(group) == 1 else sum(one.asks.count_max for one in group)
        wanted = min(asked, room, PASS_JOBS_MAX)
        try:
            size = _FRAME_ROOM * (1 + len(group)) + 8 * min(wanted, topic.index.live_count)
            state.check_space(lane.shard, size, keep_reserve=True)
        except Rejected as refused:
            for claimer in group:
                del queue.claimers[claimer.ticket]
                state.fail(claimer.ticket, refused)
            continue
        credit = order.credit
        seqs = order.take(wanted, now_ms)
        if not seqs:
            return None
        if len(seqs) == 1:  # of whatever size
            dealt = [(group[0], seqs)]
        else:
            sizes = values_at(topic.index.sizes, topic.index.find_all(seqs))
            hands = (_shared_out if together else _in_turn)(group, seqs, sizes)
            dealt = [(claimer, hand) for claimer, hand in zip(group, hands, strict=True) if hand]
            count = sum(len(hand) for _, hand in dealt)
            if count < len(seqs):
                order.hand_out(seqs, count, credit)
        queue.turn += together
        _grant(state, lane, queue, topic, dealt, now_ms)
        if together:
            break
    return None


def _room(queue: QueueLane, topic: Topic, now_ms: int) -> tuple[int, int | None]:
    """(how many more jobs may be leased now, when more may, if that is a matter of the rate)."""
    config, room = topic.config, PASS_JOBS_MAX
    if config.max_in_flight:
        held = queue.jobs.counts[JobState.IN_FLIGHT] + queue.claiming
        room = min(room, max(config.max_in_flight - held, 0))
        if not room:
            return 0, None
    limit = config.rate_limit
    if limit is not None:
        tokens = queue.jobs.bucket.at(now_ms, limit) - queue.claiming * limit.per_ms
        room = min(room, max(tokens // limit.per_ms, 0))
        if not room:
            return 0, now_ms + -(-(limit.per_ms - tokens) // limit.count)
    return room, None


def _grant(
    state: EngineState, lane: Lane, queue: QueueLane, topic: Topic, dealt: Sequence[tuple[Claimer, Sequence[int]]],
    now_ms: int,
) -> None:  # fmt: skip
    """Log who has which jobs, and answer each behind that."""
    lease_ms = topic.config.lease_ms
    grants, seqs = list[Grant](), array("Q")
    for claimer, hand in dealt:
        grants.append(Grant(claimer.asks.node, now_ms + (claimer.asks.lease_ms or lease_ms), len(hand)))
        seqs.extend(hand)
        del queue.claimers[claimer.ticket]
        claimer.ticket.move(Stage.NEW)
    event = Claimed(state.lease_nonce, state.next_lease, tuple(grants), seqs)
    state.next_lease += len(seqs)
    queue.claiming += len(seqs)
    whole = in_lease_class(state, _Pass, lane, dealt[0][0].ticket, [event], now_ms)
    whole.event, whole.count = event, len(dealt[0][1])
    state.enqueue(lane.shard, whole)
    first = whole.count
    for claimer, hand in dealt[1:]:
        answer = _Answer(
            lane=lane, items=(), chunks=(), size=0, frames=0, staged=whole.staged, must_sync=whole.must_sync,
            ticket=claimer.ticket, ordered=False, memory=whole.memory, whole=whole, first=first, count=len(hand),
        )  # fmt: skip
        first += len(hand)
        state.enqueue(lane.shard, answer)


def _in_turn(group: Sequence[Claimer], seqs: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """To the first its number or its bytes, then to the next."""
    hands: list[list[int]] = []
    first = 0
    for claimer in group:
        command = claimer.asks
        hand = seqs[first : first + command.count_max]
        if hand and sum(sizes[first : first + len(hand)]) > command.bytes_max:
            fitting = bisect_right(list(accumulate(sizes[first : first + len(hand)])), command.bytes_max)
            del hand[max(fitting, 1) :]
        hands.append(hand)
        first += len(hand)
    return hands


def _shared_out(group: Sequence[Claimer], seqs: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """One job a round to each, until each has its number or its bytes."""
    hands: list[list[int]] = [[] for _ in group]
    bytes_left = [claimer.asks.bytes_max for claimer in group]
    open_hands = list(range(len(group)))
    number = 0
    while open_hands:
        for i in list(open_hands):
            if number == len(seqs):
                return hands
            if hands[i] and sizes[number] > bytes_left[i]:
                open_hands.remove(i)
                continue
            hands[i].append(seqs[number])
            bytes_left[i] -= sizes[number]
            number += 1
            if len(hands[i]) == group[i].asks.count_max:
                open_hands.remove(i)
    return hands


class _Pass(Entry, eq=False, kw_only=True):
    """Jobs on their way to who claimed them. It passes the topic's writes by: it is of records that are published.
    `count`: those of its ticket; the others have answers behind it.
    """

    lane: Lane
    event: Claimed | None = None
    count: int = 0
    told: Sequence[LeasedJob | None] | None = None

    def absorb(self, other: Entry) -> bool:
        return isinstance(other, _Answer) and other.whole is self

    def reply(self) -> JobsClaimed:
        return self.dealt(0, self.count)

    def dealt(self, first: int, count: int) -> JobsClaimed:
        """The answer to who got these."""
        lane = self.lane
        assert self.event is not None
        assert lane.topic is not None
        assert lane.queue is not None
        if count >= TOGETHER_MIN:
            told = self._leased(first, first + count)
        elif count == len(self.event.seqs) == 1:
            told = [self._leased_one()]
        else:  # all of the pass is looked at once
            if self.told is None:
                self.told = self._leased(0, len(self.event.seqs))
            told = self.told[first : first + count]
        jobs = [job for job in told if job is not None]
        lane.queue.claims += 1
        lane.queue.claimed += len(jobs)
        return JobsClaimed(
            topic=lane.name, topic_id=lane.topic_id, jobs=jobs, ready=lane.queue.counts(lane.topic)[0]
        )

    def _leased(self, first: int, stop: int) -> Sequence[LeasedJob | None]:
        """The jobs [first, stop) as they were leased; None: it has ended meanwhile."""
        queue, event = self.lane.queue, self.event
        assert event is not None
        assert queue is not None
        jobs, rows, seqs = queue.jobs, queue.jobs.rows, event.seqs[first:stop]
        given = range(event.first_lease + first, event.first_lease + stop)
        group = grouped(jobs.rows_of(seqs))
        fields = zip(
            seqs, repeat(event.nonce), given, values_at(rows.until, group), values_at(rows.deliveries, group),
            jobs.priorities(seqs), strict=False,
        )  # fmt: skip
        lasting = bytes(
            map(and_, values_at(rows.leased, group), map(eq, values_at(rows.counters, group), given))
        )
        if 0 not in lasting:
            return list(map(_leased_job, fields))
        return [_leased_job(of) if lasts else None for of, lasts in zip(fields, lasting, strict=True)]

    def _leased_one(self) -> LeasedJob | None:
        """As `_leased`, of a pass with one job."""
        queue, event = self.lane.queue, self.event
        assert event is not None
        assert queue is not None
        jobs, rows, seq, given = queue.jobs, queue.jobs.rows, event.seqs[0], event.first_lease
        row = jobs.row(seq)
        if not rows.leased[row] or rows.counters[row] != given:
            return None
        return LeasedJob(seq, event.nonce, given, rows.until[row], rows.deliveries[row], jobs.priority(seq))

    def release(self) -> None:
        queue, event = self.lane.queue, self.event
        assert queue is not None
        assert queue.order is not None
        assert event is not None
        queue.claiming -= len(event.seqs)
        queue.order.kept(event.seqs)


class _Answer(Entry, eq=False, kw_only=True):
    """What another claimer of a pass is told, with it."""

    lane: Lane
    whole: _Pass
    first: int
    count: int

    def reply(self) -> JobsClaimed:
        return self.whole.dealt(self.first, self.count)


def _nothing(lane: Lane, queue: QueueLane, topic: Topic) -> JobsClaimed:
    queue.claims += 1
    return JobsClaimed(topic=lane.name, topic_id=lane.topic_id, jobs=(), ready=queue.counts(topic)[0])


def _sooner(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return min(one_ms, other_ms)


def _set(timers: Timers, kind: int, lane: Lane, at_ms: int | None) -> None:
    if at_ms is None:
        timers.drop(kind, lane.topic_id)
    else:
        timers.set(kind, lane.topic_id, at_ms)
