"""The tasks of a connection that Hypercorn's protocols speak, and how many requests are under way in all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import trio
from hypercorn.config import Config
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from topics.server.auth.keys import Key
from topics.server.runtime.log import log


class Requests:
    """Requests under way in all connections together: from their head until their handler has ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._told = False
        self.running = 0

    def begin(self) -> None:
        self.running += 1

    def end(self) -> None:
        self.running -= 1
        self._told = self._told and self.running > self._most // 2

    def is_full(self) -> bool:
        """Whether no more is to be begun. Told once, until half of them have ended."""
        full = self.running >= self._most
        if full and not self._told:
            self._told = True
            log.warning("http2.full", max_http2_requests=self._most)
        return full


class Tasks:
    """What Hypercorn calls a task group: the requests of one connection, and the protocol's own task. `belongs`: told
    whose each request is.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        requests: Requests,
        on_bug: Callable[[], None],
        belongs: Callable[[Key], None],
    ) -> None:
        self.requests = requests
        self.belongs = belongs
        self.running = 0  # requests of this connection
        self._nursery = nursery
        self._on_bug = on_bug

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def spawn(self, func: Callable[..., Awaitable[None]], *args: Any) -> None:
        self._nursery.start_soon(self._run, func, *args)

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the request. Its events may be sent on after it has ended: they are dropped, and nobody waits."""
        events, receive = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        self._nursery.start_soon(self._run_app, app, scope, receive, send)
        self.running += 1
        self.requests.begin()

        async def put(event: ASGIReceiveEvent) -> None:
            with suppress(trio.BrokenResourceError):
                await events.send(event)

        return put

    async def _run_app(
        self,
        app: AppWrapper,
        scope: Scope,
        receive: trio.MemoryReceiveChannel[ASGIReceiveEvent],
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> None:
        try:
            try:
                await app(scope, receive.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
            except Exception as bug:  # noqa: BLE001 -- a request's bug ends that request only (architecture 4)
                log.exception("app.request_bug", exc_info=bug)
            receive.close()
            # Not if it was cancelled: the server ends, and this would make an answer for nobody.
            await self._run(send, None)
        finally:
            receive.close()
            self.running -= 1
            self.requests.end()

    async def _run(self, func: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await func(*args)
        except Exception as bug:  # noqa: BLE001 -- a protocol's bug ends that connection only
            log.exception("app.connection_bug", exc_info=bug)
            self._on_bug()
