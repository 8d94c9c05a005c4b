"""What a watch gives, in the order in which it happened to each topic."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from topics.calls.page import Record
from topics.codec.log.frame import FrameView
from topics.log.floors import Gap


class WatchedRecord(Record):
    """A `Record`, and the topic that it is of."""

    __slots__ = ("topic",)

    def __init__(self, view: FrameView, topic: str) -> None:
        super().__init__(view)
        self.topic = topic

    def __repr__(self) -> str:
        return (
            f"WatchedRecord(topic={self.topic!r}, seq={self.seq}, data={self.raw[:60]!r}, tag={self.tag!r})"
        )


@attrs.frozen(kw_only=True)
class Tombstone(Gap):
    """A `Gap`, and the topic that it is of: these records are lost, and the watch goes on behind them."""

    topic: str


@attrs.frozen(kw_only=True)
class CaughtUp:
    """Everything that was there has been given; what follows is new. Again whenever that is so after a backlog."""

    topic: str
    head_seq: int
    durable_seq: int


@attrs.frozen(kw_only=True)
class TopicDeleted:
    """The topic was deleted, and the watch goes on with the others. `head_seq`: the last one that was heard of."""

    topic: str
    head_seq: int


WatchValue: TypeAlias = WatchedRecord | Tombstone | CaughtUp | TopicDeleted
VALUES = (WatchedRecord, Tombstone, CaughtUp, TopicDeleted)
