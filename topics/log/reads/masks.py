"""Masks: a byte a slot, 1 or 0, as one big number, so that thousands of slots are decided in a few calls.

Theory. Python takes half a microsecond to look at a slot, and a read may examine 100 000. But a column can be mapped to
bytes in C, and bytes of ones and zeros are a number, so that "live and timed and too late" is `&` of numbers and "how
many" is `bit_count`. The first slot is the highest byte: the slots before a cut are a shift away.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Final

_LOW: Final = 0 if array("I", (1,)).tobytes()[0] else 3  # which byte of a number is the lowest
_HIGH: Final = tuple(i for i in range(4) if i != _LOW)
_FEW: Final = 64  # slots that are looked at one by one as fast
assert array("I").itemsize == 4


def of_flags(flags: bytes, table: bytes) -> int:
    """The mask that a table makes of flags: of each byte 1 or 0."""
    return int.from_bytes(flags.translate(table))


def mask_below(column: array[int], bound: int) -> int:
    """Which numbers of the column are below `bound`; 0 may be taken for one that is not."""
    if min(filter(None, column), default=bound) >= bound:  # mostly so, and found out five times as fast
        return 0
    return int.from_bytes(bytes(map(bound.__gt__, column)))


def zero(column: array[int]) -> int:
    """Which numbers of the column are 0."""
    return int.from_bytes(bytes(map((0).__eq__, column)))


def before(mask: int, slots: int, cut: int) -> int:
    """The mask of the first `cut` of its slots."""
    assert 0 <= cut <= slots
    return mask >> 8 * (slots - cut)


def positions(mask: int, start: int, stop: int) -> Sequence[int]:
    """Where the slots of a mask of [start, stop) are."""
    return list(compress(range(start, stop), mask.to_bytes(stop - start))) if mask else ()


class Members:
    """A set of numbers, and which slots of a column hold one of them."""

    __slots__ = ("_table", "numbers")

    def __init__(self, numbers: frozenset[int]) -> None:
        self.numbers = numbers
        self._table: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def of(self, column: array[int]) -> int:
        """The mask of a column. Where all its numbers are below 256, which is nearly always, twenty times as fast."""
        if len(column) > _FEW:
            data = column.tobytes()
            if all(data[i::4].count(0) == len(column) for i in _HIGH):
                if self._table is None:
                    self._table = bytes(map(self.numbers.__contains__, range(256)))
                return of_flags(data[_LOW::4], self._table)
        return int.from_bytes(bytes(map(self.numbers.__contains__, column)))
