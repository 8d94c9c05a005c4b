"""The ready jobs by their priorities: of each, in the order in which they are handed out."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Final

PRIORITY_MAX: Final = 9
_COMPACT_MIN: Final = 4096
_PRIORITY_BYTE: Final = 7 if array("Q", (1,)).tobytes()[0] else 0  # of `pack_job`
_PRIORITY_OF: Final = bytes(min(max(high - 1, 0), PRIORITY_MAX) for high in range(256))  # absent is 0
_IS: Final = [bytes(value == priority for value in range(256)) for priority in range(PRIORITY_MAX + 1)]


def _by_priority(seqs: array[int], jobs: array[int]) -> Iterator[tuple[int, array[int]]]:
    """The seqs of each priority. `jobs`: of each, as `pack_job` has it."""
    priorities = jobs.tobytes()[_PRIORITY_BYTE::8].translate(_PRIORITY_OF)
    for priority in sorted(set(priorities)):
        yield priority, array("Q", compress(seqs, priorities.translate(_IS[priority])))


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


class Ranks(list[Rank]):
    """Those of the priorities that are in use, the highest first."""

    def of(self, priority: int) -> Rank:
        for rank in self:
            if rank.priority == priority:
                return rank
        rank = Rank(priority)
        self.append(rank)
        self.sort(key=attrgetter("priority"), reverse=True)
        return rank

    def add(self, seqs: array[int], jobs: array[int]) -> None:
        """These come behind the others of their lines."""
        assert len(seqs) == len(jobs)
        for priority, some in _by_priority(seqs, jobs):
            self.of(priority).line.extend(some)

    def add_late(self, seqs: array[int], jobs: array[int]) -> None:
        """These were never handed out, and are in no line."""
        assert len(seqs) == len(jobs)
        for priority, some in _by_priority(seqs, jobs):
            late = self.of(priority).late
            late += some
            heapq.heapify(late)

    def clear_heaps(self) -> None:
        for rank in self:
            rank.back.clear()
            rank.late.clear()
