"""Jobs as values: as who claimed them has them, as a peek shows them; and what servers answer, as these."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Iterable
from itertools import repeat
from typing import Any, ClassVar, Final, Protocol

import msgspec

from topics.calls.messages import SentRecord, view_of
from topics.calls.page import Record
from topics.codec.log.frame import FrameView
from topics.engine.queue.control import JobView
from topics.engine.replies import JobsSettled, LeasedJob, Redriven
from topics.kernel.checks import text_bytes
from topics.kernel.ids import lease_id, lease_of
from topics.kernel.limits import Limits


class Claimant(Protocol):
    """Who asks: the handle of a queue. `node`: whose the leases are. `job_type`: what its claims give."""

    job_type: ClassVar[type[LeasedRecord]]

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> str: ...


class LeasedRecord(Record):
    """A job that the node of `queue` has leased until `deadline` (ms, included), now delivered for the `deliveries`-th
    time.

    `is_settled`: by its own `ack` or `nack`, or by its worker. `until_s`: of a job that a worker holds, until when
    its lease is sure to last, by `time.monotonic()`. `leased`: as its claim was answered.
    """

    __slots__ = ("deadline", "is_settled", "leased", "queue", "until_s")

    def __init__(self, view: FrameView, queue: Any, leased: LeasedJob) -> None:
        self._view = view  # as a record's, without another call a job
        self.queue = queue
        self.leased = leased
        self.deadline = leased.deadline
        self.is_settled = False
        self.until_s = math.inf

    @property
    def lease_id(self) -> str:
        return lease_id(*self.leased.lease)

    @property
    def deliveries(self) -> int:
        return self.leased.deliveries

    @property
    def priority(self) -> int:
        return self.leased.priority

    @property
    def is_lost(self) -> bool:
        """Whether its lease is known to have ended, so that another worker may have it: whoever does it should stop.

        A worker looks after that; without one it is known only from an `ack`, `nack` or `extend` that came too late.
        """
        return not self.is_settled and time.monotonic() >= self.until_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seq={self.seq}, deliveries={self.deliveries}, data={self.raw[:60]!r})"


class PeekedJob(Record):
    """A job as it stands: `state` is ready, delayed, in_flight or moving.

    `reason`: why its last delivery failed, empty if none has. `worker`, `deadline`: of its lease. `ready_at`: of a job
    that rests, in ms. None where there is none.
    """

    __slots__ = ("deadline", "deliveries", "priority", "ready_at", "reason", "state", "worker")

    def __init__(
        self, view: FrameView, *, state: str, deliveries: int, priority: int, reason: str, worker: str | None,
        deadline: int | None, ready_at: int | None,
    ) -> None:  # fmt: skip
        super().__init__(view)
        self.state = state
        self.deliveries = deliveries
        self.priority = priority
        self.reason = reason
        self.worker = worker
        self.deadline = deadline
        self.ready_at = ready_at

    def __repr__(self) -> str:
        return f"PeekedJob(seq={self.seq}, state={self.state!r}, deliveries={self.deliveries})"


def worker_name(node: str | None, limits: Limits) -> str:
    """Who claims: a name that nobody else has if none is given. Raises `Rejected(invalid_request)`."""
    if node is None:
        return f"py-{os.getpid()}-{secrets.token_hex(4)}"
    text_bytes("node", node, bytes_max=limits.node_bytes)
    return node


def leased_of(queue: Claimant, views: Iterable[FrameView], leased: Iterable[LeasedJob]) -> list[LeasedRecord]:
    """Records and their leases, as their worker has them."""
    return list(map(queue.job_type, views, repeat(queue), leased))


def peeked_of(found: Iterable[tuple[FrameView, JobView]]) -> list[PeekedJob]:
    """Records, and the jobs that they are."""
    return [
        PeekedJob(
            view,
            state=job.state.name.lower(),
            deliveries=job.deliveries,
            priority=job.priority,
            reason=job.reason.decode(errors="replace"),
            worker=job.node.decode() or None,
            deadline=job.deadline or None,
            ready_at=job.ready_at or None,
        )
        for view, job in found
    ]


# Of a server.


class _SentLease(SentRecord, kw_only=True):
    lease_id: str
    deadline: int
    deliveries: int
    priority: int = 0


class _Claimed(msgspec.Struct):
    claimed: list[_SentLease]


class _Settled(msgspec.Struct):
    topic: str
    skipped: list[int]
    ready: int
    in_flight: int
    acked: list[int] | None = None
    nacked: list[int] | None = None
    extended: list[int] | None = None
    deadlines: dict[str, int] = {}


class _SentPeek(SentRecord, kw_only=True):
    state: str
    deliveries: int
    priority: int = 0
    reason: str = ""
    worker: str | None = msgspec.field(name="node", default=None)
    deadline: int | None = None
    ready_at: int | None = None


class _Peeked(msgspec.Struct):
    jobs: list[_SentPeek]


class _Purged(msgspec.Struct):
    purged: int


_claimed: Final = msgspec.json.Decoder(_Claimed).decode
_pushed: Final = msgspec.json.Decoder(_SentLease).decode
_settled: Final = msgspec.json.Decoder(_Settled).decode
_peeked: Final = msgspec.json.Decoder(_Peeked).decode


class _Redriven(msgspec.Struct):
    topic: str
    source: str
    redriven: list[int]


_redriven: Final = msgspec.json.Decoder(_Redriven).decode
_purged: Final = msgspec.json.Decoder(_Purged).decode


def read_claimed(queue: Claimant, body: bytes) -> list[LeasedRecord]:
    return [_leased(queue, one) for one in _claimed(body).claimed]


def read_pushed(queue: Claimant, body: bytes) -> LeasedRecord:
    return _leased(queue, _pushed(body))


def _leased(queue: Claimant, sent: _SentLease) -> LeasedRecord:
    view, (nonce, counter) = view_of(sent), lease_of(sent.lease_id)
    leased = LeasedJob(view.seq, nonce, counter, sent.deadline, sent.deliveries, sent.priority)
    return queue.job_type(view, queue, leased)


def read_settled(body: bytes) -> JobsSettled:
    found = _settled(body)
    lists = (found.acked, found.nacked, found.extended)
    seqs = next((one for one in lists if one is not None), None)
    if seqs is None:
        raise ValueError("it does not say which jobs counted")
    return JobsSettled(
        topic=found.topic, seqs=seqs, skipped=found.skipped, ready=found.ready, in_flight=found.in_flight,
        deadline=next(iter(found.deadlines.values()), None),
    )  # fmt: skip


def read_peeked(body: bytes) -> list[PeekedJob]:
    of_jobs = ("state", "deliveries", "priority", "reason", "worker", "deadline", "ready_at")
    return [
        PeekedJob(view_of(one), **{name: getattr(one, name) for name in of_jobs})
        for one in _peeked(body).jobs
    ]


def read_purged(body: bytes) -> int:
    return _purged(body).purged


def read_redriven(body: bytes) -> Redriven:
    found = _redriven(body)
    return Redriven(topic=found.topic, source=found.source, seqs=found.redriven)
