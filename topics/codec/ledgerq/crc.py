"""CRC-32 as ledgerq takes it: IEEE in the seed's dialect, Castagnoli in the release's.

Both reflected, begun with all ones and inverted at the end. Four bytes a step, by two tables of 16 bits each, which are
made when first asked for: about 15 MB/s. That is enough for a directory that is imported once, and needs no library of
which nobody else here has any use.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from struct import unpack_from
from typing import Final

from topics.codec.primitives import Buffer

_ONES: Final = 0xFFFFFFFF
_WORD: Final = 4


class Crc32:
    """The checksum of one polynomial, given with its bits reflected."""

    def __init__(self, polynomial: int) -> None:
        assert 0 < polynomial <= _ONES
        self._polynomial = polynomial

    def __call__(self, data: Buffer) -> int:
        low, high, table = self._low, self._high, self._bytes
        words = len(data) // _WORD
        value = _ONES
        for word in unpack_from(f"<{words}I", data):
            value ^= word
            value = low[value & 0xFFFF] ^ high[value >> 16]
        for byte in data[words * _WORD :]:
            value = value >> 8 ^ table[(value ^ byte) & 0xFF]
        assert 0 <= value <= _ONES
        return value ^ _ONES

    @cached_property
    def _bytes(self) -> array[int]:
        """What becomes of a byte."""
        table = array("I")
        for byte in range(256):
            value = byte
            for _ in range(8):
                value = value >> 1 ^ (self._polynomial if value & 1 else 0)
            table.append(value)
        assert len(table) == 256
        return table

    @cached_property
    def _low(self) -> array[int]:
        """What becomes of the lower half of a word in four bytes' steps."""
        return array("I", map(self._four_steps, range(1 << 16)))

    @cached_property
    def _high(self) -> array[int]:
        """And of the upper half: steps are linear, so the halves add up."""
        return array("I", map(self._four_steps, range(0, 1 << 32, 1 << 16)))

    def _four_steps(self, value: int) -> int:
        table = self._bytes
        for _ in range(_WORD):
            value = value >> 8 ^ table[value & 0xFF]
        return value


IEEE: Final = Crc32(0xEDB88320)
CASTAGNOLI: Final = Crc32(0x82F63B78)
