"""Ends of connections in memory that are told of what comes, as sockets are by a `Poller` (decision 130)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from topics.server.wire.edges import ToldEdge
from topics.testing.streams import MemoryEdge


class MemoryPoller:
    """Tells edges in memory of what has come, as `Poller` does sockets: one task, all that there is in one pass.

    `tell_together`: calls what tells of it.
    """

    def __init__(self, tell_together: Callable[[Callable[[], None]], None]) -> None:
        self._tell_together = tell_together
        self._due: dict[ToldMemoryEdge, None] = {}
        self._moved = trio.lowlevel.ParkingLot()

    def add(self, edge: ToldMemoryEdge) -> None:
        """Something has come for it."""
        self._due[edge] = None
        self._moved.unpark_all()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            while not self._due:
                await self._moved.park()
            self._tell_together(self._tell_each)
            await trio.lowlevel.checkpoint()

    def _tell_each(self) -> None:
        due, self._due = self._due, {}
        for edge in due:
            edge.came(ended=edge.has_ended)


class ToldMemoryEdge(ToldEdge):
    """An end in memory that is told of what comes."""

    __slots__ = ("_edge", "_incoming", "_poller")

    def __init__(self, edge: MemoryEdge, poller: MemoryPoller) -> None:
        super().__init__()
        self._edge = edge
        self._incoming = edge.incoming
        self._poller = poller
        self._incoming.told = self._has_come
        self._has_come()

    @property
    def has_ended(self) -> bool:
        return self._incoming.ended or self._incoming.reset

    def try_send(self, data: bytes | memoryview) -> int:
        return self._edge.try_send(data)

    async def send_all(self, data: bytes | memoryview) -> None:
        await self._edge.send_all(data)

    async def send_eof(self) -> None:
        await self._edge.send_eof()

    def _recv(self) -> bytes:
        pipe = self._incoming
        if pipe.reset:
            raise trio.BrokenResourceError("the connection was reset")
        if pipe.pieces:
            piece = pipe.take()
            self._has_come()  # there may be another piece
            return piece
        if pipe.ended:
            return b""
        raise BlockingIOError

    def _close(self) -> None:
        self._incoming.told = None
        self._edge.close()

    def _has_come(self) -> None:
        if self._incoming.pieces or self.has_ended:
            self._poller.add(self)
