"""What became of seqs whose slots are gone, run-length encoded, so that every account adds up (semantics 2.4).

Only voluntary ends are kept, and only above `evict_floor`: below it everything a read meets is in the tombstone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from enum import IntEnum


class DeathCause(IntEnum):
    """Why a slot is dead. The value is the bit in the index's flags."""

    DELETED = 2
    EXPIRED = 4


class Past:
    """Ascending, disjoint ranges of seqs with the end they had."""

    __slots__ = ("_firsts", "_kinds", "_lasts")

    def __init__(self) -> None:
        self._firsts: array[int] = array("Q")
        self._lasts: array[int] = array("Q")
        self._kinds = bytearray()

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int, end: DeathCause) -> None:
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
