"""A request repeated as often as that is safe and worth it: a generator, which blocking and async transports drive.

It yields `Send`, and is sent the `HttpAnswer` or thrown `Unreachable`; and `Sleep`. A request that never left is
repeated whatever it asks. One that may have arrived is repeated only if twice is as good as once: reads, and writes
under an idempotency key. For how long is `patience`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from topics.calls.messages import MALFORMED
from topics.calls.patience import Pace, Patience, retry_after_s
from topics.calls.trouble import Trouble, Unreachable, answered, not_topics, unanswered
from topics.kernel.errors import Code, TopicsError

T = TypeVar("T")

_PAGE_SIZE: Final = 1000
_ROWS_MAX: Final = 10_000_000  # what gives more has no end
_SAFE: Final = frozenset({Code.NOT_READY, Code.THROTTLED})  # said before anything is begun


@attrs.frozen
class Request:
    """`repeatable`: twice is as good as once. `writes`: it changes something. `wait_ms`: it may take that long.

    `silent_s`: the answer is a stream of events, which is kept, and may be silent for so long.
    """

    method: str
    path: str
    query: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes | None = None
    repeatable: bool = False
    writes: bool = False
    wait_ms: int = 0
    headers: Mapping[str, str] = attrs.field(factory=dict)
    silent_s: float | None = None


@attrs.frozen
class Send:
    """Send it, and give the answer, or raise `Unreachable`."""

    request: Request


@attrs.frozen
class Sleep:
    """Wait so long."""

    seconds: float


@attrs.frozen
class HttpAnswer:
    """`body`: bytes, or of a good answer what the transport was told to make of it. `retry_after`: the header."""

    status: int
    body: Any
    retry_after: str | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


Talk: TypeAlias = Generator[Send | Sleep, HttpAnswer | None, T]


@attrs.define
class Line:
    """The way to one server."""

    url: str
    patience: Patience
    pace: Pace
    has_answered: bool = False

    def ask(
        self, method: str, path: str, read: Callable[[bytes], T], *, query: Mapping[str, str] | None = None,
        body: bytes | None = None, repeatable: bool = False, writes: bool = False, wait_ms: int = 0,
        failed: Callable[[TopicsError], None] | None = None,
    ) -> Talk[T]:  # fmt: skip
        """What `read` makes of the body of a good answer. `failed`: as of `retry`.

        Raises:
            Rejected, Fatal: what the server answered.
            Unreachable: no answer, or none of ours.
        """
        request = Request(
            method, path, query or {}, body, repeatable=repeatable, writes=writes, wait_ms=wait_ms
        )
        found = yield from self.retry(request, failed)
        try:
            return read(found)
        except MALFORMED as error:
            raise not_topics(self.url, f"{path} answered what is not of its form: {error}") from error

    def retry(self, request: Request, failed: Callable[[TopicsError], None] | None = None) -> Talk[Any]:
        """The body of a good answer; raises what `ask` raises. `failed` gets each error that is tried again."""
        started, attempts, may_be_done = self.pace.now_s(), 0, False
        while True:
            error: TopicsError
            try:
                answer = yield Send(request)
                assert answer is not None
                if answer.is_good:
                    self.has_answered = True
                    return answer.body
                error = answered(answer.status, answer.body, url=self.url, writes=request.writes)
                if isinstance(error, Unreachable):
                    raise error
                self.has_answered = True
                if answer.status not in (429, 503):
                    raise error
                after_s = retry_after_s(answer.retry_after)
                again = request.repeatable or error.code in _SAFE
            except Unreachable as failure:
                error, after_s = failure, 0.0
                again = failure.reason not in (Trouble.TLS, Trouble.NOT_TOPICS)
                again = again and (request.repeatable or not failure.sent)
                may_be_done = failure.sent = failure.sent or may_be_done
            attempts += 1
            wait_s = self._wait_s(attempts, started, after_s) if again else None
            if wait_s is None:
                raise unanswered(error, self.url) if may_be_done and request.writes else error
            if failed is not None:
                failed(error)
            yield Sleep(wait_s)

    def _wait_s(self, attempts: int, started: float, after_s: float) -> float | None:
        return self.patience.wait_s(
            attempts,
            elapsed_s=self.pace.now_s() - started,
            retry_after_s=after_s,
            known=self.has_answered,
            chance=self.pace.chance(),
        )


def ask_all(
    line: Line,
    path: str,
    read: Callable[[bytes], tuple[Sequence[T], str | None]],
    of: str,
    query: Mapping[str, str] | None = None,
) -> Talk[Sequence[T]]:
    """Every row, in as many requests as it takes. `read`: the rows of a page, and where the next one begins. `of`: what
    it is a list of.
    """
    found: list[T] = []
    asked = {**(query or {}), "page_size": str(_PAGE_SIZE)}
    while True:
        rows, cursor = yield from line.ask("GET", path, read, query=dict(asked), repeatable=True)
        found += rows
        if cursor is None:
            return found
        if cursor == asked.get("cursor") or len(found) > _ROWS_MAX:
            raise not_topics(line.url, f"its list of {of} has no end")
        asked["cursor"] = cursor
