"""The feed of an `AsyncWatch` in this process: as `RoundsFeed`, for tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from topics.calls.call import Call
from topics.calls.page import Page
from topics.calls.records import ReadCall
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rounds import Rounds, WaitForNews
from topics.calls.watching.rules import Asked
from topics.embed.aio.hub import Subscribers
from topics.embed.aio.runtime import Runtime
from topics.log.reads.diff import DiffQuery
from topics.log.reads.waiting import waits_on


class _Ear:
    """A `Follower` that lets somebody go on."""

    def __init__(self, query: DiffQuery, heard: trio.Event) -> None:
        self.topic, self.is_strict = query.topic, query.durable_only
        self._heard = heard

    def told(self, news: Subscribers) -> None:  # noqa: ARG002 -- a follower's signature
        self._heard.set()

    def end(self) -> None:
        self._heard.set()


class AsyncRoundsFeed:
    """`AsyncFeed` of a store. `read`: a page of it; `do`: another call."""

    def __init__(
        self,
        asked: Asked,
        runtime: Runtime,
        *,
        read: Callable[[DiffQuery], Awaitable[Page]],
        do: Callable[[Call[Any]], Awaitable[Any]],
    ) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = Rounds(self.cursors, asked).steps()
        self._is_strong = asked.is_strong
        self._runtime = runtime
        self._read, self._do = read, do

    async def answer(self, step: Any) -> Any:
        if isinstance(step, ReadCall):
            return await self._read(self._query(step))
        if not isinstance(step, WaitForNews):
            return await self._do(step)
        self._runtime.check_open()
        await self._wait([self._query(read).limited(0) for read in step.reads])
        self._runtime.check_open()
        return None

    async def _wait(self, asked: list[DiffQuery]) -> None:
        """Until one of them would give something. Raises `Rejected(topic_not_found)`."""
        heard, hub = trio.Event(), self._runtime.hub
        ears = [_Ear(query, heard) for query in asked]
        for ear in ears:
            hub.follow(ear)
        try:
            if all(waits_on(self._runtime.engine.plan_diff(query)) for query in asked):
                await heard.wait()
        finally:
            for ear in ears:
                hub.leave(ear)

    def _query(self, read: ReadCall) -> DiffQuery:
        return msgspec.structs.replace(read.query(self._runtime.engine.limits), durable_only=self._is_strong)

    async def aclose(self) -> None:
        """It holds nothing."""
