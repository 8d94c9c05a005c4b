"""Readers who wait for news of a topic: woken together, and what several of them ask for is read once (architecture 6).

Who stands at one cursor and asks for one form gets one page: the first of them to wake plans, reads and encodes it, and
the others take it from the news that woke them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, TypeVar, cast

import trio

T = TypeVar("T")


class News:
    """What the readers of one topic wait for, and what they then have in common, until the last of them has gone on."""

    __slots__ = ("_come", "_found", "readers")

    def __init__(self) -> None:
        self._come = trio.Event()
        self._found: dict[Hashable, Any] = {}  # an Event while somebody is at it
        self.readers = 0

    async def wait(self) -> None:
        await self._come.wait()

    def come(self) -> None:
        self._come.set()

    async def once(self, key: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        """What `find` gives, found by the first who asks for it under this key. If he fails, or leaves, the next one
        is the first.
        """
        while isinstance(found := self._found.get(key), trio.Event):
            await found.wait()
        if found is not None:
            return cast("T", found)
        over = self._found[key] = trio.Event()
        try:
            self._found[key] = found = await find()
            return found
        finally:
            if self._found[key] is over:
                del self._found[key]
            over.set()


class Hub:
    """Who waits for which topic. News of topics come in, waiting tasks go on. `told`: how often there was any."""

    def __init__(self) -> None:
        self._waiting: dict[str, News] = {}
        self.readers = 0
        self.told = 0

    async def wait(self, topic: str) -> News:
        """Until something of the topic is published, deleted or retired: that, common to all who waited for it."""
        news = self._waiting.get(topic)
        if news is None:
            news = self._waiting[topic] = News()
        news.readers += 1
        self.readers += 1
        try:
            await news.wait()
        finally:
            news.readers -= 1
            self.readers -= 1
            if news.readers == 0 and self._waiting.get(topic) is news:
                del self._waiting[topic]
        return news

    def tell(self, topics: Iterable[str]) -> None:
        """There is news of these; of a mapping, of its keys."""
        self.told += 1
        for topic in topics:
            news = self._waiting.pop(topic, None)
            if news is not None:
                news.come()

    def tell_all(self) -> None:
        """The server drains: nobody waits any longer."""
        self.tell(list(self._waiting))

    @property
    def topics(self) -> int:
        return len(self._waiting)
