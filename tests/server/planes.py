"""Both planes behind one way to ask, over connections in memory: HTTP/1.1 by the wire, HTTP/2 by the hand-over."""

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import trio

from tests.server.app.h2peer import H2Peer, serving
from tests.server.wire.places import alone, serve_connection
from tests.server.wire.playing import Client, Seen, pass_time
from topics.server.api.site import Site
from topics.server.app.handover import Http2HandOver
from topics.testing.streams import edge_pair

Field = tuple[bytes, bytes]
HOST = b"localhost:4000"
JSON = (b"content-type", b"application/json")
_OWN = {"date", "connection", ":status"}  # what is a plane's own
_MOVING = re.compile(rb',"performance":\{[^}]*\}|"uptime_ms":\d+')


class Plane(Protocol):
    """A way to ask. Each question is a request of its own on a connection that goes on."""

    async def ask(
        self, method: bytes, path: bytes, body: bytes | None = None, *fields: Field, host: bytes = HOST
    ) -> Seen: ...

    async def ask_without_end(self, method: bytes, path: bytes, length: int) -> Seen:
        """Promise a body, send none, let 15 s pass."""
        ...


class Wire:
    def __init__(self, site: Site, nursery: trio.Nursery, hand_over: Http2HandOver | None) -> None:
        self._site = site
        self._hand_over = hand_over
        self._nursery = nursery
        self._client: Client | None = None

    async def ask(
        self, method: bytes, path: bytes, body: bytes | None = None, *fields: Field, host: bytes = HOST
    ) -> Seen:
        given = [(b"host", host)]
        if body is not None:
            given += [(b"content-length", b"%d" % len(body))]
        client = await self._send(method, path, [*given, *fields], body or b"")
        return await self._answer(client, method)

    async def ask_without_end(self, method: bytes, path: bytes, length: int) -> Seen:
        given = [(b"host", HOST), JSON, (b"content-length", b"%d" % length)]
        client = await self._send(method, path, given, b"")
        await pass_time(15)
        return await self._answer(client, method)

    async def _send(self, method: bytes, path: bytes, fields: list[Field], body: bytes) -> Client:
        if self._client is None:
            ours, theirs = edge_pair(capacity=1 << 26)
            self._client = Client(ours)
            serve = partial(serve_connection, hand_over=self._hand_over)
            self._nursery.start_soon(serve, theirs, self._site)
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        await self._client.send(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, path, head, body))
        return self._client

    async def _answer(self, client: Client, method: bytes) -> Seen:
        seen = await client.answer(head=method == b"HEAD")
        assert seen is not None
        if seen.headers.get("connection") == "close":
            await client.edge.aclose()
            self._client = None
        return seen


class Http2:
    def __init__(self, peer: H2Peer) -> None:
        self._peer = peer

    async def ask(
        self, method: bytes, path: bytes, body: bytes | None = None, *fields: Field, host: bytes = HOST
    ) -> Seen:
        return await self._reply(await self._peer.ask(method, path, body, *fields, authority=host))

    async def ask_without_end(self, method: bytes, path: bytes, length: int) -> Seen:
        promised = (b"content-length", b"%d" % length)
        stream = await self._peer.ask(method, path, None, JSON, promised, authority=HOST, ends=False)
        await pass_time(15)
        return await self._reply(stream)

    async def _reply(self, stream: int) -> Seen:
        reply = await self._peer.reply(stream)
        assert reply.headers, f"no answer: reset {reply.reset}, gone {self._peer.gone}"
        headers = {name.decode(): value.decode() for name, value in reply.headers.items()}
        return Seen(reply.status, headers, reply.body)


@asynccontextmanager
async def plane_of(kind: str, site: Site) -> AsyncIterator[Plane]:
    """`wire`, `http2`, or `handed`: the wire that hands over what is not its own."""
    async with alone(), trio.open_nursery() as nursery:
        if kind == "wire":
            yield Wire(site, nursery, None)
        elif kind == "handed":
            yield Wire(site, nursery, Http2HandOver(site))
        else:
            async with serving(site) as served:
                yield Http2(await served.h2())
        nursery.cancel_scope.cancel()


def comparable(seen: Seen) -> tuple[int, dict[str, str], bytes]:
    """What both planes must give alike: all but what a plane or a moment has of its own."""
    headers = {name: value for name, value in seen.headers.items() if name not in _OWN}
    body = gzip.decompress(seen.body) if headers.get("content-encoding") == "gzip" else seen.body
    same = _MOVING.sub(b"", body)
    if same != body or not body:  # with the time it took comes its length; a HEAD has only that
        assert int(headers.pop("content-length")) > 0
    return seen.status, headers, same
