"""What is known lost stays told, whatever happens to the records around it (semantics 2.2)."""

from __future__ import annotations

from array import array

import pytest

from topics.codec.log.control import Carried
from topics.codec.log.frame import Run
from topics.kernel.config import Durability, TopicConfig
from topics.log import fold
from topics.log.floors import Reason
from topics.log.lost import LostRange
from topics.log.reads import diff
from topics.log.regions import WalFileId
from topics.log.topic import Topic

FILE = WalFileId(0, 0, 1)


def records(topic: Topic, count: int, ts: int = 1000) -> None:
    lengths, sizes = array("I", [50] * count), array("I", [8] * count)
    run = Run(topic_id=1, seq_start=topic.head_seq + 1, ts=ts, lengths=lengths, sizes=sizes)
    fold.run(topic, run, FILE)


def with_a_loss(config: TopicConfig) -> Topic:
    """Seqs 1-3 live, 4-6 lost to a crash."""
    topic = Topic(1, "t", 1, config)
    records(topic, 3)
    fold.loss(topic, LostRange(4, 6, Reason.CRASH.value, 1000))
    return topic


@pytest.mark.invariant("I-01")
@pytest.mark.rule("S2.3")
def test_a_cap_that_evicts_past_a_lost_range_keeps_floor_and_earliest_in_order():
    topic = with_a_loss(TopicConfig(cap_records=2))
    records(topic, 4)  # 7-10: the cap keeps 9 and 10

    assert (topic.evict_floor, topic.earliest_seq, topic.head_seq) == (9, 9, 10)
    page = diff.plan(topic, diff.DiffQuery(topic="t"), now_ms=1000, durable_seq=0)
    assert page.seqs.tolist() == [9, 10]
    assert (page.gap.gap_from, page.gap.gap_to, page.gap.reason) == (1, 8, Reason.MIXED)


@pytest.mark.rule("S2.2")
def test_a_lost_range_is_told_after_the_topic_was_ephemeral_for_a_while():
    topic = with_a_loss(TopicConfig())
    fold.delete(topic, before_seq=None, match=None, upto=6)
    fold.config(topic, TopicConfig(durability=Durability.EPHEMERAL), 1000)
    fold.carry(topic, Carried(topic.head_seq, topic.evict_floor, 0, {}, 0))
    fold.config(topic, TopicConfig(), 1000)

    page = diff.plan(topic, diff.DiffQuery(topic="t", from_seq=0), now_ms=1000, durable_seq=0)
    assert (page.next_from_seq, page.account.deleted, page.gap) == (3, 3, None)
    page = diff.plan(topic, diff.DiffQuery(topic="t", from_seq=3), now_ms=1000, durable_seq=0)
    assert (page.gap.gap_from, page.gap.gap_to, page.gap.reason) == (4, 6, Reason.CRASH)
