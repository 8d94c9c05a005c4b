"""What a restart took of a topic, and the frame that says so before the topic goes on (storage 4)."""

from __future__ import annotations

from topics.codec.control import LossRange
from topics.engine.batch import Entry
from topics.engine.lane import Lane
from topics.kernel.config import Durability
from topics.log.floors import Reason
from topics.log.waiting import News


def after_restart(lane: Lane, now_ms: int, *, machine_restarted: bool) -> Entry | None:
    """The LossRange a topic needs before it goes on, None if it lost nothing (storage 4, semantics 2.6)."""
    payload = lost_by_restart(lane, machine_restarted=machine_restarted)
    if payload is None:
        return None
    return _RestartLoss.of(lane, [payload], now_ms, staged=True, must_sync=True)


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
