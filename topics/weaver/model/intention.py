"""An intention: one signed change, as bytes that never change again (replication 5.1).

The body is Borsh: author, HLC, store id, store_prev, condition, ops. Its BLAKE3 hash is its name, and the author signs
the hash. The author's key is inside the body, so a signature moved to another body, or a body given to another author,
is no longer valid. There is exactly one encoding of each intention: decoding refuses trailing bytes, a condition that
is not strictly ascending and a condition tag it does not know. A body is therefore kept and passed on as it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from topics.codec.primitives import U32
from topics.crypto.hashing import HASH_SIZE, blake3
from topics.crypto.keys import KEY_SIZE, KeyPair
from topics.crypto.keys import verify as verify_strict
from topics.kernel.errors import Code, Corrupt, Rejected, invalid
from topics.kernel.limits import U32_MAX, U64_MAX
from topics.weaver.model.bounds import DEFAULT, Bounds
from topics.weaver.model.hlc import HLC

STORE_ID_SIZE: Final = 16
ZERO_HASH: Final = bytes(HASH_SIZE)
ANCESTORS: Final = 0  # the one tag of a condition: a list of hashes

HEAD: Final = Struct("<32sQI16s32sBI")
assert HEAD.size == 97
OPS_HEAD: Final = U32
SMALLEST: Final = HEAD.size + OPS_HEAD.size


class Intention(NamedTuple):
    """The fields, in the order they are hashed. `condition` ascends strictly; `store_prev` is zero for the first."""

    author: bytes
    hlc: HLC
    store_id: bytes
    store_prev: bytes
    condition: tuple[bytes, ...]
    ops: bytes

    @property
    def parents(self) -> tuple[bytes, ...]:
        """What it names: the author's previous intention first, then the condition; no zero, nothing twice."""
        named = (self.store_prev, *(parent for parent in self.condition if parent != self.store_prev))
        return tuple(parent for parent in named if parent != ZERO_HASH)


def encode(
    author: bytes, hlc: HLC, store_id: bytes, store_prev: bytes, condition: Iterable[bytes], ops: bytes
) -> bytes:
    """The body. The condition may come in any order; a hash given twice counts once.

    Raises:
        Rejected: a field is of the wrong size.
    """
    parents = sorted(set(condition))
    _sized("author", author, KEY_SIZE)
    _sized("store_id", store_id, STORE_ID_SIZE)
    _sized("store_prev", store_prev, HASH_SIZE)
    for parent in parents:
        _sized("condition", parent, HASH_SIZE)
    wall, counter = hlc
    if not 0 <= wall <= U64_MAX or not 0 <= counter <= U32_MAX:
        raise invalid("hlc", f"({wall}, {counter}) is no pair of an unsigned 64-bit and 32-bit number")
    if len(ops) > U32_MAX:
        raise invalid("ops", f"{len(ops)} bytes do not fit a length of four bytes")
    head = HEAD.pack(author, wall, counter, store_id, store_prev, ANCESTORS, len(parents))
    body = b"".join((head, *parents, OPS_HEAD.pack(len(ops)), ops))
    assert len(body) == SMALLEST + HASH_SIZE * len(parents) + len(ops)
    return body


def decode(body: bytes) -> Intention:
    """The intention these bytes are, and no others.

    Raises:
        Corrupt: they are none, or spell one in another way.
    """
    size = len(body)
    if size < SMALLEST:
        raise Corrupt(f"intention: {size} bytes, the smallest has {SMALLEST}")
    author, wall, counter, store_id, store_prev, tag, count = HEAD.unpack_from(body)
    if tag != ANCESTORS:
        raise Corrupt(f"intention: condition tag {tag} is unknown")
    ops_at = HEAD.size + HASH_SIZE * count
    if ops_at + OPS_HEAD.size > size:
        raise Corrupt(f"intention: {count} condition hashes do not fit in {size} bytes")
    condition = tuple([body[at : at + HASH_SIZE] for at in range(HEAD.size, ops_at, HASH_SIZE)])
    if count > 1 and any(low >= high for low, high in pairwise(condition)):
        raise Corrupt("intention: the condition does not ascend, or names a hash twice")
    (ops_size,) = OPS_HEAD.unpack_from(body, ops_at)
    if ops_at + OPS_HEAD.size + ops_size != size:
        raise Corrupt(f"intention: {size} bytes where {ops_at + OPS_HEAD.size + ops_size} belong")
    assert len(condition) == count
    return Intention(
        author, HLC(wall, counter), store_id, store_prev, condition, body[ops_at + OPS_HEAD.size :]
    )


def hash_of(body: bytes) -> bytes:
    """The 32 bytes that name the intention."""
    return blake3(body)


def sign(key: KeyPair, body: bytes) -> bytes:
    """The author's 64-byte signature over the hash."""
    assert body[:KEY_SIZE] == key.public, "only the author signs"
    return key.sign(blake3(body))


def verify(body: bytes, signature: bytes) -> bool:
    """Whether the author in the body signed it, strictly: one key and one message a signature."""
    return len(body) >= SMALLEST and verify_strict(body[:KEY_SIZE], blake3(body), signature)


def check_limits(intention: Intention, bounds: Bounds = DEFAULT) -> None:
    """The same bounds for what is written here and for what comes from a peer.

    Raises:
        Rejected: `record_too_large` for the ops, `invalid_request` for the condition.
    """
    if len(intention.ops) > bounds.ops_bytes:
        raise Rejected(
            Code.RECORD_TOO_LARGE,
            f"ops: {len(intention.ops)} bytes are more than {bounds.ops_bytes}; split the change",
            field="ops",
        )
    if len(intention.condition) > bounds.condition_hashes:
        text = f"{len(intention.condition)} hashes are more than {bounds.condition_hashes}; cite merge nodes"
        raise invalid("condition", text)


def _sized(field: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise invalid(field, f"{len(value)} bytes where {size} belong")
