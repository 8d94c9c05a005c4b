"""Hashes in order, and what any range of them adds up to: what two stores compare (replication 5.8).

Theory. A range is `[start, stop)` over 32-byte hashes read as big-endian numbers; the last range has no stop, so that
the hash of all FF bytes belongs to it. `HashSet` keeps hashes in sorted runs of bounded length and, a run each, the
fold of everything before it; so the fold of a range is the difference of two prefixes, whatever the hashes are. A
trie or buckets by prefix would be thrown out of balance by whoever grinds hashes; runs split by their length are not.

A fold has three parts: XOR, the fingerprint of the protocol; the sum modulo 2^256, from which the stronger one is
made; and the count (`size`). XOR is linear, so hashes can be chosen that cancel out (8.11): ranges are equal only if
count and fingerprint are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from topics.crypto.hashing import HASH_SIZE, blake3
from topics.kernel.errors import invalid

ZERO: Final = bytes(HASH_SIZE)
LAST: Final = b"\xff" * HASH_SIZE
RUN_MAX: Final = 128  # hashes of one sorted run; a full one splits in two

_MODULUS: Final = 1 << 8 * HASH_SIZE
_COUNT_SIZE: Final = 8


class Scheme(IntEnum):
    """How a fold becomes a fingerprint. Both sides of a session use the same."""

    XOR = 0
    HASHED_SUM = 1  # BLAKE3 of sum and count: cancelling out is as hard as a subset sum over chosen hashes


class HashRange(NamedTuple):
    """The hashes from `start` up to, not including, `stop`; None is no upper bound."""

    start: bytes
    stop: bytes | None

    @property
    def is_empty(self) -> bool:
        """An inverted range and one of no width hold nothing."""
        return self.stop is not None and self.stop <= self.start

    def holds(self, value: bytes) -> bool:
        return self.start <= value and (self.stop is None or value < self.stop)

    def halves(self) -> tuple[HashRange, HashRange] | None:
        """Both halves, or None if one of them would be empty. A half is never longer than half, rounded up."""
        middle = midpoint(self.start, LAST if self.stop is None else self.stop)
        if middle <= self.start:
            return None
        assert self.stop is None or middle < self.stop
        return HashRange(self.start, middle), HashRange(middle, self.stop)


FULL: Final = HashRange(ZERO, None)


def midpoint(start: bytes, stop: bytes) -> bytes:
    """The arithmetic middle, rounded down: of 00… and FF… it is 7FFF… (W5)."""
    assert len(start) == len(stop) == HASH_SIZE
    return (int.from_bytes(start) + int.from_bytes(stop) >> 1).to_bytes(HASH_SIZE)


class Fold(NamedTuple):
    """What some hashes add up to; folds of disjoint sets add and subtract."""

    xor: int
    total: int
    size: int

    def plus(self, other: Fold) -> Fold:
        return Fold(self.xor ^ other.xor, (self.total + other.total) % _MODULUS, self.size + other.size)

    def minus(self, part: Fold) -> Fold:
        assert part.size <= self.size
        return Fold(self.xor ^ part.xor, (self.total - part.total) % _MODULUS, self.size - part.size)

    def fingerprint(self, scheme: Scheme) -> bytes:
        """32 bytes; zero for no hashes under XOR."""
        if scheme is Scheme.XOR:
            return self.xor.to_bytes(HASH_SIZE)
        return blake3(self.total.to_bytes(HASH_SIZE) + self.size.to_bytes(_COUNT_SIZE))


NOTHING: Final = Fold(0, 0, 0)


def fold_of(hashes: Iterable[bytes]) -> Fold:
    """The fold of distinct hashes."""
    xor = total = count = 0
    for each in hashes:
        number = int.from_bytes(each)
        xor ^= number
        total += number
        count += 1
    return Fold(xor, total % _MODULUS, count)


class HashSet:
    """A set of 32-byte hashes in ascending order. The fold of any range costs O(log n) and two runs at most; after a
    change the prefixes behind it are made again by the next question.
    """

    __slots__ = ("_firsts", "_folds", "_fresh", "_prefixes", "_runs")

    def __init__(self, hashes: Iterable[bytes] = ()) -> None:
        ordered = sorted(set(hashes))
        assert all(len(each) == HASH_SIZE for each in ordered)
        step = RUN_MAX // 2
        self._runs = [ordered[at : at + step] for at in range(0, len(ordered), step)] or [[]]
        # The first run takes whatever is smaller than all others.
        self._firsts = [ZERO, *(run[0] for run in self._runs[1:])]
        self._folds = [fold_of(run) for run in self._runs]
        self._prefixes = [NOTHING]  # _prefixes[i]: of all runs before i, for i <= _fresh
        self._fresh = 0

    def __len__(self) -> int:
        return self._prefix_of_runs(len(self._runs)).size

    def __iter__(self) -> Iterator[bytes]:
        for run in self._runs:
            yield from run

    def __contains__(self, value: bytes) -> bool:
        run = self._runs[self._run_of(value)]
        at = bisect_left(run, value)
        return at < len(run) and run[at] == value

    def add(self, value: bytes) -> bool:
        """Put it in; tells whether it was new."""
        assert len(value) == HASH_SIZE
        number = self._run_of(value)
        run = self._runs[number]
        at = bisect_left(run, value)
        if at < len(run) and run[at] == value:
            return False
        assert at == len(run) or run[at] > value
        run.insert(at, value)
        self._folds[number] = self._folds[number].plus(fold_of((value,)))
        if len(run) > RUN_MAX:
            self._split(number)
        self._stale_from(number)
        return True

    def discard(self, value: bytes) -> bool:
        """Take it out; tells whether it was there."""
        number = self._run_of(value)
        run = self._runs[number]
        at = bisect_left(run, value)
        if at == len(run) or run[at] != value:
            return False
        assert self._folds[number].size == len(run)
        del run[at]
        self._folds[number] = self._folds[number].minus(fold_of((value,)))
        if not run and number > 0:
            del self._runs[number], self._firsts[number], self._folds[number]
            number -= 1
        self._stale_from(number)
        return True

    def fold(self, over: HashRange = FULL) -> Fold:
        """What the hashes of the range add up to."""
        if over.is_empty:
            return NOTHING
        upper = self._prefix_of_runs(len(self._runs)) if over.stop is None else self._below(over.stop)
        return upper.minus(self._below(over.start))

    def listing(self, over: HashRange, limit: int) -> list[bytes]:
        """The hashes of the range, ascending. Raises `Rejected` if there are more than `limit`."""
        count = self.fold(over).size
        if count > limit:
            raise invalid(
                "range",
                f"{count} hashes are in it, {limit} at most can be listed: split the range",
                count=count,
            )
        found: list[bytes] = []
        number = self._run_of(over.start)
        while len(found) < count:
            found += [each for each in self._runs[number] if over.holds(each)]
            number += 1
        assert len(found) == count
        return found

    def _run_of(self, value: bytes) -> int:
        return bisect_right(self._firsts, value) - 1

    def _below(self, bound: bytes) -> Fold:
        """Of all hashes smaller than `bound`."""
        assert len(bound) == HASH_SIZE
        number = self._run_of(bound)
        run = self._runs[number]
        at = bisect_left(run, bound)
        before = self._prefix_of_runs(number)
        if at * 2 <= len(run):
            return before.plus(fold_of(run[:at]))
        return before.plus(self._folds[number]).minus(fold_of(run[at:]))

    def _prefix_of_runs(self, number: int) -> Fold:
        while self._fresh < number:
            self._prefixes.append(self._prefixes[self._fresh].plus(self._folds[self._fresh]))
            self._fresh += 1
        assert number <= self._fresh < len(self._prefixes)
        return self._prefixes[number]

    def _stale_from(self, number: int) -> None:
        """Run `number` changed: prefixes that include it no longer hold."""
        if self._fresh > number:
            self._fresh = number
            del self._prefixes[number + 1 :]
        assert len(self._prefixes) == self._fresh + 1

    def _split(self, number: int) -> None:
        run = self._runs[number]
        middle = len(run) // 2
        assert 0 < middle < len(run)
        self._runs[number : number + 1] = [run[:middle], run[middle:]]
        self._firsts.insert(number + 1, run[middle])
        self._folds[number : number + 1] = [fold_of(run[:middle]), fold_of(run[middle:])]
