"""Intent, append, end: what is under way into each topic, and the orders that drivers carry out (queues 3).

    begin_move      DeadLettered in the source's log, synced: from then on the record is nobody's
    Moves.take      an order: the driver reads the records and proposes the append, synced
    Moves.appended  Moved in the source's log, in its class: the records are deleted there

Each of the three has a later ts than the one before. One order is out at a time for a topic that records go to, until
its end is applied; so what has arrived and is not yet ended there is of one order, and its ids are among the newest.
What a crash has left of it is found by them and ended; the rest is ordered again.

A refusal leaves the records moving and is followed by a rest. An order that is too much at once is halved first.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from topics.codec.log.leases import DeadLettered, Moved
from topics.engine.batch import Entry
from topics.engine.deadlines.timers import MOVE
from topics.engine.lane import Lane
from topics.engine.moving.letters import move_id
from topics.engine.moving.orders import MoveOrder, MovesInto
from topics.engine.replies import Redriven
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected, TopicsError
from topics.kernel.limits import (
    MOVE_BYTES_MAX,
    MOVE_RETRY_MAX_MS,
    MOVE_RETRY_MS,
    MOVES_INTO_TOPIC_MAX,
)
from topics.log.reads.waiting import News
from topics.log.topic import Topic

_TOO_MUCH: Final = frozenset((Code.TOPIC_FULL, Code.RECORD_TOO_LARGE, Code.DISK_LOW))


def begin_move(
    state: EngineState, lane: Lane, seqs: Iterable[int], dest: str, reason: bytes, now_ms: int,
    ticket: Ticket | None = None,
) -> Sequence[int]:  # fmt: skip
    """Log that records of a topic go to another one. Returns those of `seqs` that do: not what is gone or on its way
    already, and no more than `dest` has room for (1000 under way); none while the topic itself is being changed. Who
    has more says so again, when time comes or a move has ended.

    Raises:
        Rejected: disk_low, throttled or storage_read_only; nothing was begun.
    """
    topic = lane.topic
    assert topic is not None
    assert dest != lane.name
    if lane.barrier is not None:
        return ()
    begun = _movable(lane, topic, seqs, _room(state, dest))
    if not begun:
        return ()
    state.check_writable(lane.shard, lane)
    ephemeral = topic.config.durability is Durability.EPHEMERAL
    entry = _Intent.of(
        lane, [DeadLettered(dest.encode(), reason, array("Q", begun))], now_ms,
        staged=not ephemeral, must_sync=not ephemeral, ticket=ticket, memory=b"" if ephemeral else None,
    )  # fmt: skip
    state.check_space(lane.shard, entry.size, keep_reserve=True)
    entry.state, entry.into, entry.seqs = state, _into(state, dest), begun
    entry.reserve()
    state.enqueue(lane.shard, entry)
    return begun


def under_way(state: EngineState, dest: str) -> int:
    """How many records are on their way into a topic."""
    into = state.moves.get(dest)
    if into is None:
        return 0
    return into.reserved + sum(len(_moves_of(state, topic_id, dest)) for topic_id in into.sources)


def resume_moves(state: EngineState) -> None:
    """After recovery: intents that have no end are taken up again, first those of which something has arrived."""
    for is_first in (True, False):
        for topic in state.catalog.topics.values():
            for seq, move in topic.moving().items():
                if is_first and not _arrived(state, topic, move.dest, [seq]):
                    continue
                into = _into(state, move.dest)
                into.sources[topic.topic_id] = None
                into.after_ts = max(into.after_ts, move.ts)
                into.due_ms = state.time.timer_ms
    _set_timer(state)


def resume_due_moves(state: EngineState, _number: int, _now_ms: int) -> None:
    """The time of some topic that records go to has come."""
    for into in list(state.moves.values()):
        if into.due_ms is not None and into.due_ms <= state.time.timer_ms:
            into.due_ms = None
            state.time.witness(into.after_ts + 1)
            _next(state, into, state.time.high_ms)
    _set_timer(state)


class Moves:
    """The engine's side of moves, for drivers. `settle`: the end of each of the engine's calls."""

    def __init__(self, state: EngineState, settle: Callable[[], None]) -> None:
        self._state = state
        self._settle = settle

    def take(self) -> MoveOrder | None:
        """What to move next. Whoever takes an order tells its end."""
        return self._state.orders.popleft() if self._state.orders else None

    def appended(self, order: MoveOrder) -> None:
        """Its records are where they go, synced, or have died."""
        state, into = self._state, self._state.moves[order.dest]
        assert into.order is order
        used_ms = state.time.high_ms  # the append was not later
        now_ms = state.time.read()
        into.is_appended, into.failures, into.after_ts = True, 0, max(into.after_ts, used_ms)
        into.together = min(into.together * 2, MOVES_INTO_TOPIC_MAX)
        _wake(state, into, now_ms)
        self._settle()

    def failed(self, order: MoveOrder, error: TopicsError | None) -> None:
        """They are not there, or nobody knows; None if it was given up. It is tried again."""
        state, into = self._state, self._state.moves.get(order.dest)
        if into is None or into.order is not order:
            return  # whoever gives it up comes too late
        into.put_back()
        state.time.read()
        is_too_much = isinstance(error, Rejected) and error.code in _TOO_MUCH
        if is_too_much and len(order.moves) > 1:
            into.together = len(order.moves) // 2
            _rest(state, into, 0)
        elif order.topic_id in state.lanes:
            _fail(state, into)
        else:  # it was deleted meanwhile
            _rest(state, into, 0)
        self._settle()

    @property
    def blocked(self) -> int:
        """Records that could not be moved when it was last tried (`dead_letter_blocked`)."""
        state = self._state
        return sum(under_way(state, into.dest) for into in state.moves.values() if into.failures)


class _Intent(Entry, eq=False, kw_only=True):
    """Records that begin to go elsewhere."""

    lane: Lane
    state: EngineState | None = None
    into: MovesInto | None = None
    seqs: Sequence[int] = ()

    def reserve(self) -> None:
        assert self.into is not None
        self.into.reserved += len(self.seqs)
        self.lane.moving.update(self.seqs)
        if self.lane.queue is not None:
            self.lane.queue.busy.update(self.seqs)

    def release(self) -> None:
        assert self.into is not None
        self.into.reserved -= len(self.seqs)
        self.lane.moving.difference_update(self.seqs)
        if self.lane.queue is not None:
            self.lane.queue.busy.difference_update(self.seqs)

    def reply(self) -> Redriven:
        """Nobody waits for the others."""
        assert self.into is not None
        return Redriven(topic=self.into.dest, source=self.lane.name, seqs=self.seqs)

    def settle(self) -> None:
        state, into = self.state, self.into
        assert state is not None
        assert into is not None
        into.sources[self.lane.topic_id] = None
        into.after_ts = max(into.after_ts, self.items[-1].ts)
        if into.order is None and into.due_ms is None:
            _wake(state, into, state.time.high_ms)


class _End(Entry, eq=False, kw_only=True):
    """Records that are elsewhere now. `into`: of whose order they are, if of any."""

    lane: Lane
    state: EngineState | None = None
    into: MovesInto | None = None

    def settle(self) -> None:
        if self.state is not None and self.into is not None:
            self.into.put_back()
            _wake(self.state, self.into, self.state.time.high_ms)

    def news(self) -> News:
        return News.FLOORS


def _room(state: EngineState, dest: str) -> int:
    """So many records more may begin to go there. Those that have died are told apart only where there is no room."""
    into, topics = state.moves.get(dest), state.catalog.topics
    if into is None:
        return MOVES_INTO_TOPIC_MAX
    known = [topics[topic_id].moves for topic_id in into.sources if topic_id in topics]
    at_most = into.reserved + sum(map(len, known))
    return MOVES_INTO_TOPIC_MAX - (at_most if at_most < MOVES_INTO_TOPIC_MAX else under_way(state, dest))


def _movable(lane: Lane, topic: Topic, seqs: Iterable[int], room: int) -> list[int]:
    begun = dict[int, None]()
    for seq in seqs:
        if len(begun) >= room:
            break
        if seq not in lane.moving and seq not in topic.moves and topic.index.is_live(seq):
            begun[seq] = None
    return list(begun)


def _into(state: EngineState, dest: str) -> MovesInto:
    into = state.moves.get(dest)
    if into is None:
        into = state.moves[dest] = MovesInto(dest)
    return into


def _moves_of(state: EngineState, topic_id: int, dest: str) -> list[int]:
    """The records of a topic that go to `dest`, by seq."""
    topic = state.catalog.topics.get(topic_id)
    return [] if topic is None else sorted(seq for seq, move in topic.moving().items() if move.dest == dest)


def _arrived(state: EngineState, source: Topic, dest: str, seqs: Iterable[int]) -> list[int]:
    """Those that are in `dest` already, synced: a process has died before it could say so here."""
    lane = state.lanes_by_name.get(dest)
    if lane is None or lane.topic is None:
        return []
    find, moving = lane.topic.dedup_ids.find, source.moving()
    ids = {seq: move_id(source.topic_id, source.epoch, seq, moving[seq].reason) for seq in seqs}
    return [seq for seq, move in ids.items() if 0 < (find(move, 0) or 0) <= lane.durable_seq]


def _wake(state: EngineState, into: MovesInto, now_ms: int) -> None:
    """Go on, as soon as it is later than what has been."""
    if now_ms > into.after_ts:
        _next(state, into, now_ms)
    else:
        _rest(state, into, 1)


def _next(state: EngineState, into: MovesInto, now_ms: int) -> None:
    if into.order is None:
        _give_order(state, into)
    elif into.is_appended and not into.is_ending:
        _end(state, into, now_ms)


def _give_order(state: EngineState, into: MovesInto) -> None:
    """The next records of the topic whose turn it is; if there are none, nothing more is known of this dest."""
    dest = state.catalog.find(into.dest)
    for topic_id in list(into.sources):
        del into.sources[topic_id]
        seqs = _moves_of(state, topic_id, into.dest)
        if not seqs:
            continue
        into.sources[topic_id] = None  # behind the others
        source = state.catalog.topics[topic_id]
        of_dest = None if dest is None else dest.config.durability
        loses = of_dest is Durability.EPHEMERAL is not source.config.durability
        if loses:  # it would end what is durable in memory
            _fail(state, into)
            return
        moving, arrived = source.moving(), _arrived(state, source, into.dest, seqs)
        into.order = MoveOrder(
            topic=source.name, topic_id=topic_id, epoch=source.epoch, dest=into.dest,
            moves={seq: moving[seq] for seq in arrived or _fitting(source, seqs[: into.together])},
        )  # fmt: skip
        if arrived:
            into.is_appended, into.after_ts = True, max(into.after_ts, state.time.high_ms)
            _wake(state, into, state.time.high_ms)
        else:
            state.orders.append(into.order)
        return
    if not into.reserved:
        del state.moves[into.dest]


def _fitting(topic: Topic, seqs: Sequence[int]) -> Sequence[int]:
    """As many as one append takes: by their bytes, one at least."""
    index, room = topic.index, MOVE_BYTES_MAX
    for number, seq in enumerate(seqs):
        if room < 0:
            return seqs[:number]
        room -= index.lengths[index.position(seq)]
    return seqs


def _end(state: EngineState, into: MovesInto, now_ms: int) -> None:
    """The order's records are there: they go here. Until that is in the log no other order is given."""
    order = into.order
    assert order is not None
    lane = state.lanes.get(order.topic_id)
    left = [] if lane is None or lane.topic is None else [s for s in order.moves if s in lane.topic.moving()]
    if lane is None or not left:
        into.put_back()
        _give_order(state, into)
        return
    assert lane.topic is not None
    durability = lane.topic.config.durability
    synced, ephemeral = durability is Durability.FSYNC, durability is Durability.EPHEMERAL
    entry = _End.of(
        lane, [Moved(array("Q", left))], now_ms, staged=synced, must_sync=synced, memory=b"" if ephemeral else None
    )  # fmt: skip
    try:
        if lane.barrier is not None:
            raise Rejected(Code.THROTTLED, f"topic {lane.name!r} is being changed")
        state.check_writable(lane.shard, lane)
        state.check_space(lane.shard, entry.size, keep_reserve=False)
    except Rejected:
        _fail(state, into)
        return
    entry.state, entry.into, into.is_ending = state, into, True
    state.enqueue(lane.shard, entry)


def _fail(state: EngineState, into: MovesInto) -> None:
    """It is tried again later, the later the more often it has failed."""
    _rest(state, into, min(MOVE_RETRY_MS << min(into.failures, 16), MOVE_RETRY_MAX_MS))
    into.failures += 1


def _rest(state: EngineState, into: MovesInto, wait_ms: int) -> None:
    into.due_ms = state.time.timer_ms + wait_ms
    _set_timer(state)


def _set_timer(state: EngineState) -> None:
    due = [into.due_ms for into in state.moves.values() if into.due_ms is not None]
    if due:
        state.by_timer.set(MOVE, 0, min(due))
    else:
        state.by_timer.drop(MOVE, 0)
