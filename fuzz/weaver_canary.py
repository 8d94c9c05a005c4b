"""A reader of a Fetch with a planted bug: it believes the count. A harness that does not catch it is broken."""

from __future__ import annotations

import struct

HASH_SIZE = 32
HEAD = struct.Struct("<BBI")


def check(data: bytes) -> None:
    """Whatever was read must have been there."""
    names = hashes(data)
    assert all(len(name) == HASH_SIZE for name in names), "a hash runs past the end"


def hashes(data: bytes) -> list[bytes]:
    if len(data) < HEAD.size:
        return []
    _, kind, count = HEAD.unpack_from(data)
    if kind != 4:
        return []
    # planted: `count` is not compared with what is left
    return [
        data[HEAD.size + HASH_SIZE * at : HEAD.size + HASH_SIZE * (at + 1)] for at in range(min(count, 50))
    ]
