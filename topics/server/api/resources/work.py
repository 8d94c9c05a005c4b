"""Jobs pushed over HTTP: `GET /v0/topics/{queue}/work`, as server-sent events (queues 4).

A stream keeps up to `max` jobs leased to its connection. The worker settles them by requests of their own, each of
which makes room. When the connection ends, what it was sent is ready for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import trio

from topics.calls.queues.checks import claim_command
from topics.embed.aio.hands import Hand
from topics.embed.aio.jobs import ClaimedJobs
from topics.embed.aio.runtime import Runtime
from topics.engine.commands import Claim
from topics.engine.engine import Engine
from topics.kernel.errors import Code, Rejected, TopicsError, invalid, not_a_queue
from topics.kernel.limits import LEASE_MS_MAX, Limits
from topics.server.api import events
from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.errors import error_fields
from topics.server.api.memory import Share
from topics.server.api.message import Answer, Unbounded
from topics.server.api.routes import Route

HEARTBEAT_S: Final = 15.0


def work_of(topic: str, node: object, limits: Limits, *, most: int, lease_ms: int | None) -> Claim:
    """The claim that a worker's hand makes again and again. Raises `Rejected(invalid_request)`, naming the field."""
    command = claim_command(topic, node, limits, most=most, lease_ms=lease_ms)
    return msgspec.structs.replace(command, wait_ms=None, told_end=True)


def check_queue(engine: Engine, topic: str) -> None:
    """Raises `Rejected`: topic_not_found, not_a_queue."""
    if engine.topic_state(topic).queue is None:
        raise not_a_queue(topic)


async def work(call: HandlerCall) -> Answer:
    """Lease jobs and send them as they are there, so many at a time, for as long as the connection lasts."""
    name, limits = call.topic(), call.site.options.limits
    events.check_accepted(call.head)
    if b"node" not in call.query:
        raise invalid("node", "is missing")
    command = work_of(
        name, call.text("node"), limits,
        most=call.number("max", default=1, most=limits.claim_limit),
        lease_ms=call.number("lease_ms", default=0, most=LEASE_MS_MAX) if b"lease_ms" in call.query else None,
    )  # fmt: skip
    check_queue(call.runtime.engine, name)
    stream = JobStream(call.runtime, command, Share(call.site.answers), call.site.options.bytes_per_s)
    return Answer(200, Unbounded(stream), content_type=events.MEDIA_TYPE.encode(), headers=events.HEADERS)


class JobStream:
    """The events of one connection: a `Source`."""

    def __init__(self, runtime: Runtime, asked: Claim, room: Share, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self._runtime = runtime
        self._hand = Hand(runtime.hands, asked)
        self._room = room
        self._begun = self._over = False

    async def piece(self) -> bytes:
        """Jobs, or a sign of life; an error is the last event."""
        self._room.release()  # the last piece has been taken
        if not self._begun:
            self._begun = True
            return events.RETRY + b"\n"
        if self._over:
            return b""
        try:
            claimed = await self._hand.claim(self._room, until_s=trio.current_time() + HEARTBEAT_S)
            if claimed is None and self._runtime.jobs.draining:
                raise Rejected(Code.SHUTTING_DOWN, "the server is shutting down; retry elsewhere or later")
        except TopicsError as error:
            self._over = True
            return events.event(b"error", error_fields(error)) + b"\n"
        if claimed is None:
            return events.heartbeat(self._runtime.engine.now_ms())
        return b"".join(self._events(claimed)) or b": \n\n"

    def _events(self, claimed: ClaimedJobs) -> list[bytes]:
        head = b'{"topic":"%b",' % self._hand.asked.topic.encode()
        return [
            events.with_id(events.event(b"job", head + entry[1:]), b"%d" % job.seq)
            for job, entry in zip(claimed.jobs, claimed.entries, strict=True)
        ]

    def close(self) -> None:
        """The connection has ended, or nothing was to be sent."""
        self._room.release()
        self._hand.give_back()


SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "JobEvents": {
        "type": "string", "contentMediaType": events.MEDIA_TYPE,
        "description": "Events `job`: `id` the seq, `data` a `Job` and its `topic`. An event `error` is the last one:"
        " `code`, `message`, perhaps `detail`. Comments are signs of life",
    },
}  # fmt: skip
ROUTES: Final = (
    Route(
        name="work", method=b"GET", path="/v0/topics/{topic}/work", handler=work, scope="read+write", tag="jobs",
        summary="Jobs of a queue as they are there, as server-sent events",
        text="Keeps up to `max` jobs leased to the connection. What `ack`, `nack` and `extend` say of them comes by"
        " requests of their own, and whatever ends a lease makes room for the next job. When the connection ends, its"
        " jobs are ready for others at once; leases that the node has from a claim stay.",
        query={
            "node": s.text("Whose the leases are, at most 128 bytes", minLength=1),
            "max": s.count("Jobs at a time; 1 to 1000", default=1),
            "lease_ms": s.count("For how long; 100 to 86 400 000. As the queue says if not given"),
        },
        answers={200: ("Jobs, one after another", "JobEvents")}, media=(events.MEDIA_TYPE,),
        errors=(Code.TOPIC_NOT_FOUND, Code.NOT_A_QUEUE, Code.NOT_ACCEPTABLE),
    ),
)  # fmt: skip
