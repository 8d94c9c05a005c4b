"""The witness log: the order in which this node came to know intentions (replication 5.3).

A record says which intention, when, and what came before: its `prev` is the hash of the previous record's content, zero
for the first. The node signs the hash of the content. So the hash of the last record stands for the whole log, and its
signature for everything before it. The order respects causality and is otherwise this node's own: no state depends on
it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from topics.crypto.hashing import blake3
from topics.crypto.keys import SIGNATURE_SIZE, KeyPair, verify_plain
from topics.kernel.errors import Corrupt
from topics.weaver.model.intention import ZERO_HASH

CONTENT: Final = Struct("<16s32sQ32s")
assert CONTENT.size == 88
WITNESS_SIZE: Final = CONTENT.size + SIGNATURE_SIZE
NO_SIGNATURE: Final = bytes(SIGNATURE_SIZE)  # of a settled record: a settlement's signature covers it


class Witness(NamedTuple):
    """One record. `wall_ms` is the node's system time, any unsigned 64-bit number."""

    store_id: bytes
    intention: bytes
    wall_ms: int
    prev: bytes
    signature: bytes

    @property
    def content(self) -> bytes:
        """The 88 bytes that are hashed."""
        return CONTENT.pack(self.store_id, self.intention, self.wall_ms, self.prev)

    @property
    def hash(self) -> bytes:
        """What the next record names as its `prev`."""
        return blake3(self.content)

    def encode(self) -> bytes:
        """Content, then signature."""
        assert len(self.signature) == SIGNATURE_SIZE
        return self.content + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Witness:
        """Raises `Corrupt` for bytes of another size; whether it belongs to a chain is `follows`'s to say."""
        if len(data) != WITNESS_SIZE:
            raise Corrupt(f"witness record: {len(data)} bytes where {WITNESS_SIZE} belong")
        store_id, intention, wall_ms, prev = CONTENT.unpack_from(data)
        return cls(store_id, intention, wall_ms, prev, data[CONTENT.size :])

    def is_signed_by(self, node: bytes) -> bool:
        """Whether the node with this public key signed it. Plain verification: a second spelling of a signature changes
        neither the content nor the chain.
        """
        return verify_plain(node, self.hash, self.signature)

    def follows(self, prev: bytes, store_id: bytes) -> bool:
        """Whether it is of this store and comes right after the record whose hash is `prev`."""
        return self.prev == prev and self.store_id == store_id


def witness(node: KeyPair, store_id: bytes, intention: bytes, *, wall_ms: int, prev: bytes) -> Witness:
    """The record that the node signs."""
    content = CONTENT.pack(store_id, intention, wall_ms, prev)
    return Witness(store_id, intention, wall_ms, prev, node.sign(blake3(content)))


class WitnessLog:
    """The records, as they are stored, by number from 1 and by the hash of their content."""

    __slots__ = ("_hashes", "_records", "last_hash", "store_id")

    def __init__(self, store_id: bytes) -> None:
        self.store_id: Final = store_id
        self.last_hash = ZERO_HASH
        self._records: list[bytes] = []
        self._hashes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Witness) -> None:
        """Extend the chain.

        Raises:
            Corrupt: the record does not follow.
        """
        if not record.follows(self.last_hash, self.store_id):
            text = f"witness record {len(self) + 1} does not follow the one before it: the chain is broken"
            raise Corrupt(text, seq=len(self) + 1)
        self._records.append(record.encode())
        self.last_hash = record.hash
        assert self.last_hash not in self._hashes
        self._hashes[self.last_hash] = len(self._records)

    def record(self, seq: int) -> Witness:
        assert 1 <= seq <= len(self)
        return Witness.decode(self._records[seq - 1])

    def since(self, seq: int, limit: int) -> list[Witness]:
        """Up to `limit` records from number `seq` (0 is 1) on."""
        assert limit >= 0
        start = max(seq, 1) - 1
        return [Witness.decode(data) for data in self._records[start : start + limit]]

    def hash_at(self, seq: int) -> bytes:
        """The content hash of record `seq`, zero for 0: what the next one names, and what a cursor holds."""
        assert 0 <= seq <= len(self)
        if seq == len(self):
            return self.last_hash
        return self.record(seq + 1).prev

    def seq_of(self, content_hash: bytes) -> int | None:
        """The number of the record with that content hash; 0 for zero, None if there is none."""
        return 0 if content_hash == ZERO_HASH else self._hashes.get(content_hash)
