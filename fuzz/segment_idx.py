"""An `.idx` file."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.segments.segidx import decode_idx, encode_entries, encode_trailer
from topics.kernel.errors import Corrupt


def check(data: bytes) -> None:
    """The columns that these bytes are, or `Corrupt`."""
    try:
        found = decode_idx(data, 0)
    except Corrupt:
        return
    entries = encode_entries(found.offsets, found.lengths, found.ts, found.flags)
    assert entries + encode_trailer(entries, 0) == data


def reseal(data: bytes) -> bytes:
    """The bytes as whole entries, with the trailer that belongs to them."""
    entries = data[: max(0, len(data) - 12) // 20 * 20]
    covered = bytearray(entries)
    for at in range(16, len(covered), 20):
        covered[at] &= 0x3F
    return entries + struct.pack("<IQ", len(entries) // 20, xxhash.xxh3_64_intdigest(bytes(covered)))
