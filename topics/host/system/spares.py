"""Descriptors that a disk keeps for its writes and syncs.

A process may run out of them, by connections above all. A log that could not begin its next file for want of one would
be read-only until a restart, so a few are held open and given up, one by one, when something must be opened.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

SPARE_FILES: Final = 8


class Spares:
    """Copies of one descriptor. Not for several threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held: list[int] = []
        self.keep()

    def keep(self) -> None:
        """As many copies as there should be, or as there can be."""
        with suppress(OSError):
            while len(self._held) < SPARE_FILES:
                self._held.append(os.dup(self._fd))

    def give_up(self) -> bool:
        """Close one of them. False if none is left."""
        if not self._held:
            return False
        os.close(self._held.pop())
        return True

    def close(self) -> None:
        while self.give_up():
            pass
