"""What time alone brings, when it does. While nothing is due the task sleeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from topics.engine.engine import Engine
from topics.kernel.limits import DEADLINE_LOOK_MS

_PAUSE_S: Final = 0.005  # between two looks


class Alarms:
    """The deadlines of one engine. `told`: called when it was told that time has passed."""

    def __init__(self, engine: Engine, told: Callable[[], None]) -> None:
        self._engine = engine
        self._told = told
        self._sooner = trio.Event()

    def look(self) -> None:
        """The next deadline is perhaps earlier than the task knows."""
        self._sooner.set()

    async def run(self) -> None:
        engine = self._engine
        while True:
            self._sooner = trio.Event()
            due_ms = engine.next_deadline_ms()
            wait_ms = math.inf if due_ms is None else min(due_ms - engine.now_ms(), DEADLINE_LOOK_MS)
            if wait_ms > 0:
                with trio.move_on_after(wait_ms / 1000):
                    await self._sooner.wait()
                continue
            engine.tick()
            self._told()
            await trio.sleep(_PAUSE_S)
