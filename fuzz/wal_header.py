"""The header of a WAL file."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.log.walheader import HEADER_SIZE, WalHeader
from topics.kernel.errors import Corrupt


def check(data: bytes) -> None:
    """The header that these bytes are, or `Corrupt`."""
    try:
        header = WalHeader.decode(data)
    except Corrupt:
        return
    assert header.encode() == data[:HEADER_SIZE]


def reseal(data: bytes) -> bytes:
    covered = data[: HEADER_SIZE - 8]
    return covered + struct.pack("<Q", xxhash.xxh3_64_intdigest(covered)) + data[HEADER_SIZE:]
