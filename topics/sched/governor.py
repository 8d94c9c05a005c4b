"""How overloaded the process is, from 0 to 1, and what is left off then (semantics 10, decision 99).

Three signals: how many topics wait, how long they have waited beyond what they were meant to, and how busy the loop and
its threads are. A busy loop alone is no pressure: it begins where news waits. What is left off is work, never data.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

SAMPLE_US: Final = 100_000
READY_FULL: Final = 64  # topics that wait
LATENCY_HEALTHY_US: Final = 5000
LATENCY_FULL_US: Final = 5 * LATENCY_HEALTHY_US  # so that the healthy one is a fifth
SMOOTHING: Final = 0.3  # of a sample of latency
READY_SHARE, LATENCY_SHARE, BUSY_SHARE = 0.4, 0.4, 0.2
RESTING_US: Final = 50  # a latency that is none

COALESCE_ABOVE: Final = 0.2
COALESCE_US: Final = 20_000  # at pressure 1
WIDEN_ABOVE: Final = 0.4
WIDEN_FROM_US, WIDEN_TO_US = 500, 10_000
HOLD_ABOVE: Final = 0.8
HOLD_AFTER_US: Final = 1_000_000
LET_GO_BELOW: Final = 0.6
REFUSE_FROM: Final = 0.95
RETRY_AFTER_MS: Final = 1000  # of a write that was refused


class PressureStep(IntEnum):
    """The ladder: each step is taken with those before it."""

    NOTHING = 0
    COALESCE = 1  # news of a topic waits for more of it
    WIDEN = 2  # synced writes wait for each other
    HOLD = 3  # topics below 0 are not told
    REFUSE = 4  # writes are refused where too many wait


class Governor:
    """Is asked by whoever could leave something off. `latency_us`: smoothed; `busy`: the share of time, 0 to 1.

    `is_holding`: topics below 0 are not told. `refuses`: writes, where too many wait; each of them asks.
    """

    __slots__ = (
        "_above_since_us", "_count", "_sum_us", "busy", "is_holding", "latency_us", "pressure", "ready", "refuses",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pressure = self.latency_us = self.busy = 0.0
        self.ready = 0
        self.is_holding = self.refuses = False
        self._sum_us = self._count = 0
        self._above_since_us: int | None = None

    def waited(self, latency_us: int) -> None:
        """So long has a topic waited for its turn, beyond the window."""
        assert latency_us >= 0
        self._sum_us += latency_us
        self._count += 1

    def sample(self, now_us: int, *, ready: int, late_us: int, busy: float) -> None:
        """`late_us`: how long the turn of whoever has waited longest is overdue by now; 0 if nobody's is."""
        assert ready >= 0
        assert 0 <= busy <= 1
        seen_us = self._sum_us / self._count if self._count else late_us
        self._sum_us = self._count = 0
        self.latency_us += SMOOTHING * (seen_us - self.latency_us)
        self.ready, self.busy = ready, busy
        if not ready and self.latency_us < RESTING_US:
            self.latency_us = self.pressure = 0.0
        else:
            self.pressure = (
                READY_SHARE * min(ready / READY_FULL, 1.0)
                + LATENCY_SHARE * min(self.latency_us / LATENCY_FULL_US, 1.0)
                + BUSY_SHARE * busy
            )
        assert 0 <= self.pressure <= 1 + 1e-9
        self.refuses = self.pressure >= REFUSE_FROM
        self._judge(now_us)

    @property
    def is_at_rest(self) -> bool:
        """There is nothing to look at until a topic waits again."""
        return self.pressure == 0 and not self.is_holding

    @property
    def step(self) -> PressureStep:
        """The highest that is taken."""
        if self.refuses:
            return PressureStep.REFUSE
        if self.is_holding:
            return PressureStep.HOLD
        if self.pressure > WIDEN_ABOVE:
            return PressureStep.WIDEN
        return PressureStep.COALESCE if self.pressure > COALESCE_ABOVE else PressureStep.NOTHING

    @property
    def coalesce_us(self) -> int:
        """How long news of a topic waits for more."""
        return round(COALESCE_US * _above(self.pressure, COALESCE_ABOVE))

    @property
    def commit_us(self) -> int:
        """How long a write that is synced waits for others."""
        if self.pressure <= WIDEN_ABOVE:
            return 0
        return round(WIDEN_FROM_US + (WIDEN_TO_US - WIDEN_FROM_US) * _above(self.pressure, WIDEN_ABOVE))

    def _judge(self, now_us: int) -> None:
        """Holding begins when it was too much for a while, and ends well below that, so that it does not flutter."""
        if self.pressure <= HOLD_ABOVE:
            self._above_since_us = None
        elif self._above_since_us is None:
            self._above_since_us = now_us
        assert self._above_since_us is None or self._above_since_us <= now_us
        if self.is_holding:
            self.is_holding = self.pressure >= LET_GO_BELOW
        elif self._above_since_us is not None:
            self.is_holding = now_us - self._above_since_us >= HOLD_AFTER_US


def _above(pressure: float, floor: float) -> float:
    """Where it is between the floor, 0, and 1."""
    assert 0 < floor < 1
    return min(max(pressure - floor, 0.0) / (1 - floor), 1.0)
