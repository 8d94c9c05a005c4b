"""Times at which something is looked at, for any number of them: one task, one timer.

Precise to a tick, never early. Whoever is busy until then moves nothing: it is looked at, and says when to look again.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

TICK_S: Final = 0.25


class Timed(Protocol):
    """Who is looked at. `tick`: the wheel's own, None unless a time is set."""

    tick: int | None

    def due(self) -> None:
        """It is time. Raises nothing; may set the next."""
        ...


class Wheel:
    """Of one runtime."""

    def __init__(self) -> None:
        self._ticks: dict[int, dict[Timed, None]] = {}
        self._next: float = math.inf  # the tick that `run` sleeps for
        self._sooner = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._ticks.values()))

    def set(self, timed: Timed, at_s: float) -> None:
        """Look at it then (Trio's time), and not at the time that was set before."""
        self.drop(timed)
        timed.tick = tick = math.ceil(at_s / TICK_S)
        self._ticks.setdefault(tick, {})[timed] = None
        if tick < self._next:
            self._sooner.set()

    def drop(self, timed: Timed) -> None:
        """Look at it no more."""
        if timed.tick is not None:
            others = self._ticks[timed.tick]
            del others[timed]
            if not others:
                del self._ticks[timed.tick]
            timed.tick = None

    async def run(self) -> None:
        while True:
            self._sooner = trio.Event()
            self._next = min(self._ticks, default=math.inf)
            with trio.move_on_at(self._next * TICK_S):
                await self._sooner.wait()
            self._look(trio.current_time())

    def _look(self, now: float) -> None:
        ticks = sorted(tick for tick in self._ticks if tick * TICK_S <= now)
        for timed in [timed for tick in ticks for timed in self._ticks[tick]]:
            if timed.tick in ticks:  # else one that was looked at has dropped it, or set it later
                self.drop(timed)
                timed.due()
