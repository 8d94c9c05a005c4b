"""What a journal of the Weaver holds: one item a fact, a kind before it and a checksum behind it.

The checksum (XXH3-64) finds bytes that rotted anywhere, in signatures too, which no hash covers. What an item says is
read here and judged by the store. Items of one atomic write stand or fall together by the journal's promise.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from topics.codec.primitives import U64, checksum
from topics.crypto.keys import KEY_SIZE
from topics.kernel.errors import Corrupt
from topics.weaver.model.hlc import HLC, HLC_LAYOUT
from topics.weaver.model.intention import STORE_ID_SIZE

FORMAT: Final = 1
HEADER: Final = Struct(f"<I{STORE_ID_SIZE}s{KEY_SIZE}s")
assert HEADER.size == 52
RECEIVED: Final = Struct("<QB")
assert RECEIVED.size == 9
KIND_MAX: Final = 64  # bytes of a store type's name


class ItemKind(IntEnum):
    """What an item says. Numbers are never used again."""

    HEADER = 1  # which store, which node; the first item
    ENVELOPE = 2  # accepted, at a time; witnessed or floating, as later items say
    WITNESS = 3  # a record of the witness log
    DROPPED = 4  # a floating intention was let go
    CLOCK = 5  # the node's HLC
    EVIDENCE = 6  # a second child of one store_prev, kept but not witnessed
    CHANGE = 7  # of a state journal: what one step of the projection changed
    RESET = 8  # of a compacted journal: what comes before is void
    SETTLED = 9  # what is left of pruned intentions and their records
    SETTLEMENT = 10  # history below a frontier was pruned


class JournalHeader(NamedTuple):
    """Whose journal it is. `node` is zero in a state journal, which is signed by nobody."""

    store_id: bytes
    node: bytes
    kind: str

    def encode(self) -> bytes:
        assert len(self.store_id) == STORE_ID_SIZE
        assert 1 <= len(self.kind.encode()) <= KIND_MAX
        return pack(ItemKind.HEADER, HEADER.pack(FORMAT, self.store_id, self.node) + self.kind.encode())

    @classmethod
    def decode(cls, payload: bytes) -> JournalHeader:
        if not HEADER.size < len(payload) <= HEADER.size + KIND_MAX:
            raise Corrupt(f"header: {len(payload)} bytes")
        version, store_id, node = HEADER.unpack_from(payload)
        if version != FORMAT:
            raise Corrupt(f"header: format {version} is unknown, this version reads {FORMAT}")
        try:
            return cls(store_id, node, payload[HEADER.size :].decode())
        except UnicodeDecodeError:
            raise Corrupt("header: the store's type is not UTF-8") from None


class Received(NamedTuple):
    """An accepted envelope as encoded, when it came, and whether a hash link stands for its signature."""

    received_ms: int
    linked: bool
    envelope: bytes

    def encode(self) -> bytes:
        assert self.received_ms >= 0
        return pack(ItemKind.ENVELOPE, RECEIVED.pack(self.received_ms, self.linked) + self.envelope)

    @classmethod
    def decode(cls, payload: bytes) -> Received:
        if len(payload) < RECEIVED.size:
            raise Corrupt(f"envelope item: {len(payload)} bytes")
        received_ms, linked = RECEIVED.unpack_from(payload)
        if linked > 1:
            raise Corrupt(f"envelope item: flag {linked} is unknown")
        return cls(received_ms, bool(linked), payload[RECEIVED.size :])


def encode_clock(clock: HLC) -> bytes:
    """The item that keeps the node's HLC."""
    return pack(ItemKind.CLOCK, HLC_LAYOUT.pack(*clock))


def decode_clock(payload: bytes) -> HLC:
    if len(payload) != HLC_LAYOUT.size:
        raise Corrupt(f"clock item: {len(payload)} bytes")
    return HLC(*HLC_LAYOUT.unpack(payload))


def pack(kind: ItemKind, payload: bytes) -> bytes:
    """Kind, payload, checksum of both."""
    assert 0 < kind <= 0xFF
    covered = bytes((kind,)) + payload
    return covered + U64.pack(checksum(covered))


def unpack(item: bytes) -> tuple[ItemKind, bytes]:
    """Kind and payload.

    Raises:
        Corrupt: too short, a wrong checksum, an unknown kind.
    """
    if len(item) < 1 + U64.size:
        raise Corrupt(f"journal item: {len(item)} bytes")
    if checksum(item[: -U64.size]) != U64.unpack_from(item, len(item) - U64.size)[0]:
        raise Corrupt("journal item: the checksum is wrong")
    try:
        return ItemKind(item[0]), item[1 : -U64.size]
    except ValueError:
        raise Corrupt(f"journal item: kind {item[0]} is unknown") from None
