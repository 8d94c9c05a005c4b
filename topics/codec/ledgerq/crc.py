"""CRC-32 as ledgerq takes it: IEEE in the seed's dialect, Castagnoli in the release's.

Both reflected, begun with all ones and inverted at the end. A table a polynomial and a step a byte: about 10 MB/s,
which is enough for a directory that is imported once, and needs no library of which nobody else here has any use.
"""

from __future__ import annotations

from array import array
from typing import Final

from topics.codec.primitives import Buffer

_ONES: Final = 0xFFFFFFFF


def _table(polynomial: int) -> array[int]:
    table = array("I")
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    assert len(table) == 256
    return table


IEEE: Final = _table(0xEDB88320)
CASTAGNOLI: Final = _table(0x82F63B78)


def crc32(data: Buffer, table: array[int]) -> int:
    value = _ONES
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    assert 0 <= value <= _ONES
    return value ^ _ONES
