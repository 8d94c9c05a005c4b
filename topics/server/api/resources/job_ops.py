"""The jobs of a queue over a WebSocket: what HTTP has, and jobs pushed as fast as they are settled (http-api 10).

A claim has taken effect when it waits for jobs: what comes behind it does not wait for them. Leases of jobs that were
pushed end with the connection, those that it claimed do not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from topics.embed.aio.hands import Hand, Work
from topics.embed.aio.jobs import ClaimedJobs
from topics.engine.commands import Ack, Claim, Extend, Nack
from topics.engine.replies import JobsClaimed, JobsSettled, Reply
from topics.engine.tickets import Stage, Ticket
from topics.kernel.errors import Code, Rejected, TopicsError
from topics.kernel.limits import Limits
from topics.server.api import schemas as s
from topics.server.api.bodies.envelope import enveloped
from topics.server.api.bodies.fields import OpenForm
from topics.server.api.errors import error_fields
from topics.server.api.memory import Share
from topics.server.api.message import performance_since
from topics.server.api.ops import Op, OpCall, OpsConnection, message_of
from topics.server.api.resources.jobs import (
    ACKED,
    EXTENDED,
    NACKED,
    AckIn,
    ClaimIn,
    ExtendIn,
    NackIn,
    ack_of,
    claim_of,
    claimed_json,
    extend_of,
    nack_of,
    nothing_claimed,
    settled_json,
)
from topics.server.api.resources.work import check_queue, work_of
from topics.store.writer import BatchTiming

_Of = Callable[[str, Any, Limits], Ack | Nack | Extend]
WORKS_MAX: Final = 256  # queues that push to one connection
_NODE: Final = s.nonempty_text("Whose the leases are, at most 128 bytes")


class WorkIn(msgspec.Struct, gc=False):
    """What a worker takes."""

    node: Annotated[str, _NODE]
    max: Annotated[int | None, s.unsigned("Jobs at a time; 1 to 1000", default=1)] = None
    lease_ms: Annotated[
        int | None, s.unsigned("For how long; 100 to 86 400 000. As the queue says if not given")
    ] = None


class StopWorkIn(msgspec.Struct, gc=False):
    """Nothing is asked but which queue."""


# Claims, and what is said of jobs.


async def claim(call: OpCall) -> None:
    """Lease jobs; wait for them if asked."""
    _begin_claim(call)


def _begin_claim(call: OpCall) -> bool:
    name = call.topic()
    asked, ignored = _claim.decode(call.text)
    command = claim_of(name, asked, call.site.options.limits)
    call.room = Share(call.site.answers)
    call.session.claims[call] = call.runtime.jobs.begin(command, partial(_claimed, call, command, ignored))
    return True


def _claimed(call: OpCall, command: Claim, ignored: Sequence[str], ticket: Ticket) -> None:
    """The claim has ended. What is in memory is answered at once, for the rest there is a task."""
    jobs, room = call.runtime.jobs, call.room
    assert room is not None
    call.session.claims.pop(call, None)
    later: Callable[[], Awaitable[ClaimedJobs | None]]
    if ticket.stage is Stage.WITHDRAWN:
        _answer_claim(call, command.topic, None, ignored)
        return
    if ticket.error is not None and ticket.error.code is Code.DISK_LOW:  # room may be made
        later = partial(jobs.claim, command, room)
    else:
        try:
            reply = ticket.result()
            assert isinstance(reply, JobsClaimed)
            claimed = jobs.at_hand(reply, room)
        except TopicsError as error:
            call.refuse(error)
            return
        if claimed is not None:
            _answer_claim(call, command.topic, claimed, ignored)
            return
        later = partial(jobs.fetch, reply, room, bytes_max=command.bytes_max)
    call.session.start(partial(_answer_later, call, command.topic, later, ignored))


async def _answer_later(
    call: OpCall, topic: str, later: Callable[[], Awaitable[ClaimedJobs | None]], ignored: Sequence[str]
) -> None:
    try:
        claimed = await later()
    except TopicsError as error:
        call.refuse(error)
    else:
        _answer_claim(call, topic, claimed, ignored)


def _answer_claim(call: OpCall, topic: str, claimed: ClaimedJobs | None, ignored: Sequence[str]) -> None:
    """None: nobody waits any longer."""
    runtime = call.runtime
    if claimed is not None and claimed.jobs:
        # If it was sent it has them, whatever happens to it.
        call.unsent = partial(runtime.jobs.release, topic, claimed.jobs, was_sent=False)

    def fields() -> bytes:
        found = nothing_claimed(runtime, topic) if claimed is None else claimed
        return claimed_json(topic, found, ignored) + performance_since(call.started) + b"}"

    call.answer(fields)


async def _settle(form: OpenForm[Any], of: _Of, done: str, call: OpCall) -> None:
    """Jobs are done, failed, or take longer."""
    name = call.topic()
    asked, ignored = await call.site.decoded(call.size, partial(form.decode, call.text))
    fields = partial(_settled, call, done, ignored)
    await call.submit(of(name, asked, call.site.options.limits), fields)


def _begin_settle(form: OpenForm[Any], of: _Of, done: str, call: OpCall) -> bool:
    name = call.topic()
    asked, ignored = form.decode(call.text)
    fields = partial(_settled, call, done, ignored)
    return call.submit_now(of(name, asked, call.site.options.limits), fields)


def _settled(call: OpCall, done: str, ignored: Sequence[str], reply: Reply, _: BatchTiming) -> bytes:
    assert isinstance(reply, JobsSettled)
    return settled_json(done, reply, ignored) + performance_since(call.started) + b"}"


# Work.


async def work(call: OpCall) -> None:
    """Push jobs, so many at a time. Once more for a queue: from now on like this."""
    name, runtime, session = call.topic(), call.runtime, call.session
    asked, ignored = _work.decode(call.text)
    limits, most = call.site.options.limits, 1 if asked.max is None else asked.max
    command = work_of(name, asked.node, limits, most=most, lease_ms=asked.lease_ms)
    check_queue(runtime.engine, name)
    works = session.works
    if name in works:
        await works[name].stop()
    elif len(works) >= WORKS_MAX:
        raise Rejected(
            Code.THROTTLED,
            f"topic: this connection already works on {WORKS_MAX} queues, the limit; open another connection",
            limit="works",
            max=WORKS_MAX,
        )
    else:
        works[name] = Work(Hand(runtime.hands, command, ask_life=session.ask_life))
        session.at_end(works[name].hand.give_back)
    works[name].begin(command)
    session.start(partial(_push_jobs, works[name], name, Share(call.site.answers), session))
    fields: dict[str, object] = {"topic": name, "max": command.count_max}
    fields |= {"lease_ms": command.lease_ms} if command.lease_ms is not None else {}
    fields |= {"ignored": ignored} if ignored else {}
    call.answer(lambda: msgspec.json.encode(fields))


async def _push_jobs(work: Work, topic: str, room: Share, session: OpsConnection) -> None:
    head = b'{"op":"job","topic":"%b",' % topic.encode()

    async def push(entries: Sequence[bytes]) -> None:
        await session.push([head + entry[1:] for entry in entries])

    try:
        await work.run(push, room)
    except TopicsError as error:
        around = b'{"topic":"%b",' % topic.encode()
        await session.push([message_of("error", None, around + error_fields(error)[1:])])


async def stop_work(call: OpCall) -> None:
    """Push no more of a queue. What was pushed is leased until it is settled, or the connection ends."""
    name = call.topic()
    _, ignored = _stop_work.decode(call.text)
    if name in call.session.works:
        await call.session.works[name].stop()
    fields = {"topic": name} | ({"ignored": ignored} if ignored else {})
    call.answer(lambda: msgspec.json.encode(fields))


_claim: Final = OpenForm(enveloped(ClaimIn))
_ack: Final = OpenForm(enveloped(AckIn))
_nack: Final = OpenForm(enveloped(NackIn))
_extend: Final = OpenForm(enveloped(ExtendIn))
_work: Final = OpenForm(enveloped(WorkIn))
_stop_work: Final = OpenForm(enveloped(StopWorkIn))


def _settling(name: str, form: OpenForm[Any], of: _Of, done: str) -> Op:
    take, begin = partial(_settle, form, of, done), partial(_begin_settle, form, of, done)
    return Op(name=name, answer=done, scope="write", take=take, begin=begin)


OPS: Final = (
    Op(name="claim", answer="claimed", scope="read+write", take=claim, begin=_begin_claim),
    _settling("ack", _ack, ack_of, ACKED),
    _settling("nack", _nack, nack_of, NACKED),
    _settling("extend", _extend, extend_of, EXTENDED),
    Op(name="work", answer="working", scope="read+write", take=work),
    Op(name="stop_work", answer="stopped", scope="read+write", take=stop_work),
)
