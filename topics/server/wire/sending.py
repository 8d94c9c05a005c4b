"""Answers on their way to the peer, in order. None that is large is copied: not to join it, nor to send its rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from topics.server.api.edge import Edge

GATHERED_MAX: Final = 16
SLICE_BYTES: Final = 64 * 1024  # of what is waited for: TLS keeps a copy of what it is given
_GATHERED_BYTES_MAX: Final = 256 * 1024


class Outgoing:
    """`pieces`: what is not sent yet. To add to them is all that may be done to them from outside. `unsent`: whom to
    call if they never are.
    """

    __slots__ = ("_edge", "_sent", "pieces", "unsent")

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self.pieces: list[bytes] = []
        self.unsent: list[Callable[[], None]] = []
        self._sent = 0  # of the first piece

    @property
    def size(self) -> int:
        """Bytes in memory. A piece is there until all of it is sent."""
        return sum(map(len, self.pieces))

    @property
    def enough(self) -> bool:
        """True if answers to pipelined requests are so many or so large that they are sent before more are made."""
        return len(self.pieces) >= GATHERED_MAX or self.size >= _GATHERED_BYTES_MAX

    def drop(self) -> None:
        """Nothing of it is sent any more."""
        self.pieces.clear()
        self._sent = 0
        for tell in self.unsent:
            tell()
        self.unsent.clear()

    def send_nowait(self) -> bool:
        """Send what goes at once. True if that was all; nothing more goes at once if it was not all before."""
        if self._sent:
            return False
        pieces = self.pieces
        if len(pieces) > 1 and self.size <= SLICE_BYTES:
            pieces[:] = (b"".join(pieces),)
        while pieces:
            sent = self._edge.try_send(pieces[0])
            if sent < len(pieces[0]):
                self._sent = sent
                return False
            del pieces[0]
        return True

    async def send(self, part_bytes: int = SLICE_BYTES, part_s: float = math.inf) -> None:
        """Send the rest, as the peer takes it, who has so long for each part.

        Raises:
            TooSlowError: the peer has not taken a part in time, and the connection is broken.
            ClosedResourceError: it was dropped.
            BrokenResourceError: as the edge.
        """
        while self.pieces:
            piece = memoryview(self.pieces[0])
            while self._sent < len(piece):
                part = piece[self._sent : self._sent + part_bytes]
                with trio.move_on_after(part_s) as patience:
                    await self._edge.send_all(part)
                if patience.cancelled_caught:
                    raise trio.TooSlowError("the peer does not read")
                if not self.pieces:
                    raise trio.ClosedResourceError("nothing is to be sent any more")
                self._sent += len(part)
            del self.pieces[0]
            self._sent = 0
