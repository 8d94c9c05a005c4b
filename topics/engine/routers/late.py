"""Routers that are late: what was left behind is brought over by orders, as moves are (semantics 8).

    look               a source has got something, or more of it is durable: whoever of its routers is behind is told
    Forwards.take      an order: the driver reads the records and proposes `BringOver`
    propose_bring_over one plan: copies, what the source had lost, and what goes along by further routers
    Forwards.ended     the next order, or a rest, the longer the more often it was refused
    lose_rest          a source goes: what is still left is told as lost (decision 132)

What is late: dest is full, or being changed, or in another shard; the store is full; there was too much at once, or no
room in the log; a crash has left it so. Into another shard only what is durable goes, for a crash must not leave there
what it takes here; and it goes there in a later millisecond than it came here, for a restore must not, either (decision
115).

A range that the source's floor has passed is lost, whatever it held: nobody knows. One that a crash took is passed over
where dest is in the same shard, for the same crash has taken the copies and dest tells of it; in another shard nothing
was copied, so it is lost there as well. A record that is damaged, or longer than dest takes, is lost, too. A loss is
passed on as records are, but on a cycle it goes no further than the next topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from topics.codec.log.frame import FrameView
from topics.engine.batch import sync_point
from topics.engine.commands import BringOver
from topics.engine.deadlines.timers import FORWARD
from topics.engine.lane import Lane
from topics.engine.replies import BroughtOver
from topics.engine.routers.copies import columns_of, copy_columns, is_longer, with_origin
from topics.engine.routers.following import Copies, tell_passed
from topics.engine.routers.orders import ForwardOrder
from topics.engine.routers.route import RunningRouter
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected, TopicsError
from topics.kernel.limits import (
    FORWARD_HOPS_MAX,
    FORWARD_RECORDS_MAX,
    MOVE_BYTES_MAX,
    MOVE_RETRY_MAX_MS,
    MOVE_RETRY_MS,
    SCAN_SEQS_MAX,
)
from topics.log.floors import Reason
from topics.log.index import LIVE
from topics.log.routers import match_of

_TOO_MUCH: Final = frozenset((Code.TOPIC_FULL, Code.RECORD_TOO_LARGE, Code.DISK_LOW))


def order_late_copies(state: EngineState, lane: Lane) -> None:
    """Give orders for those of its routers that are behind, unless one is out or they rest."""
    assert lane.topic is not None
    for route in state.routes.leading_from(lane.topic_id):
        if route.order is not None or route.due_ms is not None:
            continue
        if route.sent < lane.topic.head_seq:
            _give_order(state, route)
        elif route.cursor < route.sent and route.cursor + 1 < lane.topic.evict_floor:
            tell_passed(state, route)


def resume_router(state: EngineState, router_id: int, _now_ms: int) -> None:
    """A rest is over."""
    route = state.routes.get(router_id)
    if route is not None:
        route.due_ms = None
        order_late_copies(state, route.source)


def lose_rest(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int, room: int) -> bool:
    """Before a source goes: dests of routers that are late say how many records do not come any more. False: the ticket
    waits for a dest that is being changed. `room`: of what is written behind that, in any log.

    Raises:
        Rejected: a log has no room for that; nothing was told.
    """
    routes = [route for route in state.routes.leading_from(lane.topic_id) if _is_told_of_end(state, route)]
    left = {route: count for route in routes if (count := _left(state, route))}
    for route in left:
        if route.dest.blocked:
            state.park(route.dest, ticket)
            return False
    if any(route.dest.shard != lane.shard for route in left):
        now_ms = state.time.push(now_ms)  # as for copies
    plans: dict[int, Copies] = {}  # by the shard of dest
    for route, count in left.items():
        plan = plans.setdefault(route.dest.shard, Copies(state, now_ms))
        plan.lose(route, route.source_topic.head_seq, count)
    for shard, plan in plans.items():
        state.check_space(shard, plan.size + room, keep_reserve=False)
    for plan in plans.values():
        staged = plan.staged
        plan.raise_ceilings()
        plan.begin(staged=staged, behind=False)
    return True


class Forwards:
    """The engine's side for drivers. `settle`: the end of each of the engine's calls."""

    def __init__(self, state: EngineState, settle: Callable[[], None]) -> None:
        self._state = state
        self._settle = settle

    def take(self) -> ForwardOrder | None:
        """What to bring over next. Whoever takes an order tells its end."""
        return self._state.forward_orders.popleft() if self._state.forward_orders else None

    def ended(self, order: ForwardOrder, error: TopicsError | None, *, is_there: bool) -> None:
        """It is there, or not; why not, unless the driver gave it up."""
        state, route = self._state, self._state.routes.get(order.router_id)
        if route is None or route.order is not order:
            return
        state.time.read()
        route.order = None
        is_too_much = isinstance(error, Rejected) and error.code in _TOO_MUCH
        if is_there:
            route.failures, route.together = 0, min(route.together * 2, FORWARD_RECORDS_MAX)
        elif is_too_much and len(order.seqs) > 1:
            route.together = len(order.seqs) // 2
        else:
            _rest(state, route, min(MOVE_RETRY_MS << min(route.failures, 16), MOVE_RETRY_MAX_MS))
            route.failures += 1
        order_late_copies(state, route.source)
        self._settle()


def propose_bring_over(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """All of an order at once, and what goes along by further routers. Raises `Rejected` with nothing changed."""
    command = ticket.command
    assert isinstance(command, BringOver)
    order, route = command.order, state.routes.get(command.order.router_id)
    if route is None or route.order is not order or order.first != route.sent + 1 or route.dest is not lane:
        state.finish(ticket, BroughtOver())
        return
    if route.source.blocked:  # perhaps the router is about to be another one, or to end
        state.park(route.source, ticket)
        return
    if not order.lost and order.first < route.source_topic.evict_floor:
        # Evicted since it was ordered, and not deleted: another order says so.
        state.finish(ticket, BroughtOver())
        return
    state.check_writable(lane.shard, lane)
    if route.dest_topic.config.durability is Durability.EPHEMERAL:
        raise Rejected(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {lane.name!r} is ephemeral: nothing is kept there",
            topic=lane.name,
        )
    if lane.shard != route.source.shard:
        if state.time.high_ms <= order.at_ms and not state.time.may_push():
            _rest(state, route, 1)
            state.finish(ticket, BroughtOver())
            return
        now_ms = state.time.push(order.at_ms)
    copies = _planned(state, route, command, now_ms)
    copies.go_on()
    if not state.shards[lane.shard].has_room(copies.size, reserve=state.limits.wal_reserve):
        copies = _planned(state, route, command, now_ms)  # alone: further routers are late, then
    state.check_space(lane.shard, copies.size, keep_reserve=True)
    staged = copies.staged
    copies.raise_ceilings()
    copies.begin(staged=staged, behind=False, ticket=ticket)


def _rest(state: EngineState, route: RunningRouter, wait_ms: int) -> None:
    """It gets its next order then."""
    route.order, route.due_ms = None, state.time.timer_ms + wait_ms
    state.by_timer.set(FORWARD, route.router.id, route.due_ms)


def _planned(state: EngineState, route: RunningRouter, command: BringOver, now_ms: int) -> Copies:
    """What this router brings of an order."""
    copies, order = Copies(state, now_ms), command.order
    if order.lost:
        copies.lose(route, order.last, order.lost)
    else:
        _plan(copies, route, order, command.views, set(command.damaged))
    if copies.sent(route) < order.last:
        copies.tell(route, order.last)
    return copies


def _plan(
    copies: Copies, route: RunningRouter, order: ForwardOrder, views: Sequence[FrameView], damaged: set[int]
) -> None:  # fmt: skip
    """Runs of records of one ts, and what is lost between them, in the order of their seqs."""
    longest = route.dest_topic.config.max_record_bytes
    found = {view.seq: view for view in views if not is_longer(view, longest)}
    lost = damaged | {view.seq for view in views if view.seq not in found}
    there = (seq for seq in order.seqs if seq in found or seq in lost)
    for view_of, group in groupby(
        there, lambda seq: (found[seq].ts, found[seq].hops) if seq in found else None
    ):
        seqs = list(group)
        if view_of is None:
            copies.lose(route, seqs[-1], len(seqs))
            continue
        ts, hops = view_of[0], copies.hops(route, view_of[1])
        if hops > FORWARD_HOPS_MAX:
            continue
        columns = columns_of([found[seq] for seq in seqs], ts)
        records = copy_columns(columns, route.router, to_queue=route.dest_topic.jobs is not None)
        records = with_origin(records, route.router, route.source_topic.epoch, seqs, hops)
        if not copies.fits(route, records):
            raise Rejected(
                Code.TOPIC_FULL,
                f"topic {route.dest.name!r} or the store is full: router {route.router.name!r} waits at seq"
                f" {route.sent} of {route.source.name!r}; delete records, or raise a cap",
                topic=route.dest.name,
                router=route.router.name,
            )
        copies.copy(route, records, seqs, last=seqs[-1], ts=ts, hops=hops)


def _give_order(state: EngineState, route: RunningRouter) -> None:
    """The next range that there is something to say of, if it may go now."""
    source, topic = route.source, route.source_topic
    head_seq = topic.head_seq
    if route.dest.shard != source.shard and source.durable_seq < head_seq:
        _ask_for_sync(state, source.shard)
        head_seq = source.durable_seq
    first = route.sent + 1
    if first > head_seq:
        return
    lost = topic.index.lost.at(first)
    if first < topic.evict_floor:
        route.order = _order(state, route, topic.evict_floor - 1, lost=topic.evict_floor - first)
    elif lost is not None:
        last = min(lost.last, head_seq)
        told = _is_told(state, route, lost.reason)
        route.order = _order(state, route, last, lost=0 if told else last + 1 - first)
    else:
        behind = topic.index.lost.next_from(first)
        last = head_seq if behind is None else min(head_seq, behind.first - 1)
        route.order = _order(state, route, *_wanted(state, route, last))
    state.forward_orders.append(route.order)


def _is_told(state: EngineState, route: RunningRouter, reason: str) -> bool:
    """Whether a loss of the source needs no word in dest: a crash has taken the copies as well, and says so there; or
    it came to the source by a router, and on a cycle it would go round for ever.
    """
    if reason == Reason.SOURCE_TRIM.value:
        return state.routes.is_cyclic(route)
    return reason == Reason.CRASH.value and route.dest.shard == route.source.shard


def _order(
    state: EngineState, route: RunningRouter, last: int, seqs: Sequence[int] = (), *, lost: int = 0
) -> ForwardOrder:
    return ForwardOrder(
        router_id=route.router.id, source=route.source.name, source_id=route.source.topic_id,
        dest=route.dest.name, first=route.sent + 1, last=last, at_ms=state.time.high_ms, seqs=seqs,
        lost=lost,
    )  # fmt: skip


def _wanted(state: EngineState, route: RunningRouter, last: int) -> tuple[int, list[int]]:
    """The seqs that go, as many as one order takes; and up to which seq that is all."""
    index = route.source_topic.index
    start, stop = index.position(route.sent + 1), index.position(last + 1)
    seqs: list[int] = []
    room = MOVE_BYTES_MAX
    for at in _going(state, route, start, min(stop, start + SCAN_SEQS_MAX)):
        if len(seqs) == route.together or room < 0:
            return seqs[-1], seqs
        seqs.append(index.seq_at(at))
        room -= index.lengths[at]
    return (last if stop - start <= SCAN_SEQS_MAX else index.seq_at(start + SCAN_SEQS_MAX) - 1), seqs


def _going(state: EngineState, route: RunningRouter, start: int, stop: int) -> Iterator[int]:
    """The positions of records that are live, not expired and let pass."""
    index, now_ms = route.source_topic.index, state.time.high_ms
    numbers = None if route.router.filter is None else set(match_of(route.router.filter).numbers(index.tags))
    for at in range(start, stop):
        if not index.flags[at] & LIVE:
            continue
        if numbers is not None and (index.tag_ids is None or index.tag_ids[at] not in numbers):
            continue
        if index.expires is None or not 0 < index.expires[at] < now_ms:
            yield at


def _is_told_of_end(state: EngineState, route: RunningRouter) -> bool:
    """Whether it is late, and dest keeps what it is told and can be told."""
    dest, durability = route.dest, route.dest_topic.config.durability
    is_late, is_kept = route.sent < route.source_topic.head_seq, durability is not Durability.EPHEMERAL
    return is_late and is_kept and dest.read_only is None and state.shards[dest.shard].read_only is None


def _left(state: EngineState, route: RunningRouter) -> int:
    """How many seqs of dest all that it has not come to would take."""
    topic, first = route.source_topic, route.sent + 1
    index, start = topic.index, max(first, topic.evict_floor)
    lost = sum(
        one.last + 1 - max(one.first, start)
        for one in index.lost
        if one.last >= start and not _is_told(state, route, one.reason)
    )
    going = _going(state, route, index.position(start), index.position(topic.head_seq + 1))
    return start - first + lost + sum(1 for _ in going)


def _ask_for_sync(state: EngineState, number: int) -> None:
    """Have what was written on a shard synced, unless that is asked for already."""
    shard = state.shards[number]
    if shard.read_only is None and not (shard.pending and shard.pending[-1].lane is None):
        state.enqueue(number, sync_point())
