"""Answers, one a command (http-api 3, 4, 6 name the same fields)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs
import msgspec

from topics.codec.log.control import CheckpointMark
from topics.codec.log.schedules import Schedule
from topics.kernel.config import TopicConfig
from topics.kernel.ids import Lease
from topics.log.routers import Router


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """`seqs` has one entry an input record; `first_seq`/`last_seq` are the appended ones, None if there are none.

    `same_body` is None unless an earlier write with the same idempotency key answers: then whether the bodies agree.
    """

    topic: str
    first_seq: int | None
    last_seq: int | None
    seqs: Sequence[int] = ()
    head_seq: int
    durable_seq: int
    count: int
    duplicates: int = 0
    created: bool
    deduped: bool
    same_body: bool | None = None


@attrs.frozen(kw_only=True)
class TopicPut:
    topic: str
    created: bool
    config: TopicConfig


@attrs.frozen(kw_only=True)
class TopicDeleted:
    """`routers`: the names of those that went with it, each with that of the other topic that it joined."""

    topic: str
    deleted: bool
    routers: Sequence[tuple[str, str]] = ()


@attrs.frozen(kw_only=True)
class RecordsDeleted:
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


@attrs.frozen(kw_only=True)
class QueueState:
    """Of a queue as it is now. `dead_lettered`: since its epoch began."""

    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    paused: bool


@attrs.frozen(kw_only=True)
class TopicState:
    """What a topic is now (http-api 3). ts are None if never. `effective_priority`: on Trio, with what waiting adds."""

    topic: str
    type: str
    epoch: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    evict_floor: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueState | None = None


@attrs.frozen
class Retired:
    """Time has passed."""


@attrs.frozen
class Synced:
    """The shard is durable up to what was written when this was asked."""


@attrs.frozen(kw_only=True)
class Absorbed:
    """The mark that was logged; None if the topic has gone or changed meanwhile."""

    mark: CheckpointMark | None


class LeasedJob(NamedTuple):
    """A job that is leased: by the lease (`nonce`, `counter`), until `deadline` (ms, included)."""

    seq: int
    nonce: int
    counter: int
    deadline: int
    deliveries: int
    priority: int

    @property
    def lease(self) -> Lease:
        return self.nonce, self.counter


class JobsClaimed(msgspec.Struct, frozen=True, kw_only=True):
    """Leased jobs in the order in which they were handed out; their records are read behind that."""

    topic: str
    topic_id: int
    jobs: Sequence[LeasedJob]
    ready: int


class JobsSettled(msgspec.Struct, frozen=True, kw_only=True):
    """`seqs` were acked, given back or extended; `skipped` were not the worker's. `deadline`: of extended leases."""

    topic: str
    seqs: Sequence[int]
    skipped: Sequence[int]
    ready: int
    in_flight: int
    deadline: int | None = None


@attrs.frozen(kw_only=True)
class QueuePaused:
    topic: str
    paused: bool


@attrs.frozen(kw_only=True)
class QueuePurged:
    topic: str
    purged: int


@attrs.frozen(kw_only=True)
class Redriven:
    """These records of `source` are on their way to the queue, and will be there whatever happens."""

    topic: str
    source: str
    seqs: Sequence[int]


class ConsumerState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a durable consumer stands: it has read up to `from_seq`, and `lag` seqs are above that."""

    consumer: str
    topic: str
    epoch: int
    from_seq: int
    lag: int
    updated_ts: int


class ConsumerPut(ConsumerState, frozen=True, kw_only=True):
    """`created`: false if it was there."""

    created: bool


class ConsumerCommitted(ConsumerState, frozen=True, kw_only=True):
    """`moved`: false if it stood there or further on."""

    moved: bool


@attrs.frozen(kw_only=True)
class BroughtOver:
    """Of an order that there still was, all is where it was to go."""


@attrs.frozen(kw_only=True)
class ConsumerDeleted:
    topic: str
    consumer: str
    deleted: bool


@attrs.frozen(kw_only=True)
class ScheduleState:
    """A schedule as it is. ms since 1970, None if never; `coming`: the next instants as things stand, as many as were
    asked for. `failures`: so often has what is due been refused, in a row.
    """

    topic: str
    definition: Schedule
    last_fired: int | None
    next_fire: int | None
    coming: Sequence[int] = ()
    failures: int = 0


@attrs.frozen(kw_only=True)
class SchedulePut:
    created: bool
    schedule: ScheduleState


@attrs.frozen(kw_only=True)
class ScheduleDeleted:
    schedule: str
    deleted: bool


@attrs.frozen(kw_only=True)
class RouterState:
    """A router as it is. `cursor`: the last seq of the source that it has dealt with; `lag` seqs are above that."""

    source: str
    dest: str
    definition: Router
    cursor: int
    lag: int
    forwarded_total: int


@attrs.frozen(kw_only=True)
class RouterPut:
    created: bool
    router: RouterState


@attrs.frozen(kw_only=True)
class RouterDeleted:
    router: str
    deleted: bool


@attrs.frozen
class CopiesArrived:
    """There is nothing left to wait for."""


Reply = (
    Appended | TopicPut | TopicDeleted | RecordsDeleted | Retired | Synced | Absorbed | JobsClaimed | JobsSettled
    | QueuePaused | QueuePurged | Redriven | BroughtOver | ConsumerPut | ConsumerCommitted | ConsumerDeleted
    | SchedulePut | ScheduleDeleted | RouterPut | RouterDeleted | CopiesArrived
)  # fmt: skip
