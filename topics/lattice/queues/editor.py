"""Whoever edits replicated queues: a clock, the leases it holds, and what it was told by merges.

The handles of one process (a map of topics, its topics, their queues, all forks of these) share one editor. It hands
out the time, proves leadership on each offer, keeps what came from too far in the future, and collects divergences
until somebody takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeAlias

from topics.kernel.ports import Clock
from topics.lattice.queues.divergence import Divergence
from topics.lattice.queues.fence import OPEN, Lease
from topics.lattice.values.stamps import Deferral

DIVERGENCES_MAX: Final = 1024
LEASES_MAX: Final = 65_536

Place: TypeAlias = tuple[
    Hashable, ...
]  # (region, owner) if there is one, then the path of a handle below its root


class Editor:
    """One writer's point of view. Without a clock time stands still, and stamps count up by themselves."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Final = clock
        self._leases: dict[Place, Lease] = {}
        self._divergences: deque[Divergence] = deque(maxlen=DIVERGENCES_MAX)
        self.divergences_seen = 0
        self._deferrals: dict[Place, Deferral[Any]] = {}

    @property
    def has_clock(self) -> bool:
        return self._clock is not None

    def now_ms(self) -> int:
        now_ms = 0 if self._clock is None else self._clock.now_ms()
        assert now_ms >= 0
        return now_ms

    def deferral(self, place: Place) -> Deferral[Any] | None:
        """What waits to be merged at a place, None if nothing ever did."""
        return self._deferrals.get(place)

    def defer_at(self, place: Place, deferral: Deferral[Any]) -> None:
        assert place not in self._deferrals
        assert len(self._deferrals) < LEASES_MAX
        self._deferrals[place] = deferral

    def lease(self, place: Place) -> Lease:
        """The lease held of the partition at a place, `OPEN` if none."""
        return self._leases.get(place, OPEN)

    def hold(self, place: Place, lease: Lease) -> None:
        assert lease.epoch > 0
        assert len(self._leases) < LEASES_MAX or place in self._leases
        self._leases[place] = lease

    def tell(self, found: Iterable[Divergence]) -> None:
        """Keep what a merge found, the newest if there is too much; `divergences_seen` counts them all."""
        for divergence in found:
            self._divergences.append(divergence)
            self.divergences_seen += 1

    def take_divergences(self) -> list[Divergence]:
        """What was found since the last call."""
        taken = list(self._divergences)
        assert len(taken) <= self.divergences_seen
        self._divergences.clear()
        return taken
