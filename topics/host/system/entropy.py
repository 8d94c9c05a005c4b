"""Randomness of this machine, fit for secrets."""

from __future__ import annotations

import os


class SystemEntropy:
    """`kernel.ports.Entropy` over the kernel's generator."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        assert size >= 0, size
        return os.urandom(size)
