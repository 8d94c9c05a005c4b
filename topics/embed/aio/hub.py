"""Readers who wait for news of a topic: woken together, and what several of them ask for is read once (architecture 6).

Who stands at one cursor and asks for one form gets one page: the first of them to wake plans, reads and encodes it, and
the others take it from the news that woke them all.

A long poll waits in its task, once. A follower is told of all news until it leaves; while it waits it is an entry here,
and nothing else. It is told at once as long as that is little. When it is more, the topic is dirty: a task tells its
followers in slices, topic by topic as the ready set says, so that whoever else asks has his turn (decision 98). What
would have the next turn in any case does not wait for that task.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, cast

import trio

from topics.log.reads.waiting import NO_NEWS, TOLD_TO_READERS, TOLD_TO_STRICT_READERS, News
from topics.sched.governor import COALESCE_ABOVE, Governor
from topics.sched.ready import SLICE, ReadySet

SLICE_S: Final = 0.001  # of the loop, at a time; a delivery takes about 20 µs
LOOK_EVERY: Final = 8  # so many deliveries it is looked how late it is
BEHIND_SLICES: Final = 8  # one after another, and still somebody waits
T = TypeVar("T")
_NOBODY: Final[dict[Any, None]] = {}


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

    def once_nowait(self, key: Hashable, find: Callable[..., T | None], *args: Any) -> T | None:
        """As `once`, if nobody has to wait for it."""
        found = self._found.get(key)
        if found is None and (found := find(*args)) is not None:
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


class Dirty:
    """A topic with news that its followers are not told yet: `kinds` of it. It is told in a go: to `followers`, of whom
    it is the turn of the one at `at`; None before the first turn. What comes meanwhile is for those, too, who were told
    already: `again`, to those before `told_before`, and for those who have `joined` since. Such a go is to a part of
    them.
    """

    __slots__ = ("again", "at", "followers", "is_part", "joined", "kinds", "news", "told_before")

    def __init__(
        self, kinds: News, news: Subscribers, followers: list[Follower] | None = None, at: int = 0
    ) -> None:
        self.kinds = kinds
        self.news = news
        self.followers = followers
        self.at = at
        self.again, self.told_before = NO_NEWS, 0
        self.joined: list[Follower] = []
        self.is_part = False

    def add(self, kinds: News, news: Subscribers) -> None:
        """More has come: what was found for others is old by now."""
        self.news = news
        if self.at:
            self.again |= kinds
            self.told_before = self.at
        else:
            self.kinds |= kinds
            self.followers = None  # if it was for a part, it is for all of them now

    def next_go(self) -> Dirty | None:
        """For those who were told too early; None if nobody was."""
        assert self.followers is not None
        if self.again is NO_NEWS:
            return None
        if self.is_part or (self.again in TOLD_TO_READERS and self.kinds not in TOLD_TO_READERS):
            return Dirty(self.again, self.news)  # to more than those whom this one was for
        go = Dirty(self.kinds, self.news, self.followers[: self.told_before] + self.joined)
        go.is_part = True
        return go


class Hub:
    """Who waits for which topic. The engine's news come in, waiting tasks go on. `told`: how often there was any.

    `priority_of`: of a topic, without age. `observe`: is told how long each dirty topic waited for its turn, in s.
    """

    def __init__(
        self,
        priority_of: Callable[[str], int] = lambda _: 0,
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._priority_of = priority_of
        self._observe = observe
        self._waiting: dict[str, Subscribers] = {}
        self._following: dict[str, dict[Follower, None]] = {}
        self._strict: dict[str, dict[Follower, None]] = {}
        self._dirty: dict[str, Dirty] = {}
        self._spent = 0  # followers told since `run` had its turn
        self._more = trio.lowlevel.ParkingLot()  # where `run` waits
        self.ready = ReadySet()
        self.governor = Governor()
        self.behind = trio.Event()  # set when it was more than so many slices
        self._slices = 0  # full ones, since nobody waited
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
        dirty = self._dirty.get(follower.topic)
        if dirty is not None and dirty.followers is not None:
            dirty.joined.append(follower)

    def leave(self, follower: Follower) -> None:
        table = self._strict if follower.is_strict else self._following
        others = table.get(follower.topic, {})
        others.pop(follower, None)
        if not others:
            table.pop(follower.topic, None)

    def tell(self, news: Mapping[str, News]) -> None:
        self.told += 1
        for topic, kinds in news.items():
            to_readers = kinds in TOLD_TO_READERS
            subscribers = self._waiting.pop(topic, None) if to_readers else None
            if subscribers is not None:
                subscribers.come()
            if (to_readers and topic in self._following) or (
                topic in self._strict and kinds in TOLD_TO_STRICT_READERS
            ):
                self._tell_followers(topic, kinds, subscribers or Subscribers())
            elif topic in self._dirty and kinds & News.FLOORS:
                self._dirty[topic].news = Subscribers()  # what was found for others may be gone

    async def run(self) -> None:
        """Tell those whom it was too many to tell at once: a slice, and then it is the others' turn."""
        while True:
            self._tell_slice()
            if self._spent >= SLICE:
                self._slices += 1
                if self._slices >= BEHIND_SLICES:
                    self.behind.set()
                self._spent = 0
                await trio.lowlevel.checkpoint()
            else:
                self._spent = self._slices = 0
                due_us = self.ready.first_due_us(self.governor.coalesce_us)
                with trio.move_on_at(math.inf if due_us is None else (due_us + 1) / 1_000_000):
                    await self._more.park()
                self._spent = 0

    def judge(self, now_us: int, busy: float) -> None:
        """Judge how overloaded the process is: every `SAMPLE_US` from `behind` on, until the governor is at rest."""
        ready, governor = self.ready, self.governor
        due_us = ready.first_due_us(governor.coalesce_us)
        late_us = 0 if due_us is None else max(now_us - due_us, 0)
        governor.sample(now_us, ready=len(ready), late_us=late_us, busy=busy)
        if governor.is_holding and not ready.is_holding:
            ready.hold()
        elif ready.is_holding and not governor.is_holding:
            ready.let_go(now_us)
        self._more.unpark_all()  # the window has another width

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

    # Inside.

    def _tell_followers(self, topic: str, kinds: News, news: Subscribers) -> None:
        """At once, if it is little and nobody's turn is before; else, and if some are left, in turn."""
        dirty = self._dirty.get(topic)
        if dirty is not None:
            dirty.add(kinds, news)
            return
        followers, at, before = None, 0, self._spent
        is_quiet = not self.ready and self.governor.pressure <= COALESCE_ABOVE
        priority = None if is_quiet else self._priority_of(topic)
        if before < SLICE and (priority is None or self.ready.has_next_turn(priority, now_us())):
            followers = self._followers(topic, kinds)
            ends = trio.current_time() + SLICE_S if len(followers) >= LOOK_EVERY else math.inf
            at = self._tell_from(0, followers, topic, news, ends)
            if priority is not None:
                self.ready.served_at_once(self._spent - before)
                self.governor.waited(0)
            if self._spent >= SLICE:
                self._more.unpark_all()
            if at == len(followers):
                return
        self._mark(topic, Dirty(kinds, news, followers, at), priority)

    def _mark(self, topic: str, dirty: Dirty, priority: int | None = None) -> None:
        """From here on it waits for its turn. `priority`: if it was asked for."""
        self._dirty[topic] = dirty
        self.ready.mark(topic, self._priority_of(topic) if priority is None else priority, now_us())
        self._more.unpark_all()  # it may be due before those that wait

    def _tell_slice(self) -> None:
        ends = trio.current_time() + SLICE_S
        while self._spent < SLICE:
            at_us, window_us = now_us(), self.governor.coalesce_us
            topic = self.ready.next(at_us, window_us)
            if topic is None:
                return
            dirty, before = self._dirty[topic], self._spent
            if not dirty.at:
                late_us = at_us - self.ready.due_us(topic, window_us)
                self.governor.waited(late_us)
                self._observe(late_us / 1_000_000)
            if dirty.followers is None:
                dirty.followers = self._followers(topic, dirty.kinds)
            dirty.at = self._tell_from(dirty.at, dirty.followers, topic, dirty.news, ends)
            self.ready.served(topic, self._spent - before)
            if dirty.at == len(dirty.followers):
                self.ready.done(topic)
                del self._dirty[topic]
                if (go := dirty.next_go()) is not None:
                    self._mark(topic, go)

    def _followers(self, topic: str, kinds: News) -> list[Follower]:
        """Whom news of these kinds is for."""
        followers = list(self._following.get(topic, _NOBODY)) if kinds in TOLD_TO_READERS else []
        return followers + list(self._strict[topic]) if topic in self._strict else followers

    def _tell_from(
        self, at: int, followers: Sequence[Follower], topic: str, news: Subscribers, ends: float
    ) -> int:
        """As many as there is time for, one at least. Whose turn is next."""
        following, strict = self._following.get(topic, _NOBODY), self._strict.get(topic, _NOBODY)
        spent, self._spent = self._spent, SLICE  # of what comes meanwhile nobody is told at once
        for follower in islice(followers, at, None):
            at += 1
            if follower in following or follower in strict:  # else he has left
                follower.told(news)
                spent += 1
                if spent % LOOK_EVERY == 0 and trio.current_time() >= ends:
                    spent = SLICE
                if spent >= SLICE:
                    break
        self._spent = spent
        return at


def now_us() -> int:
    """Of the loop's clock, as the ready set counts."""
    return int(trio.current_time() * 1_000_000)
