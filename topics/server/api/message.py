"""A request and an answer as values, the same for every plane. Nothing here knows a protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

from topics.server.api.memory import Share

STUCK_S: Final = 30.0  # a peer of a stream may take nothing for so long (semantics 11)
LATE_S: Final = 1.0  # and for so much more if he wants to hear why it ends
PART_BYTES: Final = 16 * 1024  # of a piece, that a peer takes in that time
JSON_TYPE: Final = b"application/json"


def performance_since(started: float) -> bytes:
    """The member `performance` with its leading comma, and no more to come. `started`: by `time.perf_counter`."""
    return b',"performance":{"server_total_ms":%.3f}' % ((time.perf_counter() - started) * 1000)


class PeerGone(Exception):
    """The peer went while its answer was waited for: nobody reads an answer any more, so there is none."""


class Peer(Protocol):
    """Whom the answer goes to, as much as a handler may know of it."""

    @property
    def room(self) -> Share:
        """What its answers hold of the memory for answers, until they are sent. Reserve before making much."""
        ...

    def watch(self) -> AbstractAsyncContextManager[None]:
        """Around a long wait. If the peer goes, the block is cancelled and `PeerGone` is raised behind it; if all that
        is known is that the wait should end, the block is cancelled and what is behind it goes on: answer now.
        """
        ...


class Source(Protocol):
    """Where a body comes from that is not held: one piece after another. A plane closes it, whatever happens.

    `bytes_per_s`: a peer that takes them more slowly, after a grace, is let go of.
    """

    @property
    def bytes_per_s(self) -> int: ...

    async def piece(self) -> bytes | None:
        """The next bytes, none at the end. None if there is nothing now, where `Unbounded.lent` was given what to call
        when there is.

        Raises:
            StreamBroken: there are no more, and it is not the end.
        """
        ...

    def close(self) -> None: ...


def _let_it_be() -> None: ...
def _leave_it(_: SendNow, __: Resume | None) -> None: ...


class Sized(msgspec.Struct, frozen=True):
    """A body too large to be held, of a known size."""

    source: Source
    size: int


SendNow = Callable[[bytes], bool]
Resume = Callable[[], None]


class Unbounded(msgspec.Struct, frozen=True):
    """A body whose end nobody knows. It ends with the peer's side of the connection, if with nothing else.

    `late`: called if the peer has taken nothing for STUCK_S. If he does within a moment, the next piece is sent.
    `lent`: a plane that can send without waiting gives it what sends a piece at once, to be called while `piece` is
    awaited, or has given None. True: it has gone. Else some of it may have, and the same piece is what `piece` gives
    next. Perhaps it gives what asks for `piece` again as well: then nobody need wait for one.
    """

    source: Source
    late: Callable[[], None] = _let_it_be
    lent: Callable[[SendNow, Resume | None], None] = _leave_it


Body = bytes | Sized | Unbounded


class SendPace:
    """By when a peer must have taken the bytes that are sent next. Where nobody knows how much there will be, and when,
    each part of it counts by itself.
    """

    def __init__(self, body: Sized | Unbounded, grace_s: float, now: float) -> None:
        self.bytes_per_s = body.source.bytes_per_s
        self._each = isinstance(body, Unbounded)
        self._grace_s = grace_s
        self._since = now
        self._sent = 0

    def deadline(self, size: int, now: float) -> float:
        """For a part of so many bytes, which is there now."""
        if self._each:
            return now + STUCK_S
        self._sent += size
        return self._since + self._grace_s + self._sent / self.bytes_per_s


class Head:
    """A request up to its body, checked by its plane: names of `headers` are lower case, repeated ones joined by `, `.

    `path` and `query` are as sent, still percent-encoded. `length` is that of the body as declared, None if it comes in
    chunks. `host` is the authority asked for, `secure` whether it came over TLS.

    A plane gives a head that came again as the same value, so what was found in it once is kept in it: `place` and
    `cleared` are the site's, what is at its path and where a good head leads to; `asked` and `topic` are the handlers',
    its query and the topic of its path.
    """

    __slots__ = (
        "asked",
        "cleared",
        "headers",
        "length",
        "method",
        "path",
        "place",
        "query",
        "secure",
        "topic",
    )

    def __init__(
        self,
        method: bytes,
        path: bytes,
        query: bytes = b"",
        headers: Mapping[bytes, bytes] | None = None,
        *,
        length: int | None = 0,
        secure: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers: Mapping[bytes, bytes] = headers if headers is not None else {}
        self.length = length
        self.secure = secure
        self.place: Any = None
        self.cleared: Any = None
        self.asked: Mapping[bytes, bytes] | None = None
        self.topic: str | None = None

    @property
    def host(self) -> bytes:
        return self.headers.get(b"host", b"")


class Answer(msgspec.Struct, eq=False):
    """Status, body and what goes with it. `Content-Length`, `Date` and `Connection` are the plane's.

    `closes`: the connection is not to be used again (the plane may have other reasons of its own). `unsent`: called if
    it is known that the peer was not sent all of it.
    """

    status: int
    body: Body = b""
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()
    closes: bool = False
    unsent: Callable[[], None] | None = None

    @property
    def held(self) -> bytes:
        """The body, which is no stream."""
        assert isinstance(self.body, bytes)
        return self.body

    def __repr__(self) -> str:
        body = self.body[:80] if isinstance(self.body, bytes) else self.body
        return f"Answer({self.status}, {body!r})"
