"""`AsyncWatch`: topics watched by a task, on Trio and on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self

import anyio

from topics.calls.consumers import CommitCall
from topics.calls.watching.course import Course, Watching
from topics.calls.watching.cursors import Cursors, unless_deleted
from topics.calls.watching.rules import Start
from topics.calls.watching.values import WatchValue
from topics.kernel.errors import TopicsError


class AsyncFeed(Protocol):
    """As `Feed`, awaited. An answer that is cancelled is asked for again."""

    @property
    def cursors(self) -> Cursors: ...

    @property
    def steps(self) -> Watching: ...

    async def answer(self, step: Any) -> Any: ...

    async def aclose(self) -> None: ...


class AsyncWatch(AsyncIterator[WatchValue]):
    """As `Watch`. An item that is waited for may be cancelled, as by a time limit; the next one goes on where the last
    one was. At a server that costs a connection.
    """

    def __init__(self, feed: AsyncFeed, do: Callable[[CommitCall], Awaitable[object]]) -> None:
        self._feed = feed
        self._do = do
        self._course = Course(feed.steps)
        self._waiting: anyio.CancelScope | None = None
        self._is_closed = False

    @property
    def positions(self) -> dict[str, Start]:
        """Where it is: behind what was given last. `store.watch(positions)` goes on there, in any process."""
        return self._feed.cursors.positions()

    async def commit(self) -> None:
        """As `Watch.commit`."""
        for commit in self._feed.cursors.commits():
            with unless_deleted():
                await self._do(commit)

    async def aclose(self) -> None:
        """End it, from any task: whoever waits for the next item is told that there is none."""
        self._is_closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        await self._feed.aclose()

    async def __anext__(self) -> WatchValue:
        value = await self._advance()
        if value is None:
            raise StopAsyncIteration
        return value

    async def __aenter__(self) -> Self:
        try:
            await self._advance(only_begin=True)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _advance(self, *, only_begin: bool = False) -> WatchValue | None:
        """The next value; None if there is none, or it is begun."""
        if self._waiting is not None:
            raise RuntimeError("another task waits for the next item of this watch: give each task its own")
        course = self._course
        if not (only_begin or self._is_closed) and (value := course.value()) is not None:
            return value  # without a scope, which takes longer than the rest
        try:
            with anyio.CancelScope() as self._waiting:
                while not self._is_closed:
                    if only_begin and course.is_begun:
                        return None
                    if (value := course.value()) is not None or course.is_over:
                        return value
                    try:
                        given = await self._feed.answer(course.step)
                    except TopicsError as error:
                        course.refused(error)
                    else:
                        course.answered(given)
        finally:
            self._waiting = None
            if course.is_over:
                await self._feed.aclose()
        return None
