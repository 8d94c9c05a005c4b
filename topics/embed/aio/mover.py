"""Orders of the engine carried out: a task reads the records, in a thread, and appends them to where they go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from topics.embed.aio.compactor import Submit
from topics.embed.aio.thread import Threads
from topics.engine.commands import WaitForCopies
from topics.engine.engine import Engine
from topics.host.checkpoint.steps import Blocking, Propose, Step
from topics.kernel.errors import Fatal, Rejected
from topics.kernel.limits import CATCH_UP_MAX_MS
from topics.store.moving import Read
from topics.store.orders import next_order
from topics.store.steps import drive_async


class MoverTask:
    """`ring` whenever there may be an order. `told`: called when the engine was told of the end of one."""

    def __init__(
        self, engine: Engine, read: Read, threads: Threads, submit: Submit, told: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._read = read
        self._threads = threads
        self._submit = submit
        self._told = told
        self._bell = trio.Event()

    def ring(self) -> None:
        self._bell.set()

    async def run(self) -> None:
        """One order after another, until cancelled; what is left is ordered again at the next start."""
        while True:
            while (steps := next_order(self._engine, self._read)) is not None:
                await drive_async(steps, self._do)
                self._told()
            await self._bell.wait()
            self._bell = trio.Event()

    async def catch_up(self, *topics: str) -> None:
        """Before a read, and before a source is deleted: dests have what their sources hold, if that comes in time
        (semantics 8).
        """
        behind = [topic for topic in topics if self._engine.routers.is_behind(topic)]
        if behind:
            with trio.move_on_after(CATCH_UP_MAX_MS / 1000):
                for topic in behind:
                    with suppress(Rejected, Fatal):
                        await self._submit(WaitForCopies(topic=topic))

    async def _do(self, step: Step) -> None:
        if isinstance(step, Blocking):
            await self._threads.run(step.call)
        else:
            assert isinstance(step, Propose)
            await self._submit(step.command, sync=step.sync)
