"""The feed of an `AsyncWatch` at a server: as `SessionFeed`, awaited, on Trio and on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx

from topics.calls.retry import HttpAnswer, Line, Request, Send, Sleep
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rules import Asked
from topics.calls.watching.session import Receive, RemoteWatch
from topics.client.async_transport import AsyncTransport, close, end, open_response
from topics.client.transport import BodyPieces, check_events, closed, failures_told


class AsyncEventStream:
    """As `EventStream`. Whoever is cancelled while he waits has lost the connection, and what he asks for next ends."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._found: tuple[httpx.Response, AsyncIterator[bytes]] | None = None
        self._is_read = False
        transport.streams.add(self)

    async def open(self, request: Request) -> HttpAnswer:
        """As `EventStream.open`."""
        await self.aclose()
        if self._transport.is_closed:
            raise closed()
        self._http = http = self._transport.connect()
        url = self._transport.url
        try:
            with failures_told(url, lambda: self._transport.is_closed):
                found = await open_response(http, url, request)
                self._found = found, found.aiter_raw()
                if found.is_success:
                    check_events(found, url)
                    return HttpAnswer(found.status_code, b"")
                body = BodyPieces(url)
                async for piece in self._found[1]:
                    body.add(piece)
        except BaseException:
            await self.aclose()
            raise
        return HttpAnswer(found.status_code, body.whole, found.headers.get("retry-after"))

    async def receive(self) -> bytes:
        """As `EventStream.receive`."""
        if self._found is None:
            return b""
        self._is_read = True
        try:
            return await anext(self._found[1], b"")
        except httpx.TransportError:
            return b""
        except BaseException:
            self._is_read = False
            await self.aclose()
            raise
        finally:
            self._is_read = False

    async def aclose(self) -> None:
        """Whoever reads it is told that it has ended, and then lets go of it."""
        http, self._http = self._http, None
        if http is not None:
            await close(http)
        if self._found is not None and not self._is_read:
            found, self._found = self._found, None
            with anyio.CancelScope(shield=True):
                await end(*found)


class AsyncSessionFeed:
    """`AsyncFeed` of a client."""

    def __init__(self, asked: Asked, line: Line, transport: AsyncTransport) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = RemoteWatch(self.cursors, asked, line).steps()
        self._line = line
        self._transport = transport
        self._stream = AsyncEventStream(transport)

    async def answer(self, step: Any) -> Any:
        match step:
            case Send(request) if request.silent_s is None:
                return await self._transport.send(request)
            case Send(request):
                return await self._stream.open(request)
            case Receive():
                return await self._stream.receive()
        assert isinstance(step, Sleep)
        sleeps = self._line.pace.sleep(step.seconds)
        if sleeps is not None:
            await sleeps
        return None

    async def aclose(self) -> None:
        await self._stream.aclose()
