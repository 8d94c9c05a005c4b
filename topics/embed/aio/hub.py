"""Readers who wait for news of a topic: woken together, and what several of them ask for is read once (architecture 6).

Who stands at one cursor and asks for one form gets one page: the first of them to wake plans, reads and encodes it, and
the others take it from the news that woke them all.

A long poll waits in its task, once. A follower is told of all news until it leaves; while it waits it is an entry here,
and nothing else. Of very many some are told at once and the others by and by, so that whoever else asks has his turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, cast

import trio

from topics.log.reads.waiting import FOR_READERS, FOR_STRICT_READERS, News

TOLD_AT_ONCE: Final = 64  # a delivery takes the loop about 20 µs
T = TypeVar("T")


class Follower(Protocol):
    """Who is told of all news of a topic. Neither call may raise, nor change who follows."""

    @property
    def topic(self) -> str: ...

    @property
    def is_strict(self) -> bool:
        """It is given what is durable, so that is news to it."""
        ...

    def told(self, news: Subscribers) -> None:
        """There is news, in common with all who are told of it."""
        ...

    def end(self) -> None:
        """The server drains."""
        ...


class Subscribers:
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

    def at_hand(self, key: Hashable) -> Any:
        """What was found under this key; None if nothing was yet."""
        found = self._found.get(key)
        return None if isinstance(found, trio.Event) else found

    def once_nowait(self, key: Hashable, find: Callable[[], T | None]) -> T | None:
        """As `once`, if nobody has to wait for it."""
        found = self._found.get(key)
        if found is None and (found := find()) is not None:
            self._found[key] = found
        return None if isinstance(found, trio.Event) else cast("T | None", found)

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
    """Who waits for which topic. The engine's news come in, waiting tasks go on. `told`: how often there was any."""

    def __init__(self) -> None:
        self._waiting: dict[str, Subscribers] = {}
        self._following: dict[str, dict[Follower, None]] = {}
        self._strict: dict[str, dict[Follower, None]] = {}
        self._untold: dict[Follower, Subscribers] = {}
        self._more = trio.lowlevel.ParkingLot()  # who tells them
        self.readers = 0
        self.told = 0
        self.is_draining = False

    async def wait(self, topic: str) -> Subscribers:
        """Until a record of the topic is published, or it is deleted: what is common to all who waited for it."""
        subscribers = self._waiting.get(topic)
        if subscribers is None:
            subscribers = self._waiting[topic] = Subscribers()
        subscribers.readers += 1
        self.readers += 1
        try:
            await subscribers.wait()
        finally:
            subscribers.readers -= 1
            self.readers -= 1
            if subscribers.readers == 0 and self._waiting.get(topic) is subscribers:
                del self._waiting[topic]
        return subscribers

    def follow(self, follower: Follower) -> None:
        """From here on it is told of all news, until it leaves."""
        table = self._strict if follower.is_strict else self._following
        table.setdefault(follower.topic, {})[follower] = None

    def leave(self, follower: Follower) -> None:
        table = self._strict if follower.is_strict else self._following
        others = table.get(follower.topic, {})
        others.pop(follower, None)
        self._untold.pop(follower, None)
        if not others:
            table.pop(follower.topic, None)

    def tell(self, news: Mapping[str, News]) -> None:
        self.told += 1
        for topic, kinds in news.items():
            if (topic in self._waiting or topic in self._following) and kinds & FOR_READERS:
                subscribers = self._waiting.pop(topic, None) or Subscribers()
                subscribers.come()
                self._tell_some(self._following.get(topic, {}), subscribers)
            if topic in self._strict and kinds & FOR_STRICT_READERS:
                self._tell_some(self._strict[topic], Subscribers())
            if self._untold and kinds & News.FLOORS:  # what was found for others may be gone
                subscribers = Subscribers()
                self._untold |= {one: subscribers for one in self._untold if one.topic == topic}

    async def run(self) -> None:
        """Tell those whom it was too many to tell at once."""
        while True:
            while self._untold:
                for follower in list(islice(self._untold, TOLD_AT_ONCE)):
                    follower.told(self._untold.pop(follower))
                await trio.lowlevel.checkpoint()
            await self._more.park()

    def _tell_some(self, followers: Mapping[Follower, None], subscribers: Subscribers) -> None:
        for follower in islice(followers, TOLD_AT_ONCE):
            self._untold.pop(follower, None)
            follower.told(subscribers)
        if len(followers) > TOLD_AT_ONCE:
            self._untold |= dict.fromkeys(islice(followers, TOLD_AT_ONCE, None), subscribers)
            self._more.unpark_all()

    def tell_all(self) -> None:
        """The server drains: nobody waits any longer, and who comes to follow does so in vain."""
        self.is_draining = True
        for subscribers in self._waiting.values():
            subscribers.come()
        self._waiting.clear()
        for table in (self._following, self._strict):
            for followers in table.values():
                for follower in followers:
                    follower.end()

    @property
    def topics(self) -> int:
        """For which somebody waits, or which somebody follows."""
        return len(self._waiting.keys() | self._following.keys() | self._strict.keys())
