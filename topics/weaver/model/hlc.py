"""Hybrid logical clocks: a wall time in milliseconds, then a counter (replication 5.4).

Readings order like tuples. A reading that no wall time explains counts on; a counter that is full carries into the
wall, so a stamp can always be followed by a greater one. All functions are pure: who has the time hands it in.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from topics.kernel.limits import U32_MAX, U64_MAX

HLC_LAYOUT: Final = Struct("<QI")
assert HLC_LAYOUT.size == 12

DEFAULT_MAX_DRIFT_MS: Final = 3_600_000


class HLC(NamedTuple):
    """A reading: `wall` in epoch milliseconds (u64), `counter` (u32). Ordered by wall, then counter."""

    wall: int
    counter: int

    def next(self) -> HLC:
        """The smallest reading above this one."""
        if self.counter < U32_MAX:
            return HLC(self.wall, self.counter + 1)
        assert self.wall < U64_MAX, "the last reading there is has none above it"
        return HLC(self.wall + 1, 0)

    def tick(self, now_ms: int) -> HLC:
        """The stamp of something sent now."""
        stamp = HLC(now_ms, 0) if now_ms > self.wall else self.next()
        assert stamp > self  # P32
        return stamp

    def update(self, received: HLC, now_ms: int) -> HLC:
        """The clock after `received` was seen: above both."""
        newest = max(self, received)
        above = HLC(now_ms, 0) if now_ms > newest.wall else newest.next()
        assert above > self
        assert above > received
        return above

    def is_future(self, now_ms: int, drift_ms: int = DEFAULT_MAX_DRIFT_MS) -> bool:
        """More than `drift_ms` ahead of `now_ms`; exactly that much is fine."""
        assert drift_ms >= 0
        return self.wall > now_ms + drift_ms

    def clamp_future(self, parent: HLC, now_ms: int, drift_ms: int = DEFAULT_MAX_DRIFT_MS) -> HLC:
        """This reading, or the one after `parent` if this one is in the future (seed: `clamp_future`)."""
        return parent.next() if self.is_future(now_ms, drift_ms) else self


ZERO: Final = HLC(0, 0)
