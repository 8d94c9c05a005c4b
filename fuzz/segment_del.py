"""A `.del` file."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.segments.segdel import decode_del, encode_del
from topics.kernel.errors import Corrupt

ENTRIES = 100_000  # what a file says of its segment's is believed up to what the segment can have


def check(data: bytes) -> None:
    """What these bytes say, in the one way to say it, or `Corrupt`."""
    try:
        found = decode_del(data, 0, entries_max=ENTRIES)
    except Corrupt:
        return
    assert encode_del(found, 0) == data


def reseal(data: bytes) -> bytes:
    """The bytes as a head and whole runs, with the count and the checksum that belong to them."""
    runs = max(0, len(data) - 48) // 12
    covered = bytearray(data[: 40 + runs * 12].ljust(40, b"\0"))
    covered[36:40] = struct.pack("<I", runs)
    return bytes(covered) + struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(covered)))
