"""Which seqs are due by when, without an object a seq.

Seqs are kept in buckets of about a second, each bucket two arrays; a heap holds the buckets' numbers. Taking what is
due touches whole buckets and at most one partly. Removing a seq early is not supported: the caller skips what has
gone meanwhile (its slot is no longer live).
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress

from topics.kernel.limits import U64_MAX

BUCKET_BITS = 10
NEVER = U64_MAX


class _Bucket:
    """The (due, seq) pairs of about a second."""

    __slots__ = ("dues", "first_ms", "seqs")

    def __init__(self) -> None:
        self.dues: array[int] = array("Q")
        self.seqs: array[int] = array("Q")
        self.first_ms = U64_MAX

    def add(self, due_ms: int, seq: int) -> None:
        self.dues.append(due_ms)
        self.seqs.append(seq)
        if due_ms < self.first_ms:
            self.first_ms = due_ms

    def add_all(self, due_ms: int, seqs: Sequence[int]) -> None:
        self.dues.extend(array("Q", (due_ms,)) * len(seqs))
        self.seqs.extend(seqs)
        self.first_ms = min(self.first_ms, due_ms)

    def pairs(self) -> Iterator[tuple[int, int]]:
        return zip(self.dues, self.seqs, strict=True)


class Deadlines:
    """A multiset of (due_ms, seq). `first_ms`: the earliest due time, or NEVER: a field, for it is asked much more
    often than it changes.
    """

    __slots__ = ("_buckets", "_heap", "count", "first_ms")

    def __init__(self) -> None:
        self.count = 0
        self.first_ms = NEVER
        self._buckets: dict[int, _Bucket] = {}
        self._heap: list[int] = []

    def add(self, due_ms: int, seq: int) -> None:
        self._bucket_of(due_ms).add(due_ms, seq)
        self.count += 1
        if due_ms < self.first_ms:
            self.first_ms = due_ms

    def add_all(self, due_ms: int, seqs: Sequence[int]) -> None:
        """They are due together."""
        if seqs:
            self._bucket_of(due_ms).add_all(due_ms, seqs)
            self.count += len(seqs)
            self.first_ms = min(self.first_ms, due_ms)

    def _bucket_of(self, due_ms: int) -> _Bucket:
        number = due_ms >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket()
            heapq.heappush(self._heap, number)
        return bucket

    def due(self, now_ms: int) -> list[int]:
        """Seqs with `due_ms < now_ms`, without taking them; in no particular order."""
        return [
            seq
            for number, bucket in self._buckets.items()
            if number <= now_ms >> BUCKET_BITS
            for due_ms, seq in bucket.pairs()
            if due_ms < now_ms
        ]

    def take_due(self, now_ms: int) -> list[int]:
        """Take the seqs with `due_ms < now_ms`, ascending."""
        taken: list[int] = []
        while self.first_ms < now_ms:
            bucket = self._buckets.pop(heapq.heappop(self._heap))
            self.count -= len(bucket.seqs)
            for due_ms, seq in bucket.pairs():
                if due_ms < now_ms:
                    taken.append(seq)
                else:
                    self.add(due_ms, seq)
            self._look()
        return sorted(taken)

    def keep(self, are_wanted: Callable[[Sequence[int]], Iterable[object]]) -> None:
        """Drop every seq that is not wanted. Asked for some seqs, `are_wanted` has something true for each that is."""
        before, self._buckets, self._heap, self.count = self._buckets, {}, [], 0
        for number, bucket in before.items():
            kept = _Bucket()
            for due_ms, seq in compress(bucket.pairs(), are_wanted(bucket.seqs)):
                kept.add(due_ms, seq)
            if kept.seqs:
                self._buckets[number] = kept
                self._heap.append(number)
                self.count += len(kept.seqs)
        heapq.heapify(self._heap)
        self._look()

    def _look(self) -> None:
        self.first_ms = self._buckets[self._heap[0]].first_ms if self._heap else NEVER
