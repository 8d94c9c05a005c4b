"""What travels and what is stored: the body of an intention and its author's signature, as 64 + n bytes.

The body stays as it came, so its hash is the same everywhere. `accept` is the one gate (replication 5.2): signature,
store, limits. Who may be a peer is decided elsewhere.

Transitive trust (replication 5.7): the last of a chain names the one before by hash, and so on down, so who trusts its
signature need not check the others'. It reaches the same author only: a condition says that an intention exists, not
that it is true. A hash does not cover the signature beside it: who takes a segment this way keeps signatures it has not
looked at, and may hand on one that its peers refuse. That is why it is not the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from topics.crypto.hashing import blake3
from topics.crypto.keys import SIGNATURE_SIZE, KeyPair
from topics.crypto.keys import verify as verify_strict
from topics.kernel.errors import Corrupt, invalid
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.intention import SMALLEST, Intention, check_limits, decode, sign


class Envelope(NamedTuple):
    """Body and signature; compared by value."""

    body: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Signature, then body."""
        assert len(self.signature) == SIGNATURE_SIZE
        return self.signature + self.body

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Cut apart. Whether the body is an intention is `intention.decode`'s to say.

        Raises:
            Corrupt: too short for both.
        """
        if len(data) < SIGNATURE_SIZE + SMALLEST:
            raise Corrupt(
                f"envelope: {len(data)} bytes, a signature and an intention need {SIGNATURE_SIZE + SMALLEST}"
            )
        envelope = cls(data[SIGNATURE_SIZE:], data[:SIGNATURE_SIZE])
        assert len(envelope.signature) == SIGNATURE_SIZE
        return envelope

    @classmethod
    def sealed(cls, key: KeyPair, body: bytes) -> Envelope:
        """The body with its author's signature."""
        return cls(body, sign(key, body))


NO_ENVELOPE: Final = Envelope(b"", b"")  # of what was pruned


class Accepted(NamedTuple):
    """An envelope that passed the gate, its hash and its fields. `linked`: trusted by hash links (replication 5.7),
    its own signature was not looked at.
    """

    hash: bytes
    intention: Intention
    envelope: Envelope
    linked: bool = False


def accept(envelope: Envelope, store_id: bytes, bounds: Bounds, *, linked: bool = False) -> Accepted:
    """Let the envelope in, or say why not. `linked`: a hash link stands for the signature.

    Raises:
        Corrupt: the body is no intention.
        Rejected: another store's, too large, or not signed by its author.
    """
    intention = decode(envelope.body)
    if intention.store_id != store_id:
        raise invalid("store_id", f"{intention.store_id.hex()} is another store, this is {store_id.hex()}")
    check_limits(intention, bounds)
    if len(envelope.signature) != SIGNATURE_SIZE:
        raise invalid("signature", f"{len(envelope.signature)} bytes where {SIGNATURE_SIZE} belong")
    name = blake3(envelope.body)
    if not linked and not verify_strict(intention.author, name, envelope.signature):
        raise invalid("signature", f"not that of author {intention.author.hex()} over {name.hex()}")
    assert intention.author == envelope.body[: len(intention.author)]
    assert len(intention.ops) <= bounds.ops_bytes
    return Accepted(name, intention, envelope, linked)


def accept_segment(segment: Sequence[Envelope], store_id: bytes, bounds: Bounds) -> list[Accepted]:
    """A chain of one author, oldest first: only the last signature is verified.

    Raises:
        Corrupt, Rejected: any link is broken or any item unacceptable. Nothing of the segment may be used.
    """
    accepted = [
        accept(envelope, store_id, bounds, linked=at < len(segment) - 1)
        for at, envelope in enumerate(segment)
    ]
    for before, after in pairwise(accepted):
        if after.intention.store_prev != before.hash:
            raise invalid(
                "segment", f"{after.hash.hex()} does not follow {before.hash.hex()}: the chain is broken"
            )
        if after.intention.author != before.intention.author:
            raise invalid(
                "segment", f"{after.hash.hex()} is another author's; trust does not reach over authors"
            )
    assert all(item.linked for item in accepted[:-1])
    assert not accepted or not accepted[-1].linked
    return accepted
