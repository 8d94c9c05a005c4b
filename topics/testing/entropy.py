"""Randomness that repeats: the same seed gives the same tokens in the same order."""

from __future__ import annotations

import random


class SeededEntropy:
    """`kernel.ports.Entropy` from a seed. Predictable on purpose; never outside tests."""

    __slots__ = ("_random",)

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        assert size >= 0, size
        return self._random.randbytes(size)
