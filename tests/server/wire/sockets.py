"""A WebSocket's other end, by hand: what it sends need not be right, and what it gets is taken apart here."""

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.wire.places import alone, serve_connection
from tests.server.wire.playing import Client
from topics.server.api.site import Site
from topics.server.wire.connection import WireConnection
from topics.server.wire.patience import WireOptions
from topics.testing.streams import MemoryEdge, edge_pair

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
HEAD = (
    b"GET /v0/ws HTTP/1.1",
    b"Host: localhost",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def head(*fields: bytes, without: bytes = b"\0", line: bytes = HEAD[0]) -> bytes:
    """A request for a WebSocket. `without`: the field that begins so is left out."""
    lines = [line, *(field for field in HEAD[1:] if not field.startswith(without)), *fields]
    return b"".join(one + b"\r\n" for one in lines) + b"\r\n"


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    mask: bytes | None = b"\x01\x80\x7f\xff",
    rsv: int = 0,
) -> bytes:
    size = len(payload)
    first = fin << 7 | rsv << 4 | opcode
    masked = (mask is not None) << 7
    if size < 126:
        start = struct.pack("!BB", first, masked | size)
    elif size < 1 << 16:
        start = struct.pack("!BBH", first, masked | 126, size)
    else:
        start = struct.pack("!BBQ", first, masked | 127, size)
    if mask is None:
        return start + payload
    return start + mask + bytes(a ^ b for a, b in zip(payload, cycle(mask), strict=False))


def text(**fields: Any) -> bytes:
    return frame(json.dumps(fields).encode())


def close(code: int | None = 1000, reason: bytes = b"") -> bytes:
    return frame(b"" if code is None else struct.pack("!H", code) + reason, CLOSE)


def publish(*data: Any, topic: str = "t", **fields: Any) -> bytes:
    return text(op="publish", topic=topic, records=[{"data": one} for one in data], **fields)


@attrs.frozen
class Got:
    """A frame from the server."""

    opcode: int
    payload: bytes

    @property
    def fields(self) -> dict[str, Any]:
        assert self.opcode == TEXT, self
        found: dict[str, Any] = json.loads(self.payload)
        return found

    @property
    def close(self) -> tuple[int, str]:
        """Code, 0 if there is none, and reason."""
        assert self.opcode == CLOSE, self
        return int.from_bytes(self.payload[:2], "big"), self.payload[2:].decode()

    @property
    def short(self) -> object:
        """What a table expects: the op of a message, the code of an error or of a close, the payload of a pong."""
        if self.opcode == TEXT:
            return self.fields["code"] if self.fields["op"] == "error" else self.fields["op"]
        return self.close[0] if self.opcode == CLOSE else self.payload


class SocketPeer:
    """`edge`: our end."""

    def __init__(self, edge: MemoryEdge) -> None:
        self.edge = edge
        self.client = Client(edge)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.client.send(piece)

    async def open(self, request: bytes = b"") -> dict[str, str]:
        """Ask, unless that is done, and be accepted. Returns the fields of the answer's head."""
        await self.send(*filter(None, [request]))
        while b"\r\n\r\n" not in self.client.buffer:
            self.client.buffer += await self._more()
        first, _, self.client.buffer = self.client.buffer.partition(b"\r\n\r\n")
        line, *fields = first.decode().split("\r\n")
        assert line == "HTTP/1.1 101 Switching Protocols"
        return {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}

    async def frame(self) -> Got | None:
        """The next, None at the end."""
        while (size := self._size()) is None or len(self.client.buffer) < size:
            data = await self.client.receive()
            if not data:
                assert self.client.buffer == b"", "half a frame"
                return None
            self.client.buffer += data
        whole, self.client.buffer = self.client.buffer[:size], self.client.buffer[size:]
        assert whole[0] & 0xF0 == 0x80, "the server fragments nothing and sets no reserved bit"
        return Got(whole[0] & 15, whole[self._start(whole) :])

    async def message(self) -> dict[str, Any]:
        """The next; who is asked meanwhile whether we live is told."""
        while (got := await self.frame()) is not None and got.opcode == PING:
            await self.send(frame(got.payload, PONG))
        assert got is not None, "the connection has ended"
        return got.fields

    async def messages(self, count: int) -> list[dict[str, Any]]:
        return [await self.message() for _ in range(count)]

    async def ask(self, **fields: Any) -> dict[str, Any]:
        await self.send(text(**fields))
        return await self.message()

    async def rest(self) -> list[Got]:
        """Everything up to the end."""
        found = []
        while (got := await self.frame()) is not None:
            found.append(got)
        return found

    async def quiet(self) -> None:
        """Nothing more has come."""
        await wait_all_tasks_blocked()
        assert (self.client.buffer, self.edge.unread_bytes) == (b"", 0)

    async def _more(self) -> bytes:
        data = await self.client.receive()
        assert data, f"the connection ended behind {self.client.buffer!r}"
        return data

    def _start(self, buffer: bytes) -> int:
        assert not buffer[1] & 0x80, "a server masks nothing"
        return {126: 4, 127: 10}.get(buffer[1], 2)

    def _size(self) -> int | None:
        buffer = self.client.buffer
        if len(buffer) < 2 or len(buffer) < (start := self._start(buffer)):
            return None
        return start + (buffer[1] if start == 2 else int.from_bytes(buffer[2:start], "big"))


def living(connection: WireConnection) -> int:
    """Tasks, without those that wait for a connection to serve."""
    pool = connection.start.func.__self__._pool
    return trio.lowlevel.current_statistics().tasks_living - len(pool._waiting)


@asynccontextmanager
async def socket_of(
    site: Site,
    *,
    options: WireOptions | None = None,
    capacity: int = 1 << 24,
    back: int | None = None,
    request: bytes = head(),
    is_told: bool = True,
) -> AsyncIterator[tuple[SocketPeer, WireConnection]]:
    """An open one. Behind the block our end closes, and the server's side has ended and holds nothing."""
    ours, theirs = edge_pair(capacity, back=back)
    async with alone(), trio.open_nursery() as nursery:
        serve = partial(serve_connection, theirs, site, options=options, is_told=is_told)
        connection = await nursery.start(serve)
        peer = SocketPeer(ours)
        await peer.open(request)
        yield peer, connection
        await ours.aclose()
    assert theirs.closed
    assert (site.held_bytes, site.unsent_bytes) == (0, 0)
