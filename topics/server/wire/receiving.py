"""What a peer has sent and nobody has taken yet: one buffer, out of which heads and bodies are cut."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import trio

from topics.kernel.errors import Rejected
from topics.server.api.edge import Edge
from topics.server.api.memory import MemoryAccount, Share
from topics.server.wire.edges import ToldEdge
from topics.server.wire.head import find_end

READ_AHEAD_BYTES: Final = 64 * 1024
_EMPTY_LINES_MAX: Final = 16  # before a request


class Incoming:
    """`ended`: the peer sends no more."""

    __slots__ = ("_ahead", "_edge", "_empty_lines", "_searched", "buffer", "ended")

    def __init__(self, edge: Edge, account: MemoryAccount) -> None:
        self._edge = edge
        self._ahead = Share(account)  # what came during a wait, until the buffer is empty again
        self._searched = self._empty_lines = 0
        self.buffer = bytearray()
        self.ended = False

    async def receive(self) -> bool:
        """More bytes into the buffer. False at their end."""
        self.take(await self._edge.receive())
        return not self.ended

    def take(self, data: bytes) -> None:
        """This has come; nothing, if the peer has ended its side."""
        self.ended = not data
        self.buffer += data

    def take_head(self, bytes_max: int) -> bytes | None:
        """The next head, once it is here whole.

        Raises:
            Rejected: headers_too_large, invalid_request.
        """
        buffer = self.buffer
        while buffer.startswith(b"\r\n") and self._empty_lines < _EMPTY_LINES_MAX:  # RFC 9112 2.2
            del buffer[:2]
            self._searched = 0
            self._empty_lines += 1
        end = find_end(buffer, self._searched, bytes_max)
        if end < 0:
            self._searched = len(buffer)
            return None
        self._searched = self._empty_lines = 0
        text = bytes(buffer[:end])
        del buffer[:end]
        return text

    def move(self, body: BytesIO, length: int) -> int:
        """Move what is here of a body of this length behind what came of it before; how much there is of it now."""
        buffer, left = self.buffer, length - body.tell()
        with memoryview(buffer) as view:
            body.write(view[:left])
        del buffer[:left]
        return body.tell()

    async def read_ahead(self) -> bool:
        """Until the peer ends its side, or so much has come that there is no room for more: it stays in the buffer.
        False if the connection is broken, so that no answer would arrive.
        """
        try:
            while self._has_room_ahead():
                await self.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended = True
            return False
        return True

    def read_ahead_nowait(self, edge: ToldEdge) -> bool | None:
        """As `read_ahead`, of what is there; None if there may be more."""
        try:
            while self._has_room_ahead():
                data = edge.receive_nowait()
                if data is None:
                    return None
                self.take(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended = True
            return False
        return True

    def _has_room_ahead(self) -> bool:
        try:
            self._ahead.cover(len(self.buffer), most=len(self.buffer))
        except Rejected:  # throttled: no memory is left for what comes
            return False
        return not self.ended and len(self.buffer) < READ_AHEAD_BYTES

    def let_go(self) -> None:
        """The buffer is empty, or of no use any more."""
        if self._ahead.size:
            self._ahead.release()

    async def drain(self, bytes_max: int) -> None:
        """Read until the peer ends, so much at most with what is here, and keep nothing of it."""
        left = bytes_max - len(self.buffer)
        while left > 0 and not self.ended:
            data = await self._edge.receive()
            left -= len(data)
            self.ended = not data
