"""What time alone brings: floors that TTL moves, exact heads of rested topics, timed syncs. And when to look again.

Each kind is a row: what is due of whom is in `Timers`, of the engine's time (TTL) or of `timer_ms` (rest, syncs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from topics.codec.log.control import HeadWatermark
from topics.engine.batch import Entry, sync_point
from topics.engine.commands import Retire
from topics.engine.deadlines.timers import FIRE, FORWARD, MOVE, REST, RETIRE, SERVE, SYNC, WAITED
from topics.engine.lane import Lane
from topics.engine.moving import moves
from topics.engine.routers import late
from topics.engine.schedules import firing
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.change import propose_retire
from topics.kernel.config import Durability
from topics.kernel.errors import Rejected
from topics.kernel.limits import FLOOR_STALENESS_MS, TICK_TOPICS_MAX

_EXACT_HEAD_ROOM: Final = 1024


def tick(state: EngineState, now_ms: int) -> None:
    """Do what is due, a bounded amount of it."""
    for kind, number in state.by_time.take_due(now_ms, TICK_TOPICS_MAX):
        _BRINGS[kind](state, number, now_ms)
    for kind, number in state.by_timer.take_due(state.time.timer_ms, TICK_TOPICS_MAX):
        _BRINGS[kind](state, number, now_ms)


def next_deadline_ms(state: EngineState) -> int | None:
    """When there is something to do by time alone, None for never: in the engine's time, as if it went on while a clock
    that was set back catches up, so that the distance to now is what passes until then.
    """
    time = state.time
    due: list[int] = []
    if (first := state.by_time.first_ms()) is not None:
        due.append(first if first <= time.high_ms else first + time.behind_ms)
    if (first := state.by_timer.first_ms()) is not None:
        due.append(time.high_ms + max(first - time.timer_ms, 0))
    return min(due, default=None)


def log_exact_head(state: EngineState, lane: Lane, now_ms: int) -> None:
    """The head of a rested topic, so that a crash takes no seq from it. Left for later if it has not rested, or if
    there is no room: it is an improvement, never worth a failed shard.
    """
    topic, shard = lane.topic, state.shards[lane.shard]
    assert topic is not None
    state.by_timer.drop(REST, lane.topic_id)
    if topic.config.durability is Durability.FSYNC or lane.ceiling == lane.next_seq - 1:
        return
    if shard.read_only is not None:
        return
    if not lane.idle or shard.unwritten_bytes + _EXACT_HEAD_ROOM > shard.space_left:
        state.touch(lane)
        return
    lane.lower_ceiling()
    head = Entry.of(lane, [HeadWatermark(lane.ceiling)], now_ms, staged=False, must_sync=False)
    state.enqueue(lane.shard, head)


def log_exact_heads(state: EngineState, now_ms: int) -> None:
    """Of every topic."""
    for lane in list(state.lanes.values()):
        if lane.topic is not None:
            log_exact_head(state, lane, now_ms)


def _rest(state: EngineState, topic_id: int, now_ms: int) -> None:
    log_exact_head(state, state.lanes[topic_id], now_ms)


def _retire(state: EngineState, topic_id: int, now_ms: int) -> None:
    lane = state.lanes[topic_id]
    assert lane.topic is not None
    if lane.blocked or lane.retiring is not None or now_ms - lane.topic.watermark_ms < FLOOR_STALENESS_MS:
        state.by_time.set(RETIRE, topic_id, now_ms + FLOOR_STALENESS_MS)
        return
    try:
        propose_retire(state, lane, Ticket(Retire(topic=lane.name)), now_ms)
    except Rejected:  # no space, or read-only: nothing is lost by trying later
        state.by_time.set(RETIRE, topic_id, now_ms + FLOOR_STALENESS_MS)


def _sync(state: EngineState, number: int, _now_ms: int) -> None:
    shard = state.shards[number]
    assert shard.unsynced
    assert shard.read_only is None
    if shard.in_flight is None or not shard.in_flight.sync:  # else it is on its way
        state.enqueue(number, sync_point())


def _serve(state: EngineState, topic_id: int, _now_ms: int) -> None:
    state.to_serve[topic_id] = state.lanes[topic_id]


_BRINGS: Final[Mapping[int, Callable[[EngineState, int, int], None]]] = {
    RETIRE: _retire,
    REST: _rest,
    SYNC: _sync,
    SERVE: _serve,
    WAITED: _serve,
    MOVE: moves.resume_due_moves,
    FIRE: firing.fire_if_due,
    FORWARD: late.resume_router,
}
