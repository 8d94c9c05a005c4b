"""HTTP by httpx, awaited: on Trio and on asyncio, by anyio.

Connections are kept here and not in httpcore's pool: a call that is cancelled at the wrong moment leaves a connection
there that is neither open nor counted as closed, until none is left (decision 52). So each httpx client here has one
connection, does one exchange at a time, and is thrown away with it unless the exchange came to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakSet

import anyio
import httpx

from topics.calls.retry import HttpAnswer, Request
from topics.client.address import Address
from topics.client.transport import (
    BodyPieces,
    build,
    check_encoding,
    closed,
    failures_told,
    settings,
    size_told,
)

CONNECTIONS_MAX: Final = 512  # each reader that waits has one

Take: TypeAlias = Callable[[AsyncIterator[bytes], int | None], Awaitable[Any]]


class AsyncStream(Protocol):
    """As `Stream`."""

    async def aclose(self) -> None: ...


class AsyncTransport:
    """Connections to one server, for tasks of one run. Whoever finds all of them in use waits for his turn."""

    def __init__(
        self, address: Address, *, api_key: str | None, cafile: str | None, connections_max: int
    ) -> None:
        self.url = address.url
        given = settings(address, api_key=api_key, cafile=cafile, connections_max=1)
        self.headers, self.trust = given["headers"], given["verify"]
        self.connect = partial(httpx.AsyncClient, **given)
        self._room = anyio.Semaphore(connections_max)
        self._idle: list[httpx.AsyncClient] = []
        self._busy: set[httpx.AsyncClient] = set()
        self.streams: WeakSet[AsyncStream] = WeakSet()
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True
        for stream in list(self.streams):
            await stream.aclose()
        await close(*self._idle, *self._busy)

    async def send(self, request: Request, take: Take | None = None) -> HttpAnswer:
        """As `Transport.send`. Cancelled, it takes its connection along."""
        async with self._room:
            if self.is_closed:
                raise closed()
            http = self._idle.pop() if self._idle else self.connect()
            self._busy.add(http)
            try:
                with failures_told(self.url, lambda: self.is_closed):
                    answer = await self._exchange(http, request, take)
            except BaseException:
                self._busy.discard(http)
                await close(http)
                raise
            self._busy.discard(http)
            if not self.is_closed:
                self._idle.append(http)
            return answer

    async def _exchange(self, http: httpx.AsyncClient, request: Request, take: Take | None) -> HttpAnswer:
        found = await open_response(http, self.url, request)
        pieces = found.aiter_raw()
        try:
            check_encoding(found, self.url)
            if take is None or not found.is_success:
                body = BodyPieces(self.url)
                async for piece in pieces:
                    body.add(piece)
                taken: Any = body.whole
            else:
                taken = await take(pieces, size_told(found))
        finally:
            await end(found, pieces)
        return HttpAnswer(found.status_code, taken, found.headers.get("retry-after"))


async def open_response(http: httpx.AsyncClient, url: str, request: Request) -> httpx.Response:
    """The answer, of which the body is still to come."""
    built = build(http, url, request)
    built.stream = _Whole(request.body or b"")
    return await http.send(built, stream=True)


class _Whole(httpx.AsyncByteStream):
    """A body in one piece. httpx has a generator for it, and Trio warns of one that is cancelled while it is sent."""

    def __init__(self, body: bytes) -> None:
        self._rest = [body] if body else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._rest:
            raise StopAsyncIteration
        return self._rest.pop()


async def end(found: httpx.Response, pieces: AsyncIterator[bytes]) -> None:
    """It is over; of a generator that nobody had ask to its end, Trio would warn."""
    await found.aclose()
    with suppress(httpx.HTTPError, httpx.StreamError):
        async for _ in pieces:
            pass


async def close(*connections: httpx.AsyncClient) -> None:
    with anyio.CancelScope(shield=True):
        for connection in connections:
            await connection.aclose()
