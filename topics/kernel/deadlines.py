"""Which seqs are due by when, without an object a seq.

Seqs are kept in buckets of about a second, each bucket two arrays; a heap holds the buckets' numbers. Taking what is
due touches whole buckets and at most one partly. Removing a seq early is not supported: the caller skips what has
gone meanwhile (its slot is no longer live).
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

BUCKET_BITS = 10


class Deadlines:
    """A multiset of (due_ms, seq)."""

    __slots__ = ("_buckets", "_count", "_heap")

    def __init__(self) -> None:
        self._count = 0
        self._buckets: dict[int, tuple[array[int], array[int]]] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, seq: int) -> None:
        number = due_ms >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = (array("Q"), array("Q"))
            heapq.heappush(self._heap, number)
        bucket[0].append(due_ms)
        bucket[1].append(seq)
        self._count += 1

    def first_ms(self) -> int | None:
        """The earliest due time, or None."""
        return min(self._buckets[self._heap[0]][0]) if self._heap else None

    def due(self, now_ms: int) -> list[int]:
        """Seqs with `due_ms < now_ms`, without taking them; in no particular order."""
        found: list[int] = []
        for number, (dues, seqs) in self._buckets.items():
            if number <= now_ms >> BUCKET_BITS:
                found += [seq for due_ms, seq in zip(dues, seqs, strict=True) if due_ms < now_ms]
        return found

    def take_due(self, now_ms: int) -> list[int]:
        """Take the seqs with `due_ms < now_ms`, ascending."""
        taken: list[int] = []
        while self._heap and self._heap[0] <= now_ms >> BUCKET_BITS:
            number = self._heap[0]
            dues, seqs = self._buckets[number]
            kept = [(d, s) for d, s in zip(dues, seqs, strict=True) if d >= now_ms]
            taken += [s for d, s in zip(dues, seqs, strict=True) if d < now_ms]
            if kept:
                self._buckets[number] = (array("Q", (d for d, _ in kept)), array("Q", (s for _, s in kept)))
                break
            del self._buckets[number]
            heapq.heappop(self._heap)
        self._count -= len(taken)
        return sorted(taken)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drop every seq that is not `wanted`."""
        buckets = self._buckets.values()
        entries = [(d, s) for dues, seqs in buckets for d, s in zip(dues, seqs, strict=True) if wanted(s)]
        self._buckets.clear()
        self._heap.clear()
        self._count = 0
        for due_ms, seq in entries:
            self.add(due_ms, seq)
