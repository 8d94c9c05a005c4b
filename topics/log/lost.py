"""Lost ranges: seqs known lost between live records (semantics 1).

A short ascending list beside the floors. A lost range costs no index slot and never moves `evict_floor` (I-05);
adjoining ranges with one reason are one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple


class LostRange(NamedTuple):
    """Seqs [first, last], both lost, both inclusive; `ts` is that of the frame that says so."""

    first: int
    last: int
    reason: str
    ts: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class LostRanges:
    """The lost ranges of one topic that lie above `evict_floor`. `firsts`: the first seq of each, mostly of none."""

    __slots__ = ("_before", "_ranges", "firsts")

    def __init__(self) -> None:
        self._ranges: list[LostRange] = []
        self.firsts: list[int] = []
        self._before: list[int] = [0]

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[LostRange]:
        return iter(self._ranges)

    def add(self, lost: LostRange) -> None:
        """Append a range behind all others, merging it with an adjoining one of the same reason."""
        assert lost.first <= lost.last
        assert not self._ranges or lost.first > self._ranges[-1].last
        if (
            self._ranges
            and self._ranges[-1].last + 1 == lost.first
            and self._ranges[-1].reason == lost.reason
        ):
            lost = LostRange(self._ranges.pop().first, lost.last, lost.reason, lost.ts)
            self.firsts.pop()
            self._before.pop()
        self._ranges.append(lost)
        self.firsts.append(lost.first)
        self._before.append(self._before[-1] + lost.size)

    def drop_below(self, seq: int) -> list[LostRange]:
        """Take out the ranges that end below `seq`: the floor has passed them."""
        if not self._ranges or self._ranges[0].last >= seq:
            return []
        dropped = [r for r in self._ranges if r.last < seq]
        self._replace(self._ranges[len(dropped) :])
        return dropped

    def at(self, seq: int) -> LostRange | None:
        """The range that holds `seq`."""
        i = bisect_right(self.firsts, seq) - 1
        if i >= 0 and self._ranges[i].last >= seq:
            return self._ranges[i]
        return None

    def next_from(self, seq: int) -> LostRange | None:
        """The first range that starts at or above `seq`."""
        i = bisect_left(self.firsts, seq)
        return self._ranges[i] if i < len(self._ranges) else None

    def count_below(self, seq: int) -> int:
        """How many lost seqs are below `seq`."""
        if not self.firsts:
            return 0
        i = bisect_right(self.firsts, seq) - 1
        if i < 0:
            return 0
        return self._before[i] + min(seq - self.firsts[i], self._ranges[i].size)

    def _replace(self, ranges: list[LostRange]) -> None:
        self._ranges = ranges
        self.firsts = [r.first for r in ranges]
        self._before = list(accumulate((r.size for r in ranges), initial=0))
