"""The jobs of a queue: claim, ack, nack, extend, peek, pause, resume, purge (queues 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from topics.calls.queues.checks import (
    PEEKED,
    ack_command,
    claim_command,
    extend_command,
    nack_command,
    peeked,
    redrive_command,
)
from topics.embed.aio.jobs import ClaimedJobs
from topics.embed.aio.runtime import Runtime
from topics.engine.commands import Ack, Claim, Extend, Nack, Pause, Purge
from topics.engine.replies import JobsSettled, QueuePaused, QueuePurged, Redriven
from topics.kernel.errors import Code
from topics.kernel.limits import READ_LIMIT_DEFAULT, Limits
from topics.server.api import schemas as s
from topics.server.api.bodies.fields import OpenForm
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer, PeerGone
from topics.server.api.resources.records import ignored_json
from topics.server.api.routes import WRITE_ERRORS, Body, Route

_NODE: Final = s.nonempty_text("Whose the leases are, at most 128 bytes")
_SEQS: Final = s.said("Of the jobs, 1 to 1000", minItems=1)
_LEASE_IDS: Final = s.said(
    'Of each job the lease that is meant; "" for any of the node\'s. As many as `seqs`',
    items={"type": "string"},
)
_encode: Final = msgspec.json.Encoder().encode


class ClaimIn(msgspec.Struct, gc=False):
    """A claim as a client asks it."""

    node: Annotated[str, _NODE]
    max: Annotated[int | None, s.unsigned("Jobs at most; 1 to 1000", default=1)] = None
    lease_ms: Annotated[
        int | None, s.unsigned("For how long; 100 to 86 400 000. As the queue says if not given")
    ] = None
    wait_ms: Annotated[
        int | None, s.unsigned("If there is none, wait so long for one; 30 000 at most", default=0)
    ] = None
    max_batch_bytes: Annotated[
        int | None,
        s.unsigned("Of their data and meta; 8 MiB at most, 0 is the default, one job fits", default=1 << 20),
    ] = None


class AckIn(msgspec.Struct, gc=False):
    """What a worker says of its jobs."""

    node: Annotated[str, _NODE]
    seqs: Annotated[list[int], _SEQS]
    lease_ids: Annotated[list[str] | None, _LEASE_IDS] = None


class NackIn(AckIn, gc=False):
    """They failed."""

    delay_ms: Annotated[
        int | None, s.unsigned("Not again before so long; as `retry_backoff` says if not given")
    ] = None
    reason: Annotated[str | None, s.said("Why, at most 1 KiB; shown by a peek")] = None


class ExtendIn(msgspec.Struct, gc=False):
    """They take longer."""

    node: Annotated[str, _NODE]
    seqs: Annotated[list[int], _SEQS]
    lease_ms: Annotated[int, s.unsigned("From now on; 100 to 86 400 000")]
    lease_ids: Annotated[list[str] | None, _LEASE_IDS] = None


class PeekIn(msgspec.Struct, gc=False):
    """A look at jobs as a client asks it."""

    state: Annotated[str | None, s.said("Which jobs", enum=[*PEEKED, None], default="ready")] = None
    limit: Annotated[int | None, s.unsigned("At most 1000; 0 is the default", default=READ_LIMIT_DEFAULT)] = (
        None
    )
    seqs: Annotated[list[int] | None, s.said("These, whatever their state; 1000 at most")] = None


class RedriveIn(msgspec.Struct, gc=False):
    """Dead letters to be put back, as a client asks it."""

    source: Annotated[str, s.said("The topic they are in", pattern=s.NAME_PATTERN)]
    seqs: Annotated[
        list[int] | None,
        s.said("Which of them, 1 to 1000; the first ones if not given", items={"type": "integer"}),
    ] = None
    limit: Annotated[
        int | None, s.unsigned("At most so many, 1000 at most; 0 is the default", default=1000)
    ] = None


# Claims.


def claim_of(topic: str, asked: ClaimIn, limits: Limits) -> Claim:
    """The command. Raises `Rejected(invalid_request)`, naming the field."""
    return claim_command(
        topic, asked.node, limits, most=1 if asked.max is None else asked.max, lease_ms=asked.lease_ms,
        wait_ms=asked.wait_ms or 0, bytes_max=asked.max_batch_bytes or 0,
    )  # fmt: skip


def claimed_json(topic: str, claimed: ClaimedJobs, ignored: Sequence[str] = ()) -> bytes:
    """The answer to a claim, but for its end."""
    return b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d%b' % (
        topic.encode(), b",".join(claimed.entries), len(claimed.entries), claimed.ready,
        ignored_json(ignored) if ignored else b"",
    )  # fmt: skip


def nothing_claimed(runtime: Runtime, topic: str) -> ClaimedJobs:
    """Of a wait that was ended. Raises `Rejected(topic_not_found)`."""
    queue = runtime.engine.topic_state(topic).queue
    return ClaimedJobs((), (), 0 if queue is None else queue.ready)


async def claim_jobs(call: HandlerCall) -> Answer:
    """Lease jobs; wait for them if asked."""
    name, limits = call.topic(), call.site.options.limits
    asked, ignored = _claim.decode(call.body)
    command = claim_of(name, asked, limits)
    jobs, claimed = call.runtime.jobs, None
    if not command.wait_ms:
        claimed = await jobs.claim(command, call.peer.room)
    else:
        try:
            async with call.waiting():
                claimed = await jobs.claim(command, call.peer.room)
        except PeerGone:
            if claimed is not None:
                jobs.release(name, claimed.jobs, was_sent=False)
            raise
    if claimed is None:
        claimed = nothing_claimed(call.runtime, name)
    body = claimed_json(name, claimed, ignored) + call.performance() + b"}"
    unsent = partial(jobs.release, name, claimed.jobs, was_sent=False) if claimed.jobs else None
    return Answer(200, body, unsent=unsent)


# What a worker says.


def ack_of(topic: str, asked: AckIn, limits: Limits) -> Ack:
    return ack_command(topic, asked.node, asked.seqs, asked.lease_ids, limits)


def nack_of(topic: str, asked: NackIn, limits: Limits) -> Nack:
    return nack_command(
        topic, asked.node, asked.seqs, asked.lease_ids, limits, delay_ms=asked.delay_ms, reason=asked.reason
    )


def extend_of(topic: str, asked: ExtendIn, limits: Limits) -> Extend:
    return extend_command(topic, asked.node, asked.seqs, asked.lease_ids, limits, lease_ms=asked.lease_ms)


def settled_json(done: str, reply: JobsSettled, ignored: Sequence[str] = ()) -> bytes:
    """The answer to what a worker said, but for its end. `done`: what the jobs that counted are called."""
    fields: dict[str, Any] = {
        "topic": reply.topic, done: reply.seqs, "skipped": reply.skipped, "ready": reply.ready,
        "in_flight": reply.in_flight,
    }  # fmt: skip
    if done == EXTENDED:
        fields["deadlines"] = {str(seq): reply.deadline for seq in reply.seqs}
    if ignored:
        fields["ignored"] = ignored
    return _encode(fields)[:-1]


async def _settle(
    call: HandlerCall, form: OpenForm[Any], of: Callable[[str, Any, Limits], Ack | Nack | Extend], done: str
) -> Answer:
    name = call.topic()
    asked, ignored = await call.decoded(partial(form.decode, call.body))
    reply = await call.runtime.jobs.settle(of(name, asked, call.site.options.limits))
    return Answer(200, settled_json(done, reply, ignored) + call.performance() + b"}")


async def ack_jobs(call: HandlerCall) -> Answer:
    """Jobs are done."""
    return await _settle(call, _ack, ack_of, ACKED)


async def nack_jobs(call: HandlerCall) -> Answer:
    """Jobs failed."""
    return await _settle(call, _nack, nack_of, NACKED)


async def extend_jobs(call: HandlerCall) -> Answer:
    """Jobs take longer."""
    return await _settle(call, _extend, extend_of, EXTENDED)


# The queue itself.


async def peek_jobs(call: HandlerCall) -> Answer:
    """Look at jobs without leasing them."""
    name, limits = call.topic(), call.site.options.limits
    asked, ignored = _peek.decode(call.body)
    state = "ready" if asked.state is None else asked.state
    wanted, limit = peeked(state, asked.limit or 0, limits, seqs=asked.seqs)
    found = await call.runtime.jobs.peek(
        name, wanted, limit, call.peer.room, bytes_max=limits.page_bytes_default
    )
    told = b"" if asked.seqs is not None else b'"state":"%b",' % state.encode()
    body = b'{"topic":"%b",%b"jobs":[%b],"count":%d%b' % (
        name.encode(), told, b",".join(found), len(found),
        ignored_json(ignored) if ignored else b"",
    )  # fmt: skip
    return Answer(200, body + call.performance() + b"}")


async def pause_queue(call: HandlerCall) -> Answer:
    """Lease nothing."""
    return await _set_paused(call, paused=True)


async def resume_queue(call: HandlerCall) -> Answer:
    """Lease jobs again."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: HandlerCall, *, paused: bool) -> Answer:
    reply = await call.runtime.submit(Pause(topic=call.topic(), paused=paused))
    assert isinstance(reply, QueuePaused)
    return call.ok({"topic": reply.topic, "paused": reply.paused})


async def purge_queue(call: HandlerCall) -> Answer:
    """Delete what is ready or delayed."""
    reply = await call.runtime.submit(Purge(topic=call.topic()))
    assert isinstance(reply, QueuePurged)
    return call.ok({"topic": reply.topic, "purged": reply.purged})


async def redrive_records(call: HandlerCall) -> Answer:
    """Put dead letters back as fresh jobs."""
    name, limits = call.topic(), call.site.options.limits
    asked, ignored = await call.decoded(partial(_redrive.decode, call.body))
    call.key.check_name(asked.source, field="source")
    command = redrive_command(name, asked.source, asked.seqs, asked.limit or 0, limits)
    reply = await call.runtime.submit(command)
    assert isinstance(reply, Redriven)
    fields = {"topic": reply.topic, "source": reply.source, "redriven": reply.seqs, "count": len(reply.seqs)}
    return call.ok(fields | ({"ignored": ignored} if ignored else {}))


ACKED: Final = "acked"
NACKED: Final = "nacked"
EXTENDED: Final = "extended"
_claim: Final = OpenForm(ClaimIn)
_ack: Final = OpenForm(AckIn)
_nack: Final = OpenForm(NackIn)
_extend: Final = OpenForm(ExtendIn)
_peek: Final = OpenForm(PeekIn)
_redrive: Final = OpenForm(RedriveIn)

# How it is described.

_DELIVERIES: Final = s.count("How often it was handed out, this time included")
_READY: Final = s.count("Jobs that may be claimed now")
_IN_FLIGHT: Final = s.count("Jobs that are leased")
_LEASE_ID: Final = s.text("The lease: `lease_` and hex digits. Give it back as it is")


def _record(**more: s.Schema) -> dict[str, s.Schema]:
    """A record's members, and those of the job that it is."""
    members: dict[str, s.Schema] = {
        "$seq": s.SEQ, "$ts": s.TS, "$node": s.text("Who wrote it"), "$tag": s.text("Its tag"),
        "$key": s.text("Its key"), "$content_type": s.text("Of bytes, which are `{\"$bytes\": BASE64}`"),
        "data": {"description": "Any JSON value, byte for byte as it was written"}, "meta": s.META,
    }  # fmt: skip
    return members | more


def _settled(done: str, what: str, **more: s.Schema) -> s.Schema:
    return s.answer_of(
        "", "ignored", **{"topic": s.TOPIC, done: s.list_of(s.SEQ, what)},
        skipped=s.list_of(s.SEQ, "The others: no live lease of this node, or not the one that was meant"),
        ready=_READY, in_flight=_IN_FLIGHT, **more, ignored=s.IGNORED,
    )  # fmt: skip


SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Claim": s.form_of("A claim of jobs", ClaimIn),
    "Ack": s.form_of("Jobs that are done", AckIn),
    "Nack": s.form_of("Jobs that failed", NackIn),
    "Extend": s.form_of("Jobs that take longer", ExtendIn),
    "Peek": s.form_of("A look at jobs", PeekIn),
    "Redrive": s.form_of("Dead letters to be put back", RedriveIn),
    "Job": s.object_of(
        "A job that is leased", "$seq $ts data lease_id deadline deliveries",
        **_record(
            lease_id=_LEASE_ID, deadline=s.count("Until when it is leased, in ms, this one included"),
            deliveries=_DELIVERIES, priority=s.count("Left out if it is 0", maximum=9),
        ),
    ),
    "Claimed": s.answer_of(
        "Leased jobs in the order in which they were handed out; fewer, or none, is no error", "ignored",
        topic=s.TOPIC, claimed=s.list_of(s.ref("Job"), "The jobs"), count=s.count("How many"), ready=_READY,
        ignored=s.IGNORED,
    ),
    "Acked": _settled(ACKED, "Those that counted: deleted for good"),
    "Nacked": _settled(NACKED, "Those that counted"),
    "Extended": _settled(
        EXTENDED, "Those that counted",
        deadlines={"type": "object", "additionalProperties": s.TS, "description": "Of each of them, by its seq"},
    ),
    "PeekedJob": s.object_of(
        "A job as it stands", "$seq $ts data state deliveries",
        **_record(
            state=s.text("As it stands", enum=["ready", "delayed", "in_flight", "moving"]),
            deliveries=s.count("How often it was handed out"), priority=s.count("Left out if it is 0", maximum=9),
            reason=s.text("Why its last delivery failed"), node=s.text("Who has leased it"),
            deadline=s.count("Until when"), ready_at=s.count("When it is ready again, in ms"),
        ),
    ),
    "Peeked": s.answer_of(
        "Ready jobs as they would be handed out, then those behind others of their key; others by seq", "ignored",
        "state", topic=s.TOPIC, state=s.text("Which jobs, unless seqs were given"),
        jobs=s.list_of(s.ref("PeekedJob"), "As many as fit"), count=s.count("How many"), ignored=s.IGNORED,
    ),
    "QueuePaused": s.answer_of("", topic=s.TOPIC, paused=s.flag("Nothing is leased")),
    "Redriven": s.answer_of(
        "Records that will arrive in the queue whatever happens", "ignored",
        topic=s.TOPIC, source=s.TOPIC, redriven=s.list_of(s.SEQ, "Their seqs in `source`"), count=s.count("How many"),
        ignored=s.IGNORED,
    ),
    "QueuePurged": s.answer_of("", topic=s.TOPIC, purged=s.count("Jobs that were deleted")),
}  # fmt: skip

_PATH: Final = "/v0/topics/{topic}"
_OF_QUEUES: Final = (Code.TOPIC_NOT_FOUND, Code.NOT_A_QUEUE)
_SETTLE: Final = (*_OF_QUEUES, Code.BATCH_TOO_LARGE, *WRITE_ERRORS)
ROUTES: Final = (
    Route(
        name="claim_jobs", method=b"POST", path=f"{_PATH}/claim", handler=claim_jobs, scope="read+write", tag="jobs",
        summary="Lease jobs of a queue",
        text="By priority, then those that came back, then by seq. Who leaves while it waits has claimed nothing.",
        body=Body.REQUIRED, request="Claim", answers={200: ("Leased", "Claimed")}, errors=(*_OF_QUEUES, *WRITE_ERRORS),
    ),
    Route(
        name="ack_jobs", method=b"POST", path=f"{_PATH}/ack", handler=ack_jobs, scope="write", tag="jobs",
        summary="Jobs are done", text="What does not count is in `skipped`, so it is safe to repeat.",
        body=Body.REQUIRED, request="Ack", answers={200: ("Deleted for good", "Acked")}, errors=_SETTLE,
    ),
    Route(
        name="nack_jobs", method=b"POST", path=f"{_PATH}/nack", handler=nack_jobs, scope="write", tag="jobs",
        summary="Jobs failed, and are to be handed out again", text="What does not count is in `skipped`.",
        body=Body.REQUIRED, request="Nack", answers={200: ("Given back", "Nacked")}, errors=_SETTLE,
    ),
    Route(
        name="extend_jobs", method=b"POST", path=f"{_PATH}/extend", handler=extend_jobs, scope="write", tag="jobs",
        summary="Leases last longer", text="What does not count is in `skipped`.",
        body=Body.REQUIRED, request="Extend", answers={200: ("Extended", "Extended")}, errors=_SETTLE,
    ),
    Route(
        name="peek_jobs", method=b"POST", path=f"{_PATH}/peek", handler=peek_jobs, scope="read", tag="jobs",
        summary="Look at jobs without leasing them", body=Body.OPTIONAL, request="Peek",
        answers={200: ("Jobs as they stand", "Peeked")}, errors=_OF_QUEUES,
    ),
    Route(
        name="pause_queue", method=b"POST", path=f"{_PATH}/pause", handler=pause_queue, scope="admin", tag="jobs",
        summary="Lease nothing from here on", text="Acks are taken, and claims wait. It lasts over a restart.",
        answers={200: ("Paused", "QueuePaused")}, errors=(*_OF_QUEUES, *WRITE_ERRORS),
    ),
    Route(
        name="resume_queue", method=b"POST", path=f"{_PATH}/resume", handler=resume_queue, scope="admin", tag="jobs",
        summary="Lease jobs again", answers={200: ("Goes on", "QueuePaused")}, errors=(*_OF_QUEUES, *WRITE_ERRORS),
    ),
    Route(
        name="purge_queue", method=b"POST", path=f"{_PATH}/purge", handler=purge_queue, scope="delete", tag="jobs",
        summary="Delete every job that is ready or delayed", text="Leased jobs stay.",
        answers={200: ("Deleted for good", "QueuePurged")}, errors=(*_OF_QUEUES, *WRITE_ERRORS),
    ),
    Route(
        name="redrive_records", method=b"POST", path=f"{_PATH}/redrive", handler=redrive_records, scope="admin",
        tag="jobs", body_names=("source",), summary="Put dead letters back as fresh jobs",
        text="Any record of `source` that nobody has on lease. It keeps its priority and `meta`, and starts afresh.",
        body=Body.REQUIRED, request="Redrive", answers={200: ("On their way", "Redriven")},
        errors=(*_OF_QUEUES, Code.BATCH_TOO_LARGE, *WRITE_ERRORS),
    ),
)  # fmt: skip
