"""What became of seqs that have no slot, as runs, so that every account adds up (semantics 2.4).

`Past` tells of those before the first slot: voluntary ends only, and only above `evict_floor`, for below it everything
a read meets is in the tombstone. `Slotless` tells of those between slots: lost ones, and long runs of dead slots that
have left. Of them a seq's place depends, so they are counted; there are few, and mostly none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import accumulate
from operator import sub
from typing import Final, NamedTuple


class DeathCause(IntEnum):
    """Why a slot is dead. The value is the bit in the index's flags."""

    DELETED = 2
    EXPIRED = 4


LOST: Final = 0  # what is lost did not die


class Gone(NamedTuple):
    """Seqs [first, last] that ended so: a `DeathCause`, or `LOST`."""

    first: int
    last: int
    end: int


def joined(runs: Iterable[Gone]) -> list[Gone]:
    """The same seqs in the fewest runs, ascending."""
    found: list[Gone] = []
    for run in sorted(runs):
        assert not found or found[-1].last < run.first
        if found and (found[-1].last + 1, found[-1].end) == (run.first, run.end):
            found[-1] = Gone(found[-1].first, run.last, run.end)
        else:
            found.append(run)
    return found


class Past:
    """Ascending, disjoint ranges of seqs with the end they had."""

    __slots__ = ("_firsts", "_kinds", "_lasts")

    def __init__(self) -> None:
        self._firsts: array[int] = array("Q")
        self._lasts: array[int] = array("Q")
        self._kinds = bytearray()

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int, end: int) -> None:
        """[first, last] ended so; above everything added before."""
        assert first <= last
        assert not self._lasts or first > self._lasts[-1]
        if self._lasts and self._lasts[-1] + 1 == first and self._kinds[-1] == end:
            self._lasts[-1] = last
            return
        self._firsts.append(first)
        self._lasts.append(last)
        self._kinds.append(end)

    def drop_below(self, seq: int) -> None:
        """Forget everything below `seq`."""
        n = bisect_left(self._lasts, seq)
        del self._firsts[:n], self._lasts[:n], self._kinds[:n]
        if self._firsts and self._firsts[0] < seq:
            self._firsts[0] = seq

    def counts(self, first: int, last: int) -> tuple[int, int]:
        """(deleted, expired) within [first, last]."""
        counts = {DeathCause.DELETED: 0, DeathCause.EXPIRED: 0}
        for i in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            overlap = min(last, self._lasts[i]) - max(first, self._firsts[i]) + 1
            counts[DeathCause(self._kinds[i])] += overlap
        return counts[DeathCause.DELETED], counts[DeathCause.EXPIRED]

    def ranges(self) -> list[tuple[int, int, int]]:
        return list(zip(self._firsts, self._lasts, self._kinds, strict=True))


class Slotless:
    """Seqs between slots that have none. `firsts`: the first of each run, for a look whether there is any.

    The position of a slot is its distance from the first one, less what is slotless between; so runs are counted as
    they ascend, and a search by halves leads from a seq to its slot, and back.
    """

    __slots__ = ("_before", "_runs", "_slots_before", "firsts")

    def __init__(self, runs: Iterable[Gone] = ()) -> None:
        self._runs = joined(runs)
        self.firsts = array("Q", (run.first for run in self._runs))
        self._before = array("Q", accumulate((run.last + 1 - run.first for run in self._runs), initial=0))
        self._slots_before = array(
            "Q", map(sub, self.firsts, self._before)
        )  # and the seqs below the first slot

    def __iter__(self) -> Iterator[Gone]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def with_runs(self, runs: Iterable[Gone]) -> Slotless:
        return Slotless((*self._runs, *runs))

    def above(self, seq: int) -> Slotless:
        """Only what is above the slot of `seq`."""
        kept = bisect_left(self.firsts, seq)
        return Slotless(self._runs[kept:]) if kept else self

    def count_below(self, seq: int) -> int:
        """How many of the seqs are below `seq`."""
        i = bisect_right(self.firsts, seq) - 1
        return self._before[i] + min(seq, self._runs[i].last + 1) - self.firsts[i] if i >= 0 else 0

    def count_before(self, slot: int) -> int:
        """How many of them are before a slot. It is named as its seq would be if it had none of them before it."""
        return self._before[bisect_right(self._slots_before, slot)]

    def holds(self, seq: int) -> bool:
        i = bisect_right(self.firsts, seq) - 1
        return i >= 0 and seq <= self._runs[i].last

    def next_from(self, seq: int) -> Gone | None:
        """The run that holds `seq`, or the first one above it."""
        i = bisect_right(self.firsts, seq) - 1
        if i < 0 or self._runs[i].last < seq:
            i += 1
        return self._runs[i] if i < len(self._runs) else None

    def between(self, first: int, last: int) -> list[Gone]:
        """The runs between two slots, by their seqs."""
        return self._runs[bisect_left(self.firsts, first) : bisect_left(self.firsts, last)]
