"""The bricks of every format: little-endian integers, XXH3-64, per-length layouts.

A frame of n data bytes has a fixed layout, so one compiled `Struct` per n packs or unpacks a whole plain frame in one
C call; this is what makes the plain path fast. The layouts are memoized up to `LAYOUT_BYTES_MAX`, beyond it they are
built as needed: the memo is bounded and holds no data.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import xxhash

U8: Final = Struct("<B")
U16: Final = Struct("<H")
U32: Final = Struct("<I")
U64: Final = Struct("<Q")
assert (U8.size, U16.size, U32.size, U64.size) == (1, 2, 4, 8)

LAYOUT_BYTES_MAX: Final = 4096

Buffer: TypeAlias = bytes | bytearray | memoryview

checksum = xxhash.xxh3_64_intdigest  # XXH3-64, seed 0, as an unsigned integer


def immutable(buffer: Buffer) -> bytes:
    """The buffer as bytes; no copy if it is bytes already. Slices of bytes are the fastest Python has."""
    return buffer if isinstance(buffer, bytes) else bytes(buffer)
