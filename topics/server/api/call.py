"""One request on its way through a handler: what was asked, whom to answer, and the helpers every handler shares."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from topics.embed.aio.runtime import Runtime
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.server.api.message import Answer, Head, Peer, performance_since
from topics.server.api.resources.state import ServerState
from topics.server.auth.keys import Key

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1000
T = TypeVar("T")
_BOOLEANS: Final = {b"true": True, b"1": True, b"false": False, b"0": False, b"": True}
_encode: Final = msgspec.json.Encoder().encode


class HandlerCall:
    """A request with its body. `params` are the path's, percent-decoded once and not yet checked. `key`: who asks; by
    it the handler checks names in the body, and what is told of other names.
    """

    __slots__ = ("body", "head", "key", "params", "peer", "query", "site", "started", "waited_s")

    def __init__(
        self,
        site: ServerState,
        head: Head,
        params: tuple[bytes, ...],
        body: bytes,
        peer: Peer,
        started: float,
        key: Key,
    ) -> None:
        self.site = site
        self.head = head
        self.key = key
        self.params = params
        if head.asked is None:
            head.asked = parse_query(head.query)
        self.query = head.asked
        self.body = body
        self.peer = peer
        self.started = started
        self.waited_s = 0.0  # because it was asked to

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around a long wait that was asked for. See `Peer.watch`."""
        began = time.perf_counter()
        try:
            async with self.peer.watch():
                yield
        finally:
            self.waited_s += time.perf_counter() - began

    @property
    def runtime(self) -> Runtime:
        """The engine's runtime.

        Raises:
            Rejected: not_ready while the log is being recovered.
        """
        return self.site.ready_runtime()

    # What was asked.

    def topic(self) -> str:
        """The topic of the path. Raises `Rejected(invalid_request)` for a bad name."""
        name = self.head.topic
        if name is None:
            name = self.head.topic = check_topic_name(text_of("topic", self.params[0]))
        return name

    async def decoded(self, decode: Callable[[], T]) -> T:
        """The body decoded by a pure function. See `ServerState.decoded`."""
        return await self.site.decoded(len(self.body), decode)

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes-or-no of the query: `true`, `false`, `1`, `0`, or the bare name."""
        value = self.query.get(name.encode())
        if value is None:
            return default
        if value not in _BOOLEANS:
            raise invalid(name, f"must be true or false, not {_shown(value)}")
        return _BOOLEANS[value]

    def number(self, name: str, *, default: int, most: int) -> int:
        """A whole number of the query; 0 is the default, above `most` is clamped."""
        value = self.query.get(name.encode())
        if value is None:
            return default
        if not value.isdigit():
            raise invalid(name, f"must be a whole number from 0, not {_shown(value)}")
        digits = value.lstrip(b"0")
        return min(int(digits or b"0"), most) or default if len(digits) < 20 else most

    def text(self, name: str, *, default: str = "") -> str:
        value = self.query.get(name.encode())
        return default if value is None else text_of(name, value)

    # The answer.

    def performance(self) -> bytes:
        """The member `performance` with its leading comma, and no more to come."""
        return performance_since(self.started)

    def ok(self, fields: Mapping[str, object], *, status: int = 200) -> Answer:
        """A JSON answer; `performance` goes in last."""
        return Answer(status, _encode(fields)[:-1] + self.performance() + b"}")


def parse_query(query: bytes) -> dict[bytes, bytes]:
    """Names and values, percent-decoded, `+` a space; of a repeated name the last counts."""
    found: dict[bytes, bytes] = {}
    for part in query.split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            found[_decoded(name)] = _decoded(value)
    return found


def _shown(value: bytes) -> str:
    """A part of the query for a message."""
    return repr(value[:40].decode("utf-8", "replace"))


def text_of(field: str, value: bytes) -> str:
    """Percent-decoded bytes as text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(field, "is not UTF-8") from None


def not_found(what: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"there is no {what}; see /v0/openapi.json for what there is")


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" ")) if b"%" in text or b"+" in text else text
