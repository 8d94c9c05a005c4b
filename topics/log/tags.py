"""Tags, nodes and keys: names interned to small numbers, and for tags the live seqs of each.

The index keeps a number a record instead of a string. A number is given back when its last live record is gone, so
the table is as large as the names alive. The tag index holds live seqs only, ascending (I-04), so that a delete by
tag never scans the log (semantics 5); how many hold a tag is how many seqs it has, so nothing else counts them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

NO_LABEL: Final = 0


class NumberedNames:
    """Names in use, each with a number above 0."""

    __slots__ = ("_free", "_names", "_numbers", "_sorted")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {b"": NO_LABEL}
        self._names: list[bytes] = [b""]
        self._free: list[int] = []
        self._sorted: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._numbers) - 1

    def __contains__(self, name: bytes) -> bool:
        return name in self._numbers

    @property
    def stop(self) -> int:
        """Above every number that was ever given."""
        return len(self._names)

    def number_all(self, names: Sequence[bytes]) -> list[int]:
        """The number of each name, 0 for `b""`; a name that is not in use is given one."""
        numbers = self._numbers
        try:
            return list(map(numbers.__getitem__, names))
        except KeyError:
            for name in dict.fromkeys(names):
                if name not in numbers:
                    self._new(name)
        return list(map(numbers.__getitem__, names))

    def free(self, number: int) -> None:
        """Nobody has the name any more."""
        assert number != NO_LABEL
        del self._numbers[self._names[number]]
        self._names[number] = b""
        self._free.append(number)
        self._sorted = None

    def number(self, name: bytes) -> int:
        """The name's number, or 0 if no live record has it."""
        return self._numbers.get(name, NO_LABEL)

    def name(self, number: int) -> bytes:
        return self._names[number]

    def numbers_with_prefix(self, prefix: bytes) -> list[int]:
        """Numbers of the names that start with `prefix`, in the order of the names."""
        names = self._in_order()
        found = []
        for i in range(bisect_left(names, prefix), len(names)):
            if not names[i].startswith(prefix):
                break
            found.append(self._numbers[names[i]])
        return found

    def items(self) -> Iterable[tuple[bytes, int]]:
        """(name, number) in the order of the names."""
        return ((name, self._numbers[name]) for name in self._in_order())

    def _in_order(self) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self._numbers)[1:]  # all but b""
        return self._sorted

    def _new(self, name: bytes) -> int:
        assert name
        if self._free:
            number = self._free.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
        self._numbers[name] = number
        self._sorted = None
        return number


class Labels(NumberedNames):
    """Names with a count of their holders: the last one frees the name."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        super().__init__()
        self._counts: list[int] = [0]

    def hold_all(self, names: Sequence[bytes]) -> list[int]:
        """The number of each name (0 for `b""`), one more holder each."""
        numbers, counts = self.number_all(names), self._counts
        if len(counts) < self.stop:
            counts += [0] * (self.stop - len(counts))
        for number in numbers:
            counts[number] += 1
        return numbers

    def hold(self, name: bytes, holders: int) -> int:
        """The number of a name, so many more holders."""
        assert holders > 0
        number = self.number(name)
        if number == NO_LABEL and name:
            number = self._new(name)
            if number == len(self._counts):
                self._counts.append(0)
        self._counts[number] += holders
        return number

    def release(self, number: int, holders: int = 1) -> None:
        """That many holders fewer; the last one frees the number."""
        if number == NO_LABEL:
            return
        self._counts[number] -= holders
        assert self._counts[number] >= 0
        if self._counts[number] == 0:
            self.free(number)

    def release_all(self, numbers: Sequence[int]) -> None:
        """A holder fewer of each, as often as it is there."""
        for number in set(numbers):
            self.release(number, numbers.count(number))

    def holders(self, number: int) -> int:
        return self._counts[number]


class TagIndex:
    """tag -> ascending live seqs."""

    __slots__ = ("_seqs", "labels")

    def __init__(self) -> None:
        self.labels = NumberedNames()
        self._seqs: list[array[int]] = [array("Q")]  # by number; of NO_LABEL, outside `extend`, empty

    def extend(self, names: Sequence[bytes], seq_start: int) -> list[int]:
        """Index one run: `names[i]` is the tag of `seq_start + i`, `b""` for none. Returns the numbers."""
        assert seq_start > 0
        numbers, seqs = self.labels.number_all(names), self._seqs
        while len(seqs) < self.labels.stop:
            seqs.append(array("Q"))
        seq = seq_start
        for number in numbers:
            seqs[number].append(seq)
            seq += 1
        del seqs[NO_LABEL][:]
        return numbers

    def seqs(self, number: int) -> array[int]:
        """Live seqs with this tag; do not change it."""
        return self._seqs[number]

    def remove(self, number: int, gone: Sequence[int]) -> None:
        """Take out ascending seqs, all of which have this tag."""
        held = self._seqs[number]
        first = bisect_left(held, gone[0])
        if held[first : first + len(gone)] == array("Q", gone):
            del held[first : first + len(gone)]
        else:
            stop, dead = bisect_right(held, gone[-1], first), set(gone)
            held[first:stop] = array("Q", [seq for seq in held[first:stop] if seq not in dead])
        self._free_if_empty(number)

    def take_below(self, number: int, stop: int) -> list[int]:
        """Take out every seq below `stop` with this tag, and return them."""
        held = self._seqs[number]
        taken = held[: bisect_left(held, stop)].tolist()
        if taken:
            del held[: len(taken)]
            self._free_if_empty(number)
        return taken

    def remove_range(self, number: int, start: int, stop: int) -> None:
        """Take out every seq in [start, stop) with this tag."""
        assert start <= stop
        held = self._seqs[number]
        del held[bisect_left(held, start) : bisect_left(held, stop)]
        self._free_if_empty(number)

    def _free_if_empty(self, number: int) -> None:
        if not self._seqs[number]:
            self.labels.free(number)
