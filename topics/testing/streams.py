"""A connection in memory: two ends, each the server's port Edge, that keep the pieces they were sent in.

Theory. Each direction is a bounded queue of pieces. `receive` gives one piece, never two joined, so a test that sends
byte by byte is read byte by byte. A full queue makes `send_all` wait and `try_send` take less, as a peer that does not
read does. Ends are those of TCP: `send_eof` ends one direction; a close with bytes unread, or bytes sent to an end that
has closed, is a *reset*, which also destroys what the other end was sent and has not yet read. So a server that closes
too early loses its answer here as it would on a wire (RFC 9112, 9.6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

CAPACITY: Final = 1 << 16


class _Pipe:
    """One direction."""

    __slots__ = ("capacity", "ended", "moved", "pieces", "reset", "size", "told")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.pieces: deque[bytes] = deque()
        self.size = 0
        self.ended = False  # its sender sends no more
        self.reset = False
        self.moved = trio.lowlevel.ParkingLot()
        self.told: Callable[[], None] | None = None  # when there is something to take

    def put(self, piece: bytes) -> None:
        assert piece
        self.pieces.append(piece)
        self.size += len(piece)
        self._tell()

    def take(self) -> bytes:
        piece = self.pieces.popleft()
        self.size -= len(piece)
        self.moved.unpark_all()
        return piece

    def end(self) -> None:
        self.ended = True
        self._tell()

    def break_off(self) -> None:
        self.pieces.clear()
        self.size = 0
        self.reset = True
        self._tell()

    def _tell(self) -> None:
        self.moved.unpark_all()
        if self.told is not None:
            self.told()


class MemoryEdge:
    """One end of a connection in memory."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self.incoming = incoming
        self._outgoing = outgoing
        self._closed = False
        self._sending = False

    @property
    def unread_bytes(self) -> int:
        """Sent to this end and not yet received by it."""
        return self.incoming.size

    @property
    def closed(self) -> bool:
        return self._closed

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        pipe = self.incoming
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this end is closed")
            if pipe.reset:
                raise trio.BrokenResourceError("the connection was reset")
            if pipe.pieces:
                return pipe.take()
            if pipe.ended:
                return b""
            await pipe.moved.park()

    async def send_all(self, data: bytes | memoryview) -> None:
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            while True:
                data = data[self._send(data) :]
                if not data:
                    return
                await self._outgoing.moved.park()
        finally:
            self._sending = False

    def try_send(self, data: bytes | memoryview) -> int:
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        return self._send(data)

    async def send_eof(self) -> None:
        """As a socket's: not beside a send."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
            self._check()
            self._outgoing.end()
        finally:
            self._sending = False

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As a process that dies: without waiting."""
        if self._closed:
            return
        self._closed = True
        unread = bool(self.incoming.pieces)
        self.incoming.break_off()
        if unread:
            self._outgoing.break_off()
        self._outgoing.end()

    def reset(self) -> None:
        """As a machine that loses power and comes back: both ends are broken at once."""
        self.incoming.break_off()
        self._outgoing.break_off()

    def _send(self, data: bytes | memoryview) -> int:
        self._check()
        pipe = self._outgoing
        if pipe.reset:  # the other end has closed
            self.incoming.break_off()
            raise trio.BrokenResourceError("the other end is closed")
        if pipe.ended:
            raise trio.ClosedResourceError("this end has said that it sends no more")
        count = min(len(data), pipe.capacity - pipe.size)
        if count > 0:
            pipe.put(bytes(data[:count]))
        return max(0, count)

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")


def edge_pair(capacity: int = CAPACITY, *, back: int | None = None) -> tuple[MemoryEdge, MemoryEdge]:
    """Two ends of one connection. `capacity`: bytes under way to the second; `back`: to the first, if not as many."""
    assert capacity > 0, capacity
    there, here = _Pipe(capacity), _Pipe(back or capacity)
    return MemoryEdge(here, there), MemoryEdge(there, here)
