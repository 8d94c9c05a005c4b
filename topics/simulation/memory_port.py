"""A port in memory: connections are served as those of sockets are, and told of what comes (decision 130)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from topics.server.api.edge import Edge
from topics.server.api.site import Site
from topics.server.wire.connection import WireConnection
from topics.server.wire.edges import ToldEdge
from topics.server.wire.poller import tell_together
from topics.server.wire.tasks import Attended, TaskPool
from topics.testing.streams import MemoryEdge


class MemoryPort:
    """Its tasks are in the nursery, which is cancelled behind the last connection, or by a bug. `about`: called in each
    task, and where bytes are told, with whom it is about to serve.
    """

    def __init__(
        self,
        site: Site,
        nursery: trio.Nursery,
        about: Callable[[MemoryEdge], object] = lambda _: None,
    ) -> None:
        self._site = site
        self._poller = MemoryPoller(site)
        self._pool = TaskPool(nursery, _raise)
        self._about = about
        nursery.start_soon(self._poller.run)

    async def serve(
        self, edge: MemoryEdge, *, is_told: bool, opened: Callable[[WireConnection], None], **options: Any
    ) -> None:
        """One connection, until it ends. `is_told`: else it is read by a task that waits, as TLS is."""
        over = trio.Event()
        self._about(edge)
        served: Edge = edge
        if is_told:
            served = ToldMemoryEdge(edge, self._poller, partial(self._about, edge))
        start = partial(self._start, edge)
        connection = WireConnection(served, self._site, start=start, ended=over.set, **options)
        opened(connection)
        try:
            await connection.serve()
            await over.wait()
        finally:
            served.close()

    def _start(self, edge: MemoryEdge, attended: Attended) -> None:
        self._pool.start(_About(attended, partial(self._about, edge)))


def _raise(bug: Exception) -> None:
    raise bug


class _About:
    """Who is attended, of a connection that is named first."""

    def __init__(self, attended: Attended, name: Callable[[], object]) -> None:
        self._attended = attended
        self._name = name

    async def attend(self, scope: trio.CancelScope) -> None:
        self._name()
        await self._attended.attend(scope)


class MemoryPoller:
    """Tells edges in memory of what has come, as `Poller` does sockets: one task, all that there is in one pass."""

    def __init__(self, site: Site) -> None:
        self._site = site
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
            tell_together(self._site, self._tell_each)
            await trio.lowlevel.checkpoint()

    def _tell_each(self) -> None:
        due, self._due = self._due, {}
        for edge in due:
            edge.name()
            edge.came(ended=edge.has_ended)


class ToldMemoryEdge(ToldEdge):
    """An end in memory that is told of what comes. `name`: called before that."""

    __slots__ = ("_edge", "_incoming", "_poller", "name")

    def __init__(self, edge: MemoryEdge, poller: MemoryPoller, name: Callable[[], object]) -> None:
        super().__init__()
        self.name = name
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
