"""The ready jobs of one priority, in the order in which they are handed out."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

_COMPACT_MIN: Final = 4096


class Rank:
    """The ready jobs of one priority. Those of the line ascend and are taken from the front: fresh ones that nobody has
    delayed. `back`: handed out before, `late`: never, and not in the line; heaps.
    """

    __slots__ = ("at", "back", "late", "line", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.line = array("Q")
        self.at = 0
        self.back: list[int] = []
        self.late: list[int] = []

    @property
    def first(self) -> int:
        """Of the line; 0: there is none."""
        return self.line[self.at] if self.at < len(self.line) else 0

    def take(self, count: int) -> Sequence[int]:
        """From the line, what comes before the late ones."""
        stop = self.at + count
        if self.late:
            stop = min(stop, bisect_left(self.line, self.late[0], self.at))
        taken = self.line[self.at : stop]
        self._drop(len(taken))
        return taken

    def drop_first(self) -> None:
        """Of the line, whatever is late."""
        self._drop(1)

    def _drop(self, count: int) -> None:
        self.at += count
        if self.at > _COMPACT_MIN and self.at * 2 > len(self.line):
            del self.line[: self.at]
            self.at = 0
