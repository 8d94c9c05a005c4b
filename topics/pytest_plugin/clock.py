"""A clock that goes on by itself, and is ahead of the system's by what a test says.

It does not stand still between moves: whoever waits for a second, in a test of something else, would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from topics.host.system.clock import SystemClock


class Clock:
    """`kernel.ports.Clock`, for `topics.open(…, clock=…)`. `ahead_ms`: of the system's."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._system: Final = SystemClock()
        self._told: list[Callable[[int], object]] = []

    def now_ms(self) -> int:
        return self._system.now_ms() + self.ahead_ms

    def advance(self, ms: int) -> None:
        """Move forward. When this returns, all that goes by this clock has done what is due."""
        if ms < 0:
            raise ValueError(f"a clock is moved forward only, by whole milliseconds, not by {ms}")
        self.ahead_ms += ms
        for told in self._told:
            told(self.ahead_ms)

    def on_move(self, told: Callable[[int], object]) -> None:
        """Call this after each move, with `ahead_ms`: `Store.clock_moved` of whoever was opened with this clock."""
        self._told.append(told)
