"""Canonical cells: the bytes of one cell, or no cell."""

from __future__ import annotations

from topics.codec.cell import decode_cell, encode_cell
from topics.kernel.errors import Corrupt

TOKENS = (
    b"\x00",
    b"\x00\xff",
    b"\x01",
    b"\x03",
    b"\x04\x80\x00\x00\x00\x00\x00\x00\x01",
    b"\x05\xbf\xf0\x00\x00\x00\x00\x00\x00",
    b"\x05\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x06a\x00",
    b"\x07a\x00",
    b"\x08",
    b"\x08" * 257,
    b"\x08\x09",
    b"\x09",
    b"\x09" * 257,
    b"\x09\x00",
    b"\xed\xa0\x80",
)


def check(data: bytes) -> None:
    """What decodes encodes to the very bytes: a second spelling would be a second hash."""
    try:
        cell = decode_cell(data)
    except Corrupt:
        return
    assert encode_cell(cell) == data, "a cell has two spellings"
