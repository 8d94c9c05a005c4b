"""A topic that is watched: how far what was made for its watcher reaches, and what he is told of it (http-api 9).

A subscription starts as backlog: page after page, until one reaches the head. Then its watcher is told that he has
caught up, and it is at the tail: he is sent what comes as it comes. A page at the tail that does not reach the head
makes it backlog again, so he is told again when it does.

What was made may not arrive. `sure` is where to go on if nobody says how far it did.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from topics.log.reads.diff import DiffPlan, DiffQuery


class SubscriptionStage(Enum):
    """Where a subscription is."""

    BACKLOG = "backlog"
    TAIL = "tail"


class Subscription:
    """`asked`: what is asked of it, in a query without a topic. `is_start`: nothing was made since `begin`."""

    __slots__ = ("asked", "cursor", "epoch", "head_seq", "is_start", "stage", "sure", "topic")

    def __init__(self, topic: str, asked: DiffQuery, *, from_seq: int, epoch: int, head_seq: int) -> None:
        self.topic = topic
        self.asked = asked
        self.head_seq = head_seq  # as of the last look
        self.begin(from_seq, epoch)

    def begin(self, cursor: int, epoch: int) -> None:
        """From here, for a watcher who has just come."""
        self.sure = cursor, epoch
        self.cursor, self.epoch = cursor, epoch
        self.is_start = True
        self.stage = SubscriptionStage.BACKLOG

    @property
    def is_strict(self) -> bool:
        return self.asked.durable_only

    def query(self) -> DiffQuery:
        """What is read next."""
        return msgspec.structs.replace(self.asked, topic=self.topic, from_seq=self.cursor, epoch=self.epoch)

    def add(self, plan: DiffPlan) -> bool:
        """The page is made. True if its watcher is told that he has caught up."""
        assert plan.gap is not None or (plan.from_seq, plan.epoch) == (self.cursor, self.epoch)
        was_backlog = self.stage is SubscriptionStage.BACKLOG
        self.cursor, self.epoch, self.head_seq = plan.next_from_seq, plan.epoch, plan.head_seq
        self.is_start = False
        self.stage = SubscriptionStage.TAIL if plan.caught_up else SubscriptionStage.BACKLOG
        return was_backlog and plan.caught_up

    def arrived(self) -> None:
        """What was made is on its way, and nothing of it is held here any more."""
        self.sure = self.cursor, self.epoch


def after_gap(plan: DiffPlan) -> int:
    """How far a page reaches before its first record: where its tombstone ends (semantics 4)."""
    return plan.from_seq + plan.account.lost
