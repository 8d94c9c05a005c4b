"""The feed of an `AsyncWatch` in this process: as `RoundsFeed`, for tasks."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from topics.calls.awaiting import AsyncTopicStore
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rounds import Rounds, Wait
from topics.calls.watching.rules import Asked
from topics.embed.aio.runtime import Runtime
from topics.kernel.errors import Rejected
from topics.log.reads.diff import DiffQuery
from topics.log.reads.waiting import waits_on


class AsyncRoundsFeed:
    """`AsyncFeed` of a store."""

    def __init__(self, asked: Asked, store: AsyncTopicStore, runtime: Runtime) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = Rounds(self.cursors, asked).steps()
        self._store = store
        self._runtime = runtime

    async def answer(self, step: Any) -> Any:
        if not isinstance(step, Wait):
            return await self._store.do(step)
        self._runtime.check_open()
        async with trio.open_nursery() as nursery:
            for read in step.reads:
                query = attrs.evolve(read.query(self._store.limits), limit=0)
                nursery.start_soon(self._wait, query, nursery.cancel_scope)
        self._runtime.check_open()
        return None

    async def _wait(self, query: DiffQuery, others: trio.CancelScope) -> None:
        """Until it would give something, or its topic is gone; then nobody waits any longer."""
        try:
            is_quiet = waits_on(self._runtime.engine.plan_diff(query))
        except Rejected:
            is_quiet = False
        if is_quiet:
            await self._runtime.hub.wait(query.topic)
        others.cancel()

    async def aclose(self) -> None:
        """It holds nothing."""
