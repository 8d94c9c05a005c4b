"""A snapshot of a Weaver's state, and the items of its journals."""

from __future__ import annotations

import struct

import xxhash

from topics.crypto.hashing import blake3
from topics.kernel.errors import Corrupt, Rejected
from topics.weaver.state.snapshot import decode_snapshot, encode_snapshot
from topics.weaver.store.journal_items import ItemKind, pack, unpack

STORE_ID = b"\x5a" * 16
TOKENS = (
    b"LATS",
    STORE_ID,
    b"cursor",
    b"kind",
    b"kv",
    bytes(32),
    b"\x01\x06\x00\x00\x00",
    b"\xff\xff\xff\xff",
)


def check(data: bytes) -> None:
    """One state in one spelling, or a refusal; one item in one spelling, or `Corrupt`."""
    try:
        part = decode_snapshot(data, STORE_ID, "kv")
        assert encode_snapshot(part, STORE_ID, "kv") == data
    except (Corrupt, Rejected):
        pass
    try:
        kind, payload = unpack(data)
    except Corrupt:
        return
    assert isinstance(kind, ItemKind)
    assert pack(kind, payload) == data


def reseal(data: bytes) -> bytes:
    if len(data) % 2:
        return data[:-8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(data[:-8]))
    return data[:-32] + blake3(data[:-32])
