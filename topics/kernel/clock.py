"""The engine's time: `max(clock, highest time used, last frame's ts)` (semantics 4).

A clock that steps back moves no floor back, and `ts` never decreases within a topic. Timers must not stand still with
it, so the time that passes between steps is summed on its own.
"""

from __future__ import annotations

from topics.kernel.limits import TIME_AHEAD_MAX_MS
from topics.kernel.ports import Clock


class EngineTime:
    """A clock that never goes back. `read` is called at most once an engine call."""

    __slots__ = ("_clock", "_last_ms", "_pushed_ms", "high_ms", "timer_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.high_ms = 0  # the highest time used so far
        self._last_ms: int | None = None
        self._pushed_ms = -1  # of `timer_ms`
        # Time passed as of the last `read`, for timers: it goes on while a set-back clock catches up.
        self.timer_ms = 0

    @property
    def behind_ms(self) -> int:
        """By how much the clock was behind at the last `read`: until it has caught up, no time passes."""
        return self.high_ms - (self.high_ms if self._last_ms is None else self._last_ms)

    def read(self) -> int:
        now_ms, last_ms = self._clock.now_ms(), self._last_ms
        if now_ms != last_ms:
            if last_ms is not None and now_ms > last_ms:
                self.timer_ms += now_ms - last_ms
            self._last_ms = now_ms
            if now_ms > self.high_ms:
                self.high_ms = now_ms
        return self.high_ms

    def witness(self, ts: int) -> None:
        """Time seen in a frame: later calls are not earlier than it."""
        assert ts >= 0
        if ts > self.high_ms:
            self.high_ms = ts

    def may_push(self) -> bool:
        """Whether `push` may run time further ahead of the clock: it is less than TIME_AHEAD_MAX_MS ahead; or more, as
        behind a clock that was set back, and some has passed since the last push.
        """
        return self.behind_ms < TIME_AHEAD_MAX_MS or self.timer_ms > self._pushed_ms

    def push(self, ts: int) -> int:
        """Move time on until it is later than `ts`, and return it."""
        if self.high_ms <= ts:
            self.high_ms, self._pushed_ms = ts + 1, self.timer_ms
        return self.high_ms
