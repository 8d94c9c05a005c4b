"""Answers on their way to the peer, in order. None that is large is copied: not to join it, nor to send its rest."""

from __future__ import annotations

from typing import Final

from topics.server.api.edge import Edge

GATHERED_MAX: Final = 16
SLICE_BYTES: Final = 64 * 1024  # of what is waited for: TLS keeps a copy of what it is given
_GATHERED_BYTES_MAX: Final = 256 * 1024


class Outgoing:
    """The pieces that are not sent yet."""

    __slots__ = ("_edge", "_pieces", "_sent")

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._pieces: list[bytes] = []
        self._sent = 0  # of the first piece

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def size(self) -> int:
        """Bytes in memory. A piece is there until all of it is sent."""
        return sum(map(len, self._pieces))

    @property
    def enough(self) -> bool:
        """True if answers to pipelined requests are so many or so large that they are sent before more are made."""
        return len(self._pieces) >= GATHERED_MAX or self.size >= _GATHERED_BYTES_MAX

    def add(self, *pieces: bytes) -> None:
        self._pieces += pieces

    def drop(self) -> None:
        self._pieces.clear()
        self._sent = 0

    def send_nowait(self) -> bool:
        """Send what goes at once. True if that was all."""
        pieces = self._pieces
        if len(pieces) > 1 and self.size <= SLICE_BYTES and not self._sent:
            pieces[:] = (b"".join(pieces),)
        while pieces:
            piece = pieces[0]
            self._sent += self._edge.try_send(memoryview(piece)[self._sent :] if self._sent else piece)
            if self._sent < len(piece):
                return False
            del pieces[0]
            self._sent = 0
        return True

    async def send(self) -> None:
        """Send the rest, as the peer takes it."""
        while self._pieces:
            piece = memoryview(self._pieces[0])
            while self._sent < len(piece):
                part = piece[self._sent : self._sent + SLICE_BYTES]
                await self._edge.send_all(part)
                self._sent += len(part)
            del self._pieces[0]
            self._sent = 0
