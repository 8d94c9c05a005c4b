"""Wishes. A command is checked against the state and becomes frames, or is rejected (architecture 2)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Self

import attrs
import msgspec

from topics.codec.log.control import CheckpointMark
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, given_fields, parse_config
from topics.log.reads.match import Match

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


class PutMode(Enum):
    """What a `PutTopic` does to a topic that is there. It makes one that is not there, unless it merges."""

    REPLACE = "replace"  # its whole config becomes this one
    MERGE = "merge"  # the fields that are given change, the others stay
    CREATE = "create"  # nothing changes; refused if a field that is given differs


@attrs.frozen(kw_only=True)
class PutTopic:
    """Create a topic, or change its config. `given`: the fields that were asked for; the rest of `config` is defaults.

    What it does is decided when its turn comes, against the config of that moment.
    """

    topic: str
    config: TopicConfig
    mode: PutMode = PutMode.REPLACE
    given: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topic: str, fields: Mapping[str, Any], *, mode: PutMode, record_bytes_max: int) -> Self:
        """From a config as JSON values.

        Raises:
            Rejected: invalid_request, naming the field.
        """
        config = parse_config(fields, record_bytes_max=record_bytes_max)
        return cls(topic=topic, config=config, mode=mode, given=given_fields(fields))

    def merged(self, old: TopicConfig) -> TopicConfig:
        """`old` with the fields that are given."""
        return attrs.evolve(old, **{name: getattr(self.config, name) for name in self.given})


@attrs.frozen(kw_only=True)
class DeleteTopic:
    """Delete a topic with everything in it."""

    topic: str
    if_empty: bool = False


@attrs.frozen(kw_only=True)
class DeleteRecords:
    """Delete records of a published prefix and/or a tag; at least one selector."""

    topic: str
    before_seq: int | None = None
    match: Match | None = None


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
