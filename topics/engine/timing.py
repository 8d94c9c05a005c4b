"""What time alone brings: floors that TTL moves, exact heads of rested topics, and when to look again.

TTL counts the engine's time; rest and syncs count `timer_ms`, which goes on while a set-back clock catches up.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from topics.codec.control import HeadWatermark
from topics.engine.batch import Entry
from topics.engine.change import propose_retire
from topics.engine.commands import Retire
from topics.engine.lane import Lane
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Rejected
from topics.kernel.limits import FLOOR_STALENESS_MS, TICK_TOPICS_MAX, TOPIC_IDLE_MS

_EXACT_HEAD_ROOM: Final = 1024


def tick(state: EngineState, now_ms: int) -> None:
    """Log what is due, for a bounded number of topics."""
    for topic_id in state.expiry.take_due(now_ms, TICK_TOPICS_MAX):
        _retire(state, state.lanes[topic_id], now_ms)
    for lane in _rested(state):
        log_exact_head(state, lane, now_ms)


def next_deadline_ms(state: EngineState, sync_interval_ms: int) -> int | None:
    """When there is something to do by time alone, in the engine's time as of the last reading; None for never."""
    now_ms, timer_ms = state.time.high_ms, state.time.timer_ms
    syncing = [shard for shard in state.shards if shard.unsynced and shard.read_only is None]
    timers = [shard.synced_ms + sync_interval_ms for shard in syncing]
    timers.extend(lane.touched_ms + TOPIC_IDLE_MS for lane in islice(state.touched.values(), 1))
    due = [now_ms + max(at_ms - timer_ms, 0) for at_ms in timers]
    if (first := state.expiry.first_ms()) is not None:
        due.append(first)
    return min(due, default=None)


def log_exact_head(state: EngineState, lane: Lane, now_ms: int) -> None:
    """The head of a rested topic, so that a crash takes no seq from it. Left for later if it has not rested, or if
    there is no room: it is an improvement, never worth a failed shard.
    """
    topic, shard = lane.topic, state.shards[lane.shard]
    assert topic is not None
    state.touched.pop(lane.topic_id, None)
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


def _rested(state: EngineState) -> list[Lane]:
    rested: list[Lane] = []
    for lane in state.touched.values():
        if len(rested) == TICK_TOPICS_MAX or state.time.timer_ms - lane.touched_ms < TOPIC_IDLE_MS:
            break
        rested.append(lane)
    return rested


def _retire(state: EngineState, lane: Lane, now_ms: int) -> None:
    topic = lane.topic
    if topic is None:
        return
    if lane.blocked or lane.retiring is not None or now_ms - topic.watermark_ms < FLOOR_STALENESS_MS:
        state.expiry.set(lane.topic_id, now_ms + FLOOR_STALENESS_MS)
        return
    try:
        propose_retire(state, lane, Ticket(Retire(topic=lane.name)), now_ms)
    except Rejected:  # no space, or read-only: nothing is lost by trying later
        state.expiry.set(lane.topic_id, now_ms + FLOOR_STALENESS_MS)
