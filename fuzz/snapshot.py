"""The container of a snapshot."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.snapshot import decode_snapshot, encode_snapshot
from topics.kernel.errors import Corrupt


def check(data: bytes) -> None:
    """The number and body that these bytes are, or `Corrupt`."""
    try:
        number, body = decode_snapshot(data)
    except Corrupt:
        return
    assert encode_snapshot(number, body) == data


def reseal(data: bytes) -> bytes:
    covered = data[: max(0, len(data) - 8)]
    return covered + struct.pack("<Q", xxhash.xxh3_64_intdigest(covered))
