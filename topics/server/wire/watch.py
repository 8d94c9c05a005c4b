"""Reading ahead while a handler waits, so that the end of the peer ends the wait (architecture 5, decision 32)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

import trio

from topics.server.api.message import PeerGone
from topics.server.wire.receiving import Incoming


class Watch:
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
