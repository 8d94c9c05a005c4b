"""A decoder with a planted bug: it believes the length of an extension. A harness that does not catch it is broken."""

from __future__ import annotations

import struct

from topics.codec.log.layout import EXT_HEAD


def check(data: bytes) -> None:
    """The values of the extensions must lie inside the bytes."""
    assert sum(lengths(data)) <= len(data), "a value runs past the end"


def lengths(data: bytes) -> list[int]:
    found, at = [], 0
    try:
        while at < len(data):
            _, size = EXT_HEAD.unpack_from(data, at)
            found.append(size)  # planted: `size` is not compared with what is left
            at += EXT_HEAD.size + size
    except struct.error:
        return []
    return found
