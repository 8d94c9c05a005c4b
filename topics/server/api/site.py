"""The site: what every plane asks, first with a head alone, then with the body (http-api 1).

Order of checks: 404 / 405, 421 / 403, 401 / 403, 413, 415, 400, existence, type. What a head can decide is decided by
`admit`, so that a refused body is neither waited for nor read; the rest is the handler's. `answer` never raises for
anything a request can bring about: a bug in a handler is logged, counted and answered 500.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import trio

from topics.kernel.errors import Code, Corrupt, Fatal, Rejected, TopicsError, invalid
from topics.server.api.authorise import authorise
from topics.server.api.bodies import encoding
from topics.server.api.bodies.envelope import decode_envelope
from topics.server.api.call import HandlerCall, not_found
from topics.server.api.errors import STATUS, error_answer, error_fields, shown_code
from topics.server.api.memory import Share
from topics.server.api.message import JSON_TYPE, Answer, Head, Peer, PeerGone, Source, Unbounded
from topics.server.api.openapi import openapi_document
from topics.server.api.ops import OpCall, message_of, with_head
from topics.server.api.reports import REQUEST_ID, TimedRequest, given_id
from topics.server.api.resources.state import DECODED_INLINE_BYTES_MAX, ServerState, SiteOptions
from topics.server.api.routes import Body, Route, RoutedPath, RouteTable
from topics.server.auth.keys import Key, Keys
from topics.server.auth.scopes import PROBE, Names
from topics.server.runtime.latency import BUCKETS_S
from topics.server.runtime.log import log

UNFOLDED_AT_ONCE: Final = 2  # gzip bodies: room for all that one may become is held until it is done
_EXPECTED: Final = b"100-continue"
_AT_ONCE: Final = b',"performance":{"server_total_ms":0.0}'


class Admitted(msgspec.Struct, eq=False, frozen=True):
    """A request whose head is good. `key`: who asks; it is one of his until `end`. `body_max`: above it is 413."""

    head: Head
    route: Route
    params: tuple[bytes, ...]
    body_max: int
    started: float
    key: Key

    def end(self) -> None:
        """It is answered, or never will be."""
        self.key.requests -= 1

    @property
    def expects_continue(self) -> bool:
        return b"expect" in self.head.headers


class Site(ServerState):
    """The server as the planes ask it."""

    def __init__(self, table: RouteTable, options: SiteOptions, keys: Keys | None = None) -> None:
        super().__init__(options, partial(openapi_document, table, options.version), keys or Keys())
        self.table = table
        self._told_from_s = self.reports.from_s
        self._unfolding = trio.CapacityLimiter(UNFOLDED_AT_ONCE)

    def place(self, head: Head) -> RoutedPath | None:
        """What is at the head's path in the route table; the data plane serves nothing else."""
        if head.place is None:
            head.place = self.table.place(head.path)
        found: RoutedPath | None = head.place
        return found

    def admit(self, head: Head) -> Admitted:
        """Everything a head decides. Pair with `Admitted.end`.

        Raises:
            Rejected: answer it with `refuse`; the body is not to be read.
        """
        started = time.perf_counter()
        cleared = head.cleared
        if cleared is None or cleared[2].revoked:  # a plane gives a head that came again as the same value
            cleared = head.cleared = self._clear(head)
        route, params, key = cleared
        if self.draining and not route.early:
            raise Rejected(Code.SHUTTING_DOWN, "the server is shutting down; retry elsewhere or later")
        key.begin_request(started)
        return Admitted(head, route, params, self.options.limits.body_bytes, started, key)

    def _clear(self, head: Head) -> tuple[Route, tuple[bytes, ...], Key]:
        """What depends on the head alone, and on the keys."""
        place = self.place(head)
        if place is None:
            raise not_found("such path")
        origins, key = self.options.origins, self.keys.stranger
        route = _ASKED_FIRST if origins.asks_first(head) else self.table.route(place, head.method)
        origins.check(head)
        if route is not _ASKED_FIRST:
            key = authorise(self.keys, head, route, place.params, probe_auth=self.options.probe_auth)
        body_max = self.options.limits.body_bytes
        if head.length is not None and head.length > body_max:
            raise too_large(body_max)
        if head.length and route.body is not Body.NONE:
            check_media_type(head)
        elif route.body is Body.REQUIRED and head.length == 0:
            check_media_type(head)  # an empty body needs none only where every field is optional
        expected = head.headers.get(b"expect")
        if expected is not None and expected.lower() != _EXPECTED:
            raise Rejected(
                Code.EXPECTATION_FAILED,
                f"expect: {expected[:40].decode('latin-1')!r} cannot be met; 100-continue can",
            )
        return route, place.params, key

    def begins(self, head: Head) -> bool:
        """Whether the row of a head that was admitted may serve it without waiting."""
        return head.cleared is not None and head.cleared[0].begin is not None

    def begin_answer(
        self, admitted: Admitted, body: bytes, peer: Peer, answered: Callable[[Answer], None]
    ) -> bool:
        """As `answer`, of a row that may serve it without waiting. `answered` is called once with a small answer,
        perhaps before this returns. False if it does not go so: then nothing was done.
        """
        route, head = admitted.route, admitted.head
        if route.begin is None or b"content-encoding" in head.headers:
            return False
        began = time.perf_counter()
        call = HandlerCall(self, head, admitted.params, body, peer, admitted.started, admitted.key)

        def ended(make: Callable[[], Answer]) -> None:
            try:
                answer = make()
            except TopicsError as error:
                answer = self.refused(error, performance=call.performance())
            except Exception as bug:  # noqa: BLE001 -- as of any request
                answer = self.failed(bug, route.name, head)
            timed = self._count(admitted, answer, time.perf_counter() - began, 0.0)
            if timed is not None:
                self.reports.tell(head, answer, timed)
            answered(answer)

        try:
            if call.query:
                route.check_query(call.query)
            return route.begin(call, ended)
        except TopicsError:
            return False

    async def answer(self, admitted: Admitted, body: bytes, peer: Peer) -> Answer:
        """The answer of the handler, or of its refusal.

        Raises:
            PeerGone: nobody is there to be answered.
        """
        route, head = admitted.route, admitted.head
        call: HandlerCall | None = None
        unfolded: Share | None = None
        began = time.perf_counter()
        try:
            if body and route.body is not Body.NONE:
                if head.length is None:
                    check_media_type(head)
                if b"content-encoding" in head.headers:
                    unfolded = Share(self.requests)
                    body = await encoding.decoded(head, body, admitted.body_max, self._unfolding, unfolded)
            call = HandlerCall(self, head, admitted.params, body, peer, admitted.started, admitted.key)
            del body  # the call's now, to let go of
            if call.query:
                route.check_query(call.query)
            answer = await route.handler(call)
            if isinstance(answer.body, Unbounded):
                counted = CountedStream(self, admitted.key, answer.body.source)
                answer.body = Unbounded(counted, answer.body.late, answer.body.lent)
        except TopicsError as error:
            answer = self.refused(error, performance=call.performance() if call is not None else _AT_ONCE)
        except PeerGone:
            raise
        except Exception as bug:  # noqa: BLE001 -- one request's bug ends that request only (architecture 4)
            answer = self.failed(bug, route.name, head)
        finally:
            if unfolded is not None:
                unfolded.release()
        waited_s = 0.0 if call is None else call.waited_s
        timed = self._count(admitted, answer, time.perf_counter() - began - waited_s, waited_s)
        if isinstance(answer.body, bytes) and len(answer.body) >= encoding.ENCODE_BYTES_MIN:
            try:
                answer = await encoding.encoded(head, answer)
            except BaseException:
                if answer.unsent is not None:
                    answer.unsent()
                raise
        if timed is not None:
            self.reports.tell(head, answer, timed)
        return answer

    def _count(
        self, admitted: Admitted, answer: Answer, busy_s: float, waited_s: float
    ) -> TimedRequest | None:
        """Count it, and say who may read it. What is to be told of it, if anything."""
        route, head = admitted.route, admitted.head
        self.counts[route.name, answer.status] += 1
        if self.options.origins.allowed:
            answer.headers += self.options.origins.shared(head)
        latency = self.latencies[route.name]
        latency.counts[bisect_left(BUCKETS_S, busy_s)] += 1
        latency.seconds += busy_s
        if busy_s >= self._told_from_s or REQUEST_ID in head.headers:
            return TimedRequest.of(
                admitted.key.label, route.name, route.path, answer, busy_s=busy_s, waited_s=waited_s
            )
        return None

    def refuse(self, error: Rejected, head: Head | None = None) -> Answer:
        """The answer to a request that was not admitted. `head`: None if it could not be read."""
        answer = error_answer(error, performance=_AT_ONCE)
        self.counts["", answer.status] += 1
        if head is not None:
            answer.headers += self.options.origins.shared(head)
        self.reports.tell(head, answer, TimedRequest("", "", "", 0.0, 0.0, b"", b""))
        return answer

    def refused(self, error: TopicsError, *, performance: bytes = b"") -> Answer:
        self._tell_failure(error)
        return error_answer(error, performance=performance)

    def _tell_failure(self, error: TopicsError) -> None:
        if isinstance(error, (Corrupt, Fatal)):
            log.error("request.failed", code=error.code.value, message=error.message)

    def failed(self, bug: Exception, where: str, head: Head | None = None) -> Answer:
        """A programmer's error in a handler."""
        return error_answer(self._told_bug(bug, where, head), performance=_AT_ONCE, closes=True)

    def _told_bug(self, bug: Exception, where: str, head: Head | None = None) -> Rejected:
        """What the client is told; the log has more."""
        self.bugs += 1
        log.exception("request.bug", where=where, request_id=given_id(head), exc_info=bug)
        return Rejected(
            Code.INTERNAL, "an internal error; the server's log has it, and it is a bug: please report it"
        )

    # Messages of a WebSocket.

    async def take(self, call: OpCall) -> None:
        """A message. When this returns its command has taken effect; its session is told when it is answered."""
        try:
            if call.size <= DECODED_INLINE_BYTES_MAX:
                envelope = decode_envelope(call.text, self.options.limits)
            else:
                envelope = await self.decoded(
                    call.size, partial(decode_envelope, call.text, self.options.limits)
                )
            call.open(envelope)
            asked = call.asked()
            if asked not in self.table.ops:
                raise invalid("op", f"{asked[:40]!r} is not one of {', '.join(self.table.ops)}")
            call.op = op = self.table.ops[asked]
            call.session.key.check_scopes(op.needs, op.name)
            await op.take(call)
        except TopicsError as error:
            call.refuse(error)
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            call.refuse(self._told_of(bug, call))

    def take_now(self, call: OpCall) -> bool:
        """As `take`, of a message that takes effect without waiting. False if it does not: then nothing was done."""
        try:
            call.open(decode_envelope(call.text, self.options.limits))
            op = self.table.ops.get(call.asked())
            if op is None or op.begin is None:
                return False
            call.op = op
            call.session.key.check_scopes(op.needs, op.name)
            return op.begin(call)
        except TopicsError:
            return False  # as `take` finds, who says so
        except Exception as bug:  # noqa: BLE001 -- as there
            call.refuse(self._told_of(bug, call))
            return True

    def message(self, call: OpCall) -> bytes:
        """The message that answers, when it is its turn to be sent."""
        try:
            fields = call.fields()
        except TopicsError as error:
            return self._error_message(error, call)
        except Exception as bug:  # noqa: BLE001 -- of the answer, too: it ends this connection only
            return self._error_message(self._told_of(bug, call), call)
        assert call.op is not None
        self.counts[call.op.name, 200] += 1
        return with_head(call.op.head, call.request_id, fields)

    def _error_message(self, error: TopicsError, call: OpCall) -> bytes:
        self._tell_failure(error)
        self.counts[call.where, STATUS[shown_code(error)]] += 1
        return message_of("error", call.request_id, error_fields(error))

    def _told_of(self, bug: Exception, call: OpCall) -> Rejected:
        call.is_bug = True
        return self._told_bug(bug, call.where)


async def _tell_first(call: HandlerCall) -> Answer:
    """To a browser that asks for a page (CORS)."""
    allow = call.head.place.allow
    answer = call.ok({"allow": allow})
    answer.headers += call.site.options.origins.told_first(allow)
    return answer


# Of no path, and of each.
_ASKED_FIRST: Final = Route(
    name="asked_first", method=b"OPTIONS", path="", handler=_tell_first, scope=PROBE, names=Names.NONE,
    summary="", early=True,
)  # fmt: skip


class CountedStream:
    """A `Source` that is one of the server's streams, and of its key's, until it is closed.

    Raises:
        Rejected: throttled; then it is closed.
    """

    def __init__(self, state: ServerState, key: Key, source: Source) -> None:
        self.bytes_per_s = source.bytes_per_s
        self.piece = source.piece
        self._state = state
        self._key = key
        self._source = source
        try:
            state.begin_stream(key)
        except Rejected:
            source.close()
            raise

    def close(self) -> None:
        self._state.end_stream(self._key)
        self._source.close()


def check_media_type(head: Head) -> None:
    """A body is JSON and says so. Parameters are allowed; a charset has to be UTF-8.

    Raises:
        Rejected: unsupported_media_type.
    """
    value = head.headers.get(b"content-type", b"")
    if value == JSON_TYPE:
        return
    kind, _, parameters = value.partition(b";")
    if kind.strip().lower() != JSON_TYPE:
        given = repr(value[:80].decode("latin-1")) if value else "none"
        raise Rejected(Code.UNSUPPORTED_MEDIA_TYPE, f"content-type: must be application/json, not {given}")
    for parameter in parameters.split(b";"):
        name, _, text = parameter.strip().partition(b"=")
        if name.lower() == b"charset" and text.strip(b'" ').lower() not in (b"utf-8", b"utf8"):
            raise Rejected(Code.UNSUPPORTED_MEDIA_TYPE, "content-type: the charset of JSON is UTF-8")


def too_large(body_max: int) -> Rejected:
    return Rejected(Code.PAYLOAD_TOO_LARGE, f"body: more than the limit of {body_max} bytes", limit=body_max)
