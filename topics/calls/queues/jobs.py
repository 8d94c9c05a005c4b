"""The calls on the jobs of a queue (queues 4, 7)."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from topics.calls import messages
from topics.calls.call import Call, OfTopic
from topics.calls.messages import FORMAT_LIMITS
from topics.calls.queues import checks
from topics.calls.queues.values import (
    Claimant,
    LeasedRecord,
    PeekedJob,
    read_claimed,
    read_peeked,
    read_purged,
    read_redriven,
    read_settled,
)
from topics.calls.retry import Line, Talk
from topics.calls.topics import StateCall
from topics.engine import commands
from topics.engine.replies import JobsSettled, Redriven, TopicState
from topics.kernel.checks import seconds
from topics.kernel.errors import invalid, not_a_queue
from topics.kernel.ids import check_topic_name, lease_id
from topics.kernel.limits import LEASE_MS_MAX, LEASE_MS_MIN, WAIT_MS_MAX, Limits
from topics.log.jobs.transitions import JobState

ON_GET: Final = "on_get"
_seq_of: Final = attrgetter("seq")
_leased_of: Final = attrgetter("leased")
_lease_of: Final = attrgetter("nonce", "counter")


class OfQueue(msgspec.Struct, frozen=True, eq=False):
    """What is a method of `Queue`: its first parameter is the queue itself."""

    queue: Claimant

    def path(self, action: str) -> str:
        return f"/v0/topics/{check_topic_name(self.queue.name)}/{action}"


class _MaxArg(OfQueue, frozen=True, eq=False):
    max: int = 1


class ClaimCall(_MaxArg, Call[list[LeasedRecord]], frozen=True, eq=False, kw_only=True):
    """Lease up to `max` jobs, in the order in which they are handed out. Fewer, or none, is no error.

    `lease_ms`: for how long, if not as the queue says. `wait_ms`: where there is none, wait so long for one (at most
    30 s). `max_bytes`: of their data and meta; one always fits, 0 is the default (1 MiB).

    Raises:
        Rejected: topic_not_found, not_a_queue, disk_low, storage_read_only; shutting_down, also while it waits.
        Unreachable: if it was sent, jobs may be leased. It is not repeated: they come back when their leases end.
    """

    lease_ms: int | None = None
    wait_ms: int = 0
    max_bytes: int = 0

    def command(self, limits: Limits) -> commands.Claim:
        return checks.claim_command(
            self.queue.name, self.queue.node, limits, most=self.max, lease_ms=self.lease_ms, wait_ms=self.wait_ms,
            bytes_max=self.max_bytes,
        )  # fmt: skip

    def exchange(self, line: Line) -> Talk[list[LeasedRecord]]:
        command = self.command(FORMAT_LIMITS)
        wait_ms = command.wait_ms or 0
        body = messages.fields_body(
            {"node": self.queue.node, "max": command.count_max, "wait_ms": wait_ms},
            lease_ms=command.lease_ms, max_batch_bytes=self.max_bytes or None,
        )  # fmt: skip
        return line.ask(
            "POST", self.path("claim"), partial(read_claimed, self.queue), body=body, wait_ms=wait_ms
        )


class _JobsArg(OfQueue, frozen=True, eq=False):
    jobs: LeasedRecord | int | Iterable[LeasedRecord | int]


class SettleCall(_JobsArg, Call[JobsSettled], frozen=True, eq=False, kw_only=True):
    """What calls on leased jobs have in common."""

    lease_ids: Sequence[str] | None = None

    @abstractmethod
    def command(self, limits: Limits) -> commands.Ack | commands.Nack | commands.Extend:
        """What the engine is told."""

    def given(self) -> tuple[object, object, checks.Leases]:
        """(their seqs, the ids of their leases, or else the leases that are known)."""
        jobs: object = self.jobs
        if isinstance(jobs, (LeasedRecord, int)):
            jobs = [jobs]
        elif type(jobs) is not list and (
            isinstance(jobs, (str, bytes, Mapping)) or not isinstance(jobs, Iterable)
        ):
            return jobs, self.lease_ids, None
        listed: list[Any] = list(jobs)
        if self.lease_ids is None and listed and all(map(isinstance, listed, repeat(LeasedRecord))):
            leased = list(map(_leased_of, listed))
            return list(map(_seq_of, leased)), None, list(map(_lease_of, leased))
        seqs = [job.seq if isinstance(job, LeasedRecord) else job for job in listed]
        if self.lease_ids is not None or not any(isinstance(job, LeasedRecord) for job in listed):
            return seqs, self.lease_ids, None
        return seqs, None, [job.leased.lease if isinstance(job, LeasedRecord) else None for job in listed]

    @abstractmethod
    def message(self) -> tuple[str, bytes]:
        """(what it is called, its fields as JSON)."""

    def fields(self, command: commands.Settle, **more: object) -> bytes:
        ids = None
        if command.leases is not None:
            ids = ["" if lease is None else lease_id(*lease) for lease in command.leases]
        return messages.fields_body(
            {"node": self.queue.node, "seqs": command.seqs}, **{"lease_ids": ids, **more}
        )

    def exchange(self, line: Line) -> Talk[JobsSettled]:
        """Twice is as good as once: what has been done by then is skipped."""
        action, body = self.message()
        return line.ask("POST", self.path(action), read_settled, body=body, repeatable=True, writes=True)


class AckCall(SettleCall, frozen=True, eq=False):
    """They are done, and deleted for good. `jobs`: as they were claimed, or their seqs; 1000 at most.

    What the node of this queue has no lease of (any more) is in `skipped`, never an error. A job that is given as it
    was claimed counts only for that very lease; one that is given by its seq for the lease in `lease_ids`, in the same
    order, and for any of this node without it, or where it is "".

    Raises:
        Rejected: topic_not_found, not_a_queue, batch_too_large, disk_low, storage_read_only.
        Unreachable: no answer. A client repeats it; what an attempt of which the answer was lost has done is skipped.
    """

    def command(self, limits: Limits) -> commands.Ack:
        seqs, ids, known = self.given()
        return checks.ack_command(self.queue.name, self.queue.node, seqs, ids, limits, known=known)

    def message(self) -> tuple[str, bytes]:
        return "ack", self.fields(self.command(FORMAT_LIMITS))


class NackCall(SettleCall, frozen=True, eq=False, kw_only=True):
    """They failed: they are handed out again after `delay_ms`, without it as the queue's `retry_backoff` says.

    `reason`: why, at most 1 KiB; a peek and a dead letter show it. Else as `ack`.
    """

    delay_ms: int | None = None
    reason: str | None = None

    def command(self, limits: Limits) -> commands.Nack:
        seqs, ids, known = self.given()
        return checks.nack_command(
            self.queue.name, self.queue.node, seqs, ids, limits, delay_ms=self.delay_ms, reason=self.reason,
            known=known,
        )  # fmt: skip

    def message(self) -> tuple[str, bytes]:
        command = self.command(FORMAT_LIMITS)
        return "nack", self.fields(command, delay_ms=command.delay_ms, reason=self.reason or None)


class ExtendCall(SettleCall, frozen=True, eq=False):
    """Their leases last `lease_ms` from now on; `deadline` of the answer says until when. Else as `ack`."""

    lease_ms: int

    def command(self, limits: Limits) -> commands.Extend:
        seqs, ids, known = self.given()
        return checks.extend_command(
            self.queue.name, self.queue.node, seqs, ids, limits, lease_ms=self.lease_ms, known=known
        )

    def message(self) -> tuple[str, bytes]:
        command = self.command(FORMAT_LIMITS)
        return "extend", self.fields(command, lease_ms=command.lease_ms)


class _StateArg(OfTopic, frozen=True, eq=False):
    state: Literal["ready", "in_flight", "delayed"] = "ready"


class PeekCall(_StateArg, Call[list[PeekedJob]], frozen=True, eq=False, kw_only=True):
    """Look at jobs without leasing them: ready ones in the order in which they would be handed out, behind them those
    that wait for others of their key; the others by seq.

    `limit`: 1000 at most, 0 is the default (256). Fewer come if they are large, or if records are damaged. `seqs`:
    these and no others, whatever their state, as far as they are there.

    Raises:
        Rejected: topic_not_found, not_a_queue; invalid_request, batch_too_large.
    """

    limit: int = 0
    seqs: Sequence[int] | None = None

    def exchange(self, line: Line) -> Talk[list[PeekedJob]]:
        wanted, limit = checks.peeked(self.state, self.limit, FORMAT_LIMITS, seqs=self.seqs)
        if isinstance(wanted, JobState):
            body = messages.fields_body({"state": self.state, "limit": limit})
        else:
            body = messages.fields_body({"seqs": list(wanted)})
        return line.ask("POST", self.path("/peek"), read_peeked, body=body, repeatable=True)


def retry_info(topic: str, /, seq: int) -> Generator[Call[Any], Any, PeekedJob | None]:
    """How a job stands: its `deliveries`, the `reason` why the last failed, when it is `ready_at` again. None: gone.

    Raises:
        Rejected: topic_not_found, not_a_queue.
    """
    found: list[PeekedJob] = yield from PeekCall(topic, seqs=[seq])
    return found[0] if found else None


class SetPausedCall(OfTopic, Call[None], frozen=True, eq=False):
    """Hand out nothing, or again."""

    paused: bool

    def exchange(self, line: Line) -> Talk[None]:
        action = "/pause" if self.paused else "/resume"
        yield from line.ask("POST", self.path(action), messages.read_object, repeatable=True, writes=True)


def pause(topic: str, /) -> Generator[Call[Any], Any, None]:
    """Lease nothing from here on; jobs and acks are taken, and claims wait. It lasts over a restart.

    Raises:
        Rejected: topic_not_found, not_a_queue.
    """
    yield from SetPausedCall(topic, paused=True)


def resume(topic: str, /) -> Generator[Call[Any], Any, None]:
    """Lease jobs again.

    Raises:
        Rejected: topic_not_found, not_a_queue.
    """
    yield from SetPausedCall(topic, paused=False)


class PurgeCall(OfTopic, Call[int], frozen=True, eq=False):
    """Delete every job that is ready or delayed; how many that were. Leased ones stay.

    Raises:
        Rejected: topic_not_found, not_a_queue.
        Unreachable: if it was sent, it may have been carried out. Not repeated: it would reach jobs that came since.
    """

    def exchange(self, line: Line) -> Talk[int]:
        return line.ask("POST", self.path("/purge"), read_purged, writes=True)


class _SourceArg(OfTopic, frozen=True, eq=False):
    source: str


class RedriveCall(_SourceArg, Call[Redriven], frozen=True, eq=False, kw_only=True):
    """Put records of `source` back as fresh jobs."""

    seqs: Iterable[int] | None = None
    limit: int = 0

    def command(self, limits: Limits) -> commands.Redrive:
        return checks.redrive_command(self.topic, self.source, self.seqs, self.limit, limits)

    def exchange(self, line: Line) -> Talk[Redriven]:
        command = self.command(FORMAT_LIMITS)
        body = messages.fields_body({"source": command.topic, "limit": command.count_max}, seqs=command.seqs)
        return line.ask("POST", self.path("/redrive"), read_redriven, body=body, writes=True)


def redrive(
    topic: str, /, seqs: int | Iterable[int] | None = None, *, source: str | None = None, limit: int = 0
) -> Generator[Call[Any], Any, Redriven]:
    """Put dead letters back as fresh jobs: these, or the first ones, at most `limit` (0: 1000, which is the most).

    `source`: the topic they are in; the queue's own `dead_letter` if it is not given. Any record may go that nobody has
    on lease. `seqs` of the answer, which are of `source`, are on their way and will arrive whatever happens; they are
    deliveries 0, keep their priority and the provenance in `meta`, and go from the source.

    Raises:
        Rejected: topic_not_found, also for the source; not_a_queue; invalid_request, batch_too_large.
        Unreachable: if it was sent, records may be on their way. It is not repeated: it would take others then.
    """
    if source is None:
        source = yield from dead_letter_topic(topic)
    listed = (seqs,) if isinstance(seqs, int) else seqs
    return (yield from RedriveCall(topic, source, seqs=listed, limit=limit))


# Comforts (queues 7).


def dead_letter_topic(topic: str, /) -> Generator[Call[Any], Any, str]:
    """The topic that takes what this queue gives up, by its config as it is now.

    Raises:
        Rejected: topic_not_found, not_a_queue; invalid_request if it has none.
    """
    state: TopicState = yield from StateCall(topic, touch=False)
    if state.queue is None:
        raise not_a_queue(topic)
    if state.config.dead_letter is None:
        raise invalid(
            "source", f"queue {topic!r} has no dead_letter of its own: name the topic to take them from"
        )
    return state.config.dead_letter


def get_many(
    queue: Claimant, /, n: int, *, timeout: float | None = None, lease_ms: int | None = None,
    ack: Literal["on_get"] | None = None,
) -> Generator[Call[Any], Any, list[LeasedRecord]]:  # fmt: skip
    """Up to `n` jobs, as soon as there is one: waits for it `timeout` seconds, without one for ever. Then none.

    `ack="on_get"`: they are done when this returns, whatever becomes of them then.

    Raises:
        Rejected, Unreachable: as `claim` and `ack`.
    """
    if ack not in (None, ON_GET):
        raise invalid("ack", f'must be "on_get" or None, not {ack!r:.40}')
    until_s = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
    jobs, is_over = list[LeasedRecord](), False
    while not jobs and not is_over:
        wait_ms = WAIT_MS_MAX
        if until_s is not None:
            left_ms = max(int((until_s - time.monotonic()) * 1000), 0)
            wait_ms, is_over = min(left_ms, WAIT_MS_MAX), left_ms <= WAIT_MS_MAX
        jobs = yield from ClaimCall(queue, n, lease_ms=lease_ms, wait_ms=wait_ms)
    if jobs and ack is not None:
        yield from AckCall(queue, jobs)
    return jobs


def get(
    queue: Claimant, /, *, timeout: float | None = None, lease_ms: int | None = None,
    ack: Literal["on_get"] | None = None,
) -> Generator[Call[Any], Any, LeasedRecord | None]:  # fmt: skip
    """The next job: waits for one `timeout` seconds, without it for ever. None if none came. Else as `get_many`."""
    jobs = yield from get_many(queue, 1, timeout=timeout, lease_ms=lease_ms, ack=ack)
    return jobs[0] if jobs else None


# Of a single job.


def ack_one(job: LeasedRecord, /) -> Generator[Call[Any], Any, bool]:
    """It is done. False if its lease had ended, so that another worker may have it."""
    return _settled(job, (yield from AckCall(job.queue, job)))


def nack_one(
    job: LeasedRecord, /, reason: str | None = None, *, delay_ms: int | None = None
) -> Generator[Call[Any], Any, bool]:
    """It failed, and is to be handed out again: see `Queue.nack`. False if its lease had ended."""
    return _settled(job, (yield from NackCall(job.queue, job, reason=reason, delay_ms=delay_ms)))


def extend_one(job: LeasedRecord, /, lease_ms: int) -> Generator[Call[Any], Any, bool]:
    """Its lease lasts `lease_ms` from now on. False if it had ended."""
    asked_s = time.monotonic()
    found = yield from ExtendCall(job.queue, job, lease_ms)
    if not found.seqs:
        job.until_s = -math.inf
    elif found.deadline is not None:
        job.deadline = found.deadline
        if job.until_s < math.inf:  # a worker's
            job.until_s = asked_s + min(max(lease_ms, LEASE_MS_MIN), LEASE_MS_MAX) / 1000
    return bool(found.seqs)


def _settled(job: LeasedRecord, found: JobsSettled) -> bool:
    if found.seqs:
        job.is_settled = True
    elif not job.is_settled:
        job.until_s = -math.inf
    return bool(found.seqs)
