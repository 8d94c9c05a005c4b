"""`AsyncClient`: `Client` for tasks, on Trio and on asyncio: the same calls, repeated by the same rules."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError as FutureCancelledError
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import from_thread, to_thread

from topics.calls import topics
from topics.calls.awaiting import AsyncTopicStore, of_store
from topics.calls.call import Steps, drive_async, over_http
from topics.calls.methods import with_call_names
from topics.calls.patience import Pace, Patience
from topics.calls.queues.values import Claimant
from topics.calls.retry import HttpAnswer, Line, Send, Sleep
from topics.calls.watching.async_watch import AsyncFeed
from topics.calls.watching.rules import Asked
from topics.calls.workers.desk import Supply
from topics.client.address import parse_address
from topics.client.async_session_feed import AsyncSessionFeed
from topics.client.async_transport import CONNECTIONS_MAX, AsyncTransport, Take
from topics.client.client import backup_request
from topics.client.key import read_api_key
from topics.client.pushes import Pushes
from topics.client.websocket import Way
from topics.codec.manifest import Written
from topics.kernel.checks import whole_number
from topics.kernel.errors import invalid
from topics.kernel.limits import Limits

R = TypeVar("R")


@with_call_names
class AsyncClient(AsyncTopicStore):
    """A server at a URL, for the tasks of one run of Trio or asyncio. Use it as an async context manager, or call
    `aclose`.

    `cafile`: PEM certificates to trust instead of the usual ones. `limits`: what the server is taken to allow in a page
    or a batch; the server itself decides. `connections_max`: a call has one while it lasts, and each reader that waits.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_file: str | os.PathLike[str] | None = None,
        cafile: str | os.PathLike[str] | None = None,
        patience: Patience | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        if whole_number("connections_max", connections_max) == 0:
            raise invalid("connections_max", "must be at least 1")
        address = parse_address(url)
        self.where = address.url
        self.limits = limits or Limits()
        self.is_remote = True
        self._line = Line(address.url, patience or Patience(), pace or Pace(sleep=anyio.sleep))
        self._transport = AsyncTransport(
            address,
            api_key=read_api_key(api_key_file),
            cafile=None if cafile is None else os.fspath(cafile),
            connections_max=connections_max,
        )

    health = of_store(topics.HealthCall)
    ready = of_store(topics.ReadyCall)
    pressure = of_store(topics.PressureCall)
    keys = of_store(topics.KeysCall)

    def supply(self, queue: Claimant, *, until_empty: bool) -> Supply[Any]:
        if until_empty:
            return super().supply(queue, until_empty=True)
        return Pushes(Way(self.where, self._transport.headers, self._transport.trust), queue)

    def feed(self, asked: Asked) -> AsyncFeed:
        return AsyncSessionFeed(asked, self._line, self._transport)

    async def do(self, steps: Steps[R]) -> R:
        return await drive_async(over_http(iter(steps), self._line), self._answer)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        from topics.host.backup.unpacking import (
            receive_backup,
        )  # it checks a store, and who asks a server needs none

        async def take(pieces: AsyncIterator[bytes], size: int | None) -> Written:
            done = 0

            async def next_piece() -> bytes | None:
                nonlocal done
                piece = await anext(pieces, None)
                if piece is not None and tell is not None:
                    done += len(piece)
                    tell(done, size or done)
                return piece

            found = await to_thread.run_sync(receive_backup, _pulled(next_piece), dest, lambda _: None)
            if tell is not None and size is not None and done < size:
                tell(size, size)  # of the zeros that end an archive, not all need be read
            return found

        asking = self._line.retry(backup_request(with_cold=with_cold))
        written: Written = await drive_async(asking, partial(self._answer, take=take))
        return written

    async def _answer(self, asked: Send | Sleep, take: Take | None = None) -> HttpAnswer | None:
        """What a conversation asks for."""
        if isinstance(asked, Send):
            return await self._transport.send(asked.request, take)
        sleeps = self._line.pace.sleep(asked.seconds)
        if sleeps is not None:
            await sleeps
        return None


def _pulled(next_piece: Callable[[], Coroutine[Any, Any, bytes | None]]) -> Iterator[bytes]:
    """What the loop gives, in a thread of its own, until there is no more or it is cancelled."""
    while True:
        from_thread.check_cancelled()
        try:
            piece = from_thread.run(next_piece)
        except FutureCancelledError:  # of asyncio, where the task takes only what comes of the check
            from_thread.check_cancelled()
            raise
        if piece is None:
            return
        yield piece
