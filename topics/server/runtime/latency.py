"""How long requests took, by route, as the handlers' site counts it and `metrics` shows it."""

from __future__ import annotations

from typing import Final

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RouteLatency:
    """How long requests of one route took: how many up to each of BUCKETS_S and not the one before, and the sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
