"""What a restart took of topics: a frame says so before one goes on, if anything may be written (storage 4)."""

from __future__ import annotations

from topics.codec.log.control import LossRange
from topics.codec.log.leases import ReleasedAll
from topics.engine.batch import Entry
from topics.engine.lane import Lane
from topics.engine.state import EngineState
from topics.kernel.config import Durability
from topics.kernel.errors import Fatal
from topics.log import fold
from topics.log.floors import Reason
from topics.log.lost import LostRange
from topics.log.reads.waiting import News


def resume(state: EngineState, *, machine_restarted: bool) -> None:
    """Log what the restart took, before anything else is proposed."""
    now_ms = state.time.read()
    for lane in list(state.lanes.values()):
        lost = lost_by_restart(lane, machine_restarted=machine_restarted)
        if lost is not None:
            state.enqueue(lane.shard, _RestartLoss.of(lane, [lost], now_ms, staged=True, must_sync=True))
        elif lane.ceiling > lane.next_seq - 1:
            state.touch(lane)  # it rests, so its exact head is due
        assert lane.topic is not None
        jobs = lane.topic.jobs
        if jobs is not None and not lane.topic.config.leases_durable and jobs.rows.any_leased(now_ms):
            ended = ReleasedAll(b"restart")
            state.enqueue(lane.shard, Entry.of(lane, [ended], now_ms, staged=False, must_sync=False))


def refuse_writes(state: EngineState, why: Fatal, *, durable_known: bool) -> None:
    """Every shard is read-only. What ephemeral topics had is gone with the process all the same. No frame can say so,
    so it is folded without.
    """
    now_ms = state.time.read()
    for shard in state.shards:
        assert shard.quiet
        shard.read_only = why
    for lane in state.lanes.values():
        lost = lost_by_restart(lane, machine_restarted=False)
        if lost is not None:
            assert lane.topic is not None
            fold.loss(lane.topic, LostRange(lost.first, lost.last, lost.reason, now_ms))
        if not durable_known:
            lane.durable_seq = 0


class _RestartLoss(Entry, eq=False, kw_only=True):
    """What a restart took: the topic goes on behind it."""

    lane: Lane

    def settle(self) -> None:
        lane, topic = self.lane, self.lane.topic
        assert topic is not None
        assert topic.head_seq >= lane.next_seq - 1
        lane.next_seq = topic.head_seq + 1
        lane.ceiling = lane.ceiling_asked = topic.head_seq
        ephemeral = topic.config.durability is Durability.EPHEMERAL
        lane.written_seq = lane.durable_seq = 0 if ephemeral else topic.head_seq

    def news(self) -> News:
        return News.RECORDS | News.FLOORS


def lost_by_restart(lane: Lane, *, machine_restarted: bool) -> LossRange | None:
    """What a restart took of a topic.

    An ephemeral topic has lost everything, and its head goes to the ceiling. After a machine restart the seqs of an
    un-synced class from the last kept one to the ceiling may have been seen: they are a `crash` range.
    """
    topic = lane.topic
    assert topic is not None
    head_seq, ceiling = topic.head_seq, topic.ceiling
    if topic.config.durability is Durability.EPHEMERAL:
        last_seq = max(head_seq, ceiling)
        if topic.evict_floor > last_seq:
            return None
        return LossRange(topic.evict_floor, last_seq, Reason.RESTART.value)
    if topic.config.durability is Durability.FSYNC or not machine_restarted or ceiling <= head_seq:
        return None
    return LossRange(head_seq + 1, ceiling, Reason.CRASH.value)
