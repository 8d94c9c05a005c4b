"""What the log tells of requests (operations 6): a line for each that was slow, and one for every one if that is asked.

A request's time is from when the whole of it was there until its answer was made, less what it waited for news or jobs
because it asked to. What its peer takes to send and to read is not the server's.

Of a request there is told its method, its route by name (never its path or query), its topic, status, times, the bytes
of its body, which key asked by its name, and its id: `X-Request-Id` as the client gave it, if that is sane, else one of
ours; of a write also the seqs that it was given, so that who knows a record finds its request. An id comes back in the
answer's head, and nowhere in its body.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import msgspec

from topics.kernel.ports import Entropy
from topics.server.api.message import Answer, Head, Sized
from topics.server.runtime.log import log
from topics.server.runtime.tracing import Tracing

SLOW_LINES_PER_S: Final = 10  # of an overload the first ones say it all
REQUEST_ID: Final = b"x-request-id"
_SANE: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_ID_BYTES: Final = 8
_METHODS: Final = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE"}
)  # others name no span: a client could make up as many as it likes
_NEVER_S: Final = float("inf")
_PERFORMANCE: Final = re.compile(rb'"performance":(\{[^{}]*\})\}$')
_TAIL_BYTES: Final = 200
_SEQS: Final = re.compile(rb'\{"topic":"[^"]*","first_seq":(\d+),"last_seq":(\d+),')  # as a write is answered
_START_BYTES: Final = 400


@attrs.frozen
class TimedRequest:
    """What is known of a request when its answer is made. `key`: its label; `start`, `tail`: of the answer's JSON."""

    key: str
    route: str
    path: str  # the route's, with its parameters in braces
    busy_s: float
    waited_s: float  # besides, because it was asked to
    start: bytes
    tail: bytes

    @staticmethod
    def of(
        key: str, route: str, path: str, answer: Answer, *, busy_s: float, waited_s: float
    ) -> TimedRequest:
        body = answer.body if isinstance(answer.body, bytes) else b""
        return TimedRequest(key, route, path, busy_s, waited_s, body[:_START_BYTES], body[-_TAIL_BYTES:])

    def seqs(self) -> dict[str, int]:
        """Which seqs a write was given, as its answer says it."""
        found = _SEQS.match(self.start)
        return {} if found is None else {"first_seq": int(found[1]), "last_seq": int(found[2])}

    def performance(self) -> dict[str, float]:
        """Where the time went, as the answer says it."""
        found = _PERFORMANCE.search(self.tail)
        return msgspec.json.decode(found.group(1), type=dict[str, float]) if found else {}


class RequestReports:
    """`every`: a line a request. `slow_s`: one for those that took so long, 0 for none. `tracing`: a span a request."""

    def __init__(
        self,
        entropy: Entropy,
        *,
        every: bool = False,
        slow_s: float = 0.0,
        tracing: Tracing | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slow = 0  # requests
        self._entropy = entropy
        self._now_s = now_s
        self._every = every
        self._slow_s = slow_s or _NEVER_S
        self.tracing = tracing
        self.from_s = 0.0 if every or tracing else self._slow_s  # what took less is not told
        self._second = 0
        self._lines = 0  # of slow ones, in this second
        self._left_out = 0

    def tell(self, head: Head | None, answer: Answer, timed: TimedRequest) -> None:
        """Of a request whose answer is about to be sent. Puts its id into the answer's head."""
        request_id = given_id(head)
        if request_id is None and self._every:
            request_id = self._entropy.token(_ID_BYTES).hex()
        if request_id is not None:
            answer.headers += ((REQUEST_ID, request_id.encode()),)
        if self.tracing is not None:
            self._trace(self.tracing, head, answer, timed, request_id)
        is_slow = timed.busy_s >= self._slow_s
        if not self._every and not is_slow:
            return
        fields = {
            "method": "" if head is None else head.method.decode("latin-1")[:16],
            "route": timed.route,
            "topic": None if head is None else head.topic,
            "status": answer.status,
            "ms": round((timed.busy_s + timed.waited_s) * 1000, 3),
            "waited_ms": round(timed.waited_s * 1000, 3),
            "bytes": _size(answer),
            "request_id": request_id,
            **({"key": timed.key} if timed.key else {}),
            **timed.seqs(),
        }
        if self._every:
            log.info("request.served", **fields)
        if is_slow:
            self._tell_slow(fields, timed)

    def _trace(
        self, tracing: Tracing, head: Head | None, answer: Answer, timed: TimedRequest, request_id: str | None
    ) -> None:
        method = "_OTHER" if head is None or head.method not in _METHODS else head.method.decode()
        fields = {
            "http.request.method": method,
            "http.route": timed.path or None,
            "http.response.status_code": answer.status,
            "http.response.body.size": _size(answer),
            "topics.route": timed.route or None,
            "topics.topic": None if head is None else head.topic,
            "topics.request_id": request_id,
            "topics.key": timed.key or None,
            "topics.waited_ms": round(timed.waited_s * 1000, 3),
            **{f"topics.{name}": value for name, value in (timed.seqs() | timed.performance()).items()},
        }
        tracing.tell(
            f"{method} {timed.path}".strip(),
            fields,
            {} if head is None else head.headers,
            took_s=timed.busy_s + timed.waited_s,
        )

    def _tell_slow(self, fields: Mapping[str, object], timed: TimedRequest) -> None:
        self.slow += 1
        second = int(self._now_s())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines == SLOW_LINES_PER_S:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        performance = timed.performance()
        performance.pop("server_total_ms", None)  # it is `ms`
        log.warning("request.slow", **fields, **performance, **({"left_out": left_out} if left_out else {}))


def given_id(head: Head | None) -> str | None:
    """The id that the client gave, if it is one that may be told."""
    given = None if head is None else head.headers.get(REQUEST_ID)
    return given.decode() if given is not None and _SANE.fullmatch(given) else None


def _size(answer: Answer) -> int | None:
    """None if nobody knows yet."""
    if isinstance(answer.body, bytes):
        return len(answer.body)
    return answer.body.size if isinstance(answer.body, Sized) else None
