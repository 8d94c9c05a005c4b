"""Reading ahead while a handler waits, so that the end of the peer ends the wait (architecture 5, decision 32)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

import trio

from topics.server.api.message import PeerGone
from topics.server.wire.edges import ToldEdge
from topics.server.wire.receiving import Incoming


class PeerWatch:
    """Reads ahead while a handler waits, so that the end of the peer ends the wait."""

    def __init__(self, incoming: Incoming, flush_answers: Callable[[], Awaitable[None]]) -> None:
        self._incoming = incoming
        self._flush_answers = flush_answers
        self._gone = False
        self._manager = trio.open_nursery()

    async def __aenter__(self) -> None:
        try:
            await self._flush_answers()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise PeerGone from None  # before its earlier answers could be sent
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._look)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._nursery.cancel_scope.cancel()
        if not isinstance(error, trio.Cancelled):
            await self._manager.__aexit__(None, None, None)
            return False  # the handler's own error, as it is and in no group
        swallowed = await self._manager.__aexit__(kind, error, trace)
        if self._gone:
            raise PeerGone
        return bool(swallowed)

    async def _look(self) -> None:
        self._gone = not await self._incoming.read_ahead()
        self._nursery.cancel_scope.cancel()


class ToldPeerWatch:
    """As `PeerWatch`, where it is told what comes: no task waits for it."""

    __slots__ = ("_edge", "_flush_answers", "_gone", "_incoming", "_scope")

    def __init__(
        self, edge: ToldEdge, incoming: Incoming, flush_answers: Callable[[], Awaitable[None]]
    ) -> None:
        self._edge = edge
        self._incoming = incoming
        self._flush_answers = flush_answers
        self._gone = False
        self._scope = trio.CancelScope()

    async def __aenter__(self) -> None:
        try:
            await self._flush_answers()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise PeerGone from None  # as above
        self._scope.__enter__()
        self._edge.tell(self._look)
        if self._incoming.buffer and not self._scope.cancel_called:  # it is held during the wait, too
            self._look()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._edge.tell(None)
        swallowed = self._scope.__exit__(kind, error, trace)
        if swallowed and self._gone:
            raise PeerGone
        return bool(swallowed)

    def _look(self) -> None:
        found = self._incoming.read_ahead_nowait(self._edge)
        if found is not None:
            self._gone = not found
            self._edge.tell(None)
            self._scope.cancel()
