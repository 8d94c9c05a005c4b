"""Wishes. A command is checked against the state and becomes frames, or is rejected (architecture 2)."""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from topics.codec.control import CheckpointMark
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.kernel.errors import invalid
from topics.log.match import Match

DEFAULT_CONFIG: Final = TopicConfig()


class Append(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Append records, all or nothing. `config` is used only if this write creates the topic.

    `digest`: of the body before compression, for an idempotent write; None if nothing was compressed.
    """

    topic: str
    records: RecordColumns
    idempotency_key: bytes | None = None
    digest: int | None = None
    expected_head: int | None = None
    create: bool = True
    config: TopicConfig = DEFAULT_CONFIG


@attrs.frozen(kw_only=True)
class PutTopic:
    """Create a topic, or replace its whole config."""

    topic: str
    config: TopicConfig


@attrs.frozen(kw_only=True)
class DeleteTopic:
    """Delete a topic with everything in it."""

    topic: str
    if_empty: bool = False


@attrs.frozen(kw_only=True)
class DeleteRecords:
    """Delete records of a published prefix and/or a tag.

    Raises:
        Rejected: no selector, whether the topic is there or not (http-api 1).
    """

    topic: str
    before_seq: int | None = None
    match: Match | None = None

    def __attrs_post_init__(self) -> None:
        if self.before_seq is None and self.match is None:
            raise invalid("before_seq", "give before_seq, match or both")


@attrs.frozen(kw_only=True)
class Retire:
    """Log that time has passed, so that a read may report the floor it moved (semantics 4)."""

    topic: str


@attrs.frozen(kw_only=True)
class Sync:
    """Everything written on this shard so far becomes durable."""

    shard: int


@attrs.frozen(kw_only=True)
class Checkpointed:
    """Records of a topic are in a segment, synced (storage 5)."""

    topic_id: int
    mark: CheckpointMark


Command = Append | PutTopic | DeleteTopic | DeleteRecords | Retire | Sync | Checkpointed
