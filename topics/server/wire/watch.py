"""Reading ahead while a handler waits, so that the end of the peer ends the wait (architecture 5)."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import trio

from topics.server.api.message import PeerGone


class ReadsAhead(Protocol):
    """What a watch asks of its connection."""

    async def flush_answers(self) -> None: ...

    async def read_ahead(self) -> None: ...


class Watch:
    """Reads ahead while a handler waits, so that the end of the peer ends the wait."""

    def __init__(self, ahead: ReadsAhead) -> None:
        self._ahead = ahead
        self._gone = False
        self._manager = trio.open_nursery()

    async def __aenter__(self) -> None:
        try:
            await self._ahead.flush_answers()
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
        await self._ahead.read_ahead()
        self._gone = True
        self._nursery.cancel_scope.cancel()
