"""Bands of priority: within one, first come, first served; between them, by weight (semantics 10).

A band is its number, 0 the lowest. What is below 0 is there on purpose: nobody gets there but by configuration.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

FLOORS: Final = (0, 250, 500, 750)  # of each band but the lowest, which has none
WEIGHTS: Final = (1, 1, 2, 4, 8)
BANDS: Final = len(WEIGHTS)
TOP: Final = BANDS - 1
NAMES: Final = ("below_0", "0", "250", "500", "750")  # as they are shown
assert len(FLOORS) == TOP
assert len(NAMES) == BANDS


def band_of(priority: float) -> int:
    return bisect_right(FLOORS, priority)
