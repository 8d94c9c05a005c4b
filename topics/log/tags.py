"""Tags and nodes: names interned to small numbers, and for tags the live seqs of each.

The index keeps a number a record instead of a string. A number is given back when its last live record is gone, so
the table is as large as the names alive. The tag index holds live seqs only, ascending (I-04), so that a delete by
tag never scans the log (semantics 5).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

NO_LABEL: Final = 0


class Labels:
    """Names in use, each with a number above 0 and a count of its holders."""

    __slots__ = ("_counts", "_free", "_ids", "_names", "_sorted")

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._names: list[bytes] = [b""]
        self._counts: list[int] = [0]
        self._free: list[int] = []
        self._sorted: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, name: bytes) -> bool:
        return name in self._ids

    def hold_all(self, names: Sequence[bytes]) -> list[int]:
        """The number of each name (0 for `b""`), one more holder each."""
        ids, counts = self._ids, self._counts
        numbers = list(map(ids.get, names, repeat(NO_LABEL)))
        if NO_LABEL in numbers:
            unknown = [name for name in dict.fromkeys(names) if name and name not in ids]
            for name in unknown:
                self._new(name)
            if unknown:
                numbers = list(map(ids.get, names, repeat(NO_LABEL)))
        for number in numbers:
            counts[number] += 1
        counts[NO_LABEL] = 0
        return numbers

    def release(self, number: int, holders: int = 1) -> None:
        """That many holders fewer; the last one frees the number."""
        if number == NO_LABEL:
            return
        self._counts[number] -= holders
        assert self._counts[number] >= 0
        if self._counts[number] == 0:
            del self._ids[self._names[number]]
            self._names[number] = b""
            self._free.append(number)
            self._sorted = None

    def number(self, name: bytes) -> int:
        """The name's number, or 0 if no live record has it."""
        return self._ids.get(name, NO_LABEL)

    def name(self, number: int) -> bytes:
        return self._names[number]

    def numbers_with_prefix(self, prefix: bytes) -> list[int]:
        """Numbers of the names that start with `prefix`, in the order of the names."""
        if self._sorted is None:
            self._sorted = sorted(self._ids)
        found = []
        for i in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            if not self._sorted[i].startswith(prefix):
                break
            found.append(self._ids[self._sorted[i]])
        return found

    def items(self) -> Iterable[tuple[bytes, int, int]]:
        """(name, number, holders) in the order of the names."""
        return ((name, self._ids[name], self._counts[self._ids[name]]) for name in sorted(self._ids))

    def _new(self, name: bytes) -> int:
        assert name
        assert name not in self._ids
        if self._free:
            number = self._free.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
            self._counts.append(0)
        self._ids[name] = number
        self._sorted = None
        return number


class _Seqs(dict[int, "array[int]"]):
    """Number -> seqs, made when it is first asked for."""

    def __missing__(self, number: int) -> array[int]:
        made: array[int] = array("Q")
        self[number] = made
        return made


class TagIndex:
    """tag -> ascending live seqs."""

    __slots__ = ("_seqs", "labels")

    def __init__(self) -> None:
        self.labels = Labels()
        self._seqs = _Seqs()

    def extend(self, names: Sequence[bytes], seq_start: int) -> list[int]:
        """Index one run: `names[i]` is the tag of `seq_start + i`, `b""` for none. Returns the numbers."""
        assert seq_start > 0
        numbers = self.labels.hold_all(names)
        seqs = range(seq_start, seq_start + len(numbers))
        deque(map(array.append, map(self._seqs.__getitem__, numbers), seqs), maxlen=0)
        self._seqs.pop(NO_LABEL, None)
        return numbers

    def seqs(self, number: int) -> array[int]:
        """Live seqs with this tag; do not change it."""
        return self._seqs.get(number, array("Q"))

    def remove(self, number: int, gone: Sequence[int]) -> None:
        """Take out ascending seqs, all of which have this tag."""
        held = self._seqs[number]
        first = bisect_left(held, gone[0])
        if held[first : first + len(gone)] == array("Q", gone):
            del held[first : first + len(gone)]
        else:
            dead = set(gone)
            held = self._seqs[number] = array("Q", [seq for seq in held if seq not in dead])
        if not held:
            del self._seqs[number]
        self.labels.release(number, len(gone))

    def remove_range(self, number: int, start: int, stop: int) -> None:
        """Take out every seq in [start, stop) with this tag."""
        assert start <= stop
        held = self._seqs[number]
        lo, hi = bisect_left(held, start), bisect_left(held, stop)
        del held[lo:hi]
        if not held:
            del self._seqs[number]
        self.labels.release(number, hi - lo)
