"""Wishes. A command is checked against the state and becomes frames, or is rejected (architecture 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Self

import attrs
import msgspec

from topics.codec.log.control import CheckpointMark
from topics.codec.log.frame import FrameView
from topics.codec.log.routers import AT_LEAST_ONCE
from topics.codec.log.schedules import Schedule
from topics.engine.routers.orders import ForwardOrder
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, given_fields, parse_config
from topics.kernel.ids import Lease
from topics.kernel.limits import MIB, MOVES_INTO_TOPIC_MAX
from topics.log.reads.match import Match

DEFAULT_CONFIG: Final = TopicConfig()


class Append(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Append records, all or nothing. `config` is used only if this write creates the topic.

    `digest`: of the body before compression, for an idempotent write; None if nothing was compressed. `moved`: records
    that another topic had, or that are a schedule's, which no limit of a single record keeps out.
    """

    topic: str
    records: RecordColumns
    idempotency_key: bytes | None = None
    digest: int | None = None
    expected_head: int | None = None
    create: bool = True
    config: TopicConfig = DEFAULT_CONFIG
    moved: bool = False


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


class Claim(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Lease jobs of a queue to `node`: at most `count_max`, of at most `bytes_max` stored bytes (one always fits).

    `lease_ms`: None for the queue's own. `wait_ms`: how long to wait if there is none; None: until it is withdrawn.
    `told_end`: the ends of leases of this queue are told from now on (`Effects.ended_leases`).
    """

    topic: str
    node: bytes
    count_max: int = 1
    bytes_max: int = MIB
    lease_ms: int | None = None
    wait_ms: int | None = 0
    told_end: bool = False


class Settle(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a worker says of jobs that it has leased. `leases`: which lease of each it means; None: any of its own."""

    topic: str
    node: bytes
    seqs: Sequence[int]
    leases: Sequence[Lease | None] | None = None


class Ack(Settle, frozen=True, eq=False):
    """They are done."""


class Nack(Settle, frozen=True, eq=False):
    """They are to be delivered again, after `delay_ms`; None: as the queue's `retry_backoff` says."""

    delay_ms: int | None = None
    reason: bytes = b""


class Extend(Settle, frozen=True, eq=False):
    """Their leases last `lease_ms` from now on."""

    lease_ms: int


class Release(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """These leases end: whoever had the jobs has gone. Without `was_sent` nobody was ever given them, and they are as
    before.
    """

    topic: str
    seqs: Sequence[int]
    leases: Sequence[Lease]
    was_sent: bool = True


class GiveUp(Release, frozen=True, eq=False):
    """The records of these leased jobs are damaged: they go to the dead letters, if the queue has some."""


@attrs.frozen(kw_only=True)
class Pause:
    """A queue hands out nothing, or does again."""

    topic: str
    paused: bool


class Redrive(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Move records of `topic` to `queue`, where they are fresh jobs: these, or the first ones, at most `count_max`."""

    topic: str
    queue: str
    seqs: Sequence[int] | None = None
    count_max: int = MOVES_INTO_TOPIC_MAX


class BringOver(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a router that is late was to bring to `topic`. `views`: the records that are still there, as they are
    stored, by seq; those of `damaged` are lost.
    """

    topic: str
    order: ForwardOrder
    views: Sequence[FrameView] = ()
    damaged: Sequence[int] = ()


@attrs.frozen(kw_only=True)
class Purge:
    """Delete every job of a queue that is ready or delayed."""

    topic: str


@attrs.frozen(kw_only=True)
class PutConsumer:
    """A durable consumer stands there from now on: behind `from_seq`, before `from_ts`, or at the `tail`. Without any
    of them it is made at the beginning, and one that is there stays. `epoch`: the instance that the seq is of.
    """

    topic: str
    consumer: str
    from_seq: int | None = None
    from_ts: int | None = None
    tail: bool = False
    epoch: int | None = None


@attrs.frozen(kw_only=True)
class CommitConsumer:
    """A durable consumer has read up to `seq`. `expected`: only if it stands there, or is going there."""

    topic: str
    consumer: str
    seq: int
    epoch: int | None = None
    expected: int | None = None


@attrs.frozen(kw_only=True)
class DeleteConsumer:
    """A durable consumer ends."""

    topic: str
    consumer: str


@attrs.frozen(kw_only=True)
class PutSchedule:
    """Make a schedule that appends to `topic`, or change it. `schedule`: without its id."""

    topic: str
    schedule: Schedule


@attrs.frozen(kw_only=True)
class DeleteSchedule:
    """End a schedule of `topic`."""

    topic: str
    schedule: str


@attrs.frozen(kw_only=True)
class PutRouter:
    """Have what comes into `source` copied into `dest`, or change how. Topics that are not there are made, `dest` only
    if `create_dest`. `filter`: only records that it accepts.
    """

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
    guarantee: str = AT_LEAST_ONCE


@attrs.frozen(kw_only=True)
class DeleteRouter:
    """End a router."""

    router: str


@attrs.frozen(kw_only=True)
class WaitForCopies:
    """Wait until `topic` has what routers bring it of all that their sources hold now; or does not get it soon."""

    topic: str


Command = (
    Append | PutTopic | DeleteTopic | DeleteRecords | Retire | Sync | Checkpointed | Claim | Ack | Nack | Extend
    | Release | GiveUp | Pause | Purge | Redrive | BringOver | PutConsumer | CommitConsumer | DeleteConsumer
    | PutSchedule | DeleteSchedule | PutRouter | DeleteRouter | WaitForCopies
)  # fmt: skip
