"""One owner's signed slot: envelopes of a payload, the newest of each signer (replication 4.1, 4.3).

An envelope is a payload in canonical bytes, a sequence number of its signer's, and the signer's signature over domain
tag, region, owner, number and payload: it fits no other region and no other owner. Most slots have one signer and so
one envelope. An account with several keys has one of each key that wrote; who reads sees the join of their payloads.

`join` keeps, for each signer, the envelope with the highest number (then the larger bytes): a map of registers, so it
is a join whatever signers do. It never signs, and it never drops an envelope because another signer's payload holds
more: a rule that drops by payload and by number at once does not associate. `maximal` is that view.

A key that may sign is used in two places only: for an owner's own write, and where a foreign envelope of the very key
(a twin, a restored backup) would replace one that holds more; then the join of both is signed under the next number.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from typing import Final, Generic, Protocol, TypeVar

import attrs

from topics.codec.cell import INT_MAX, Cell, decode_cell, encode_cell
from topics.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, KeyPair, verify
from topics.kernel.errors import Corrupt, WrongState
from topics.lattice.owners.authority import KEYS_PER_OWNER_MAX, Authority, Owner
from topics.lattice.values.algebra import Lattice

T = TypeVar("T")

DOMAIN: Final = b"topics.signed.v1\x00"
SIGNERS_MAX: Final = 4 * KEYS_PER_OWNER_MAX  # of one slot: who may sign now, and who did before


class CellCodec(Protocol[T]):
    """How payloads become cells, and cells from outside payloads."""

    def to_cell(self, value: T) -> Cell:
        """The payload as a cell."""
        ...

    def from_cell(self, cell: Cell) -> T:
        """The payload of a cell. Raises `Corrupt` if it is none."""
        ...


@attrs.frozen
class SlotEnvelope:
    """What one signer said."""

    signer: bytes
    seq: int
    payload: bytes
    signature: bytes

    def rank(self) -> tuple[int, bytes, bytes]:
        """Of two envelopes of one signer the one with the higher rank stays."""
        return self.seq, self.payload, self.signature

    def to_cell(self) -> Cell:
        return self.signer, self.seq, self.payload, self.signature


@attrs.frozen
class Slot(Generic[T]):
    """Envelopes by signer, one each, and what they say. Two slots are equal if their envelopes are."""

    envelopes: tuple[SlotEnvelope, ...]
    values: tuple[T, ...] = attrs.field(eq=False, repr=False)  # payloads of the envelopes
    value: T = attrs.field(eq=False, repr=False)  # their join, which is what a reader sees

    def __attrs_post_init__(self) -> None:
        assert len(self.envelopes) == len(self.values) >= 1
        assert all(a.signer < b.signer for a, b in pairwise(self.envelopes))

    def of_signer(self, signer: bytes) -> SlotEnvelope | None:
        """The signer's envelope, if it has one here."""
        return next((envelope for envelope in self.envelopes if envelope.signer == signer), None)

    def to_cell(self) -> Cell:
        return tuple(envelope.to_cell() for envelope in self.envelopes)


def signed_bytes(*, region: str, owner: Owner, seq: int, payload: bytes) -> bytes:
    """What a signature is made over. A cell tells its own end, so no two cases give the same bytes."""
    assert seq >= 1
    return DOMAIN + encode_cell((region, owner, seq)) + payload


def envelopes_of(value: object) -> tuple[SlotEnvelope, ...] | None:
    """The envelopes of something from outside (a slot or its cell), sorted by signer; None if it is no slot."""
    if isinstance(value, Slot):
        return value.envelopes
    if not isinstance(value, tuple) or not 1 <= len(value) <= SIGNERS_MAX:
        return None
    found = [_envelope_of(part) for part in value]
    envelopes = tuple(envelope for envelope in found if envelope is not None)
    if len(envelopes) != len(found):
        return None
    signers = [envelope.signer for envelope in envelopes]
    return envelopes if all(a < b for a, b in pairwise(signers)) else None


def _envelope_of(part: object) -> SlotEnvelope | None:
    if not isinstance(part, tuple) or len(part) != 4:
        return None
    signer, seq, payload, signature = part
    if not (isinstance(signer, bytes) and isinstance(payload, bytes) and isinstance(signature, bytes)):
        return None
    if len(signer) != KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return None
    if not isinstance(seq, int) or isinstance(seq, bool) or not 1 <= seq <= INT_MAX:
        return None
    return SlotEnvelope(signer, seq, payload, signature)


class SignedLattice(Generic[T]):
    """The slot of one owner in one region; None is a slot that nobody has written."""

    def __init__(
        self,
        payloads: Lattice[T],
        codec: CellCodec[T],
        *,
        region: str,
        owner: Owner,
        authority: Authority,
        key: KeyPair | None = None,
    ) -> None:
        self.payloads: Final = payloads
        self.codec: Final = codec
        self.region: Final = region
        self.owner: Final = owner
        self._authority: Final = authority
        self._key: Final = key

    def zero(self) -> Slot[T] | None:
        return None

    def join(self, own: Slot[T] | None, other: Slot[T] | None) -> Slot[T] | None:
        if own is None or other is None:
            return own if other is None else other
        kept = {envelope.signer: (envelope, value) for envelope, value in _pairs(own)}
        changed = False
        for envelope, value in _pairs(other):
            ours = kept.get(envelope.signer)
            if ours is None or envelope.rank() > ours[0].rank():
                kept[envelope.signer] = (envelope, value)
                changed = True
        assert len(kept) >= len(own.envelopes)
        return self._slot(kept.values()) if changed else own

    def merge_cad(self, own: Slot[T] | None, other: Slot[T] | None) -> Slot[T] | None:
        """The text: nil takes the other side after both checks, equal payloads keep own, a join that equals one side is
        that side, and any other join is signed. Raises `WrongState` if the key at hand may not sign it.
        """
        if other is None:
            return own
        if own is None:
            return self.sift(None, other)
        joined = self.payloads.merge_cad(own.value, other.value)
        for side in (own, other):
            if self._canon(joined) == self._canon(side.value):
                return side
        return self.sign(own, joined)

    def check_foreign(self, value: object) -> bool:
        return value is None or envelopes_of(value) is not None

    def sift(self, own: Slot[T] | None, foreign: object) -> Slot[T] | None:
        """Of the foreign envelopes those whose signer may sign for the owner and has signed just this; nil if there
        is none (replication 4.1). An envelope that is already here was verified when it came; one older than its
        signer's here is not looked at, for it would change nothing.

        An owner that changes its keys without end gets no further than `SIGNERS_MAX` of them: a slot beyond that could
        neither be sent nor be read again.
        """
        envelopes = envelopes_of(foreign) or ()
        known = {} if own is None else dict(_pairs(own))
        here = {envelope.signer: envelope for envelope in known}
        signers = set(here)
        good: list[tuple[SlotEnvelope, T]] = []
        for envelope in envelopes:
            if envelope in known:
                good.append((envelope, known[envelope]))
                continue
            ours = here.get(envelope.signer)
            if ours is not None and envelope.rank() < ours.rank():
                continue
            if (envelope.signer in signers or len(signers) < SIGNERS_MAX) and self._is_authentic(envelope):
                good += self._decoded(envelope)
                signers.add(envelope.signer)
        return self._rescued(own, self._slot(good)) if good else None

    def restored(self, cell: Cell) -> Slot[T]:
        """The slot of a cell that this node wrote. Raises `Corrupt`."""
        pairs = [pair for envelope in envelopes_of(cell) or () for pair in self._decoded(envelope)]
        if not isinstance(cell, tuple) or len(pairs) != len(cell) or not pairs:
            raise Corrupt(f"slot of {self.owner!r} in {self.region}: not a slot of envelopes")
        return self._slot(pairs)

    def read(self, slot: Slot[T] | None) -> T:
        """What the slot says; zero if nobody has written."""
        return self.payloads.zero() if slot is None else slot.value

    def maximal(self, slot: Slot[T]) -> tuple[SlotEnvelope, ...]:
        """The envelopes whose payload no other one's holds: the antichain. Of equal payloads the first signer's."""
        return tuple(
            envelope
            for at, (envelope, value) in enumerate(_pairs(slot))
            if not any(
                self._hides(other, value, first=i < at) for i, other in enumerate(slot.values) if i != at
            )
        )

    def sign(self, slot: Slot[T] | None, value: T, *, seq_least: int = 1) -> Slot[T]:
        """The slot after this key has written the value. Raises `WrongState` without a key that may.

        `seq_least`: for who may have signed before, in a life whose slot is not at hand.
        """
        if self._key is None:
            raise WrongState(
                f"slot of {self.owner!r}: there is no key to sign with; open it with the owner's key"
            )
        if not self._authority.allows(self.owner, self._key.public):
            raise WrongState(
                f"slot of {self.owner!r}: key {self._key.public.hex()} may not sign for this owner"
            )
        before = None if slot is None else slot.of_signer(self._key.public)
        seq = seq_least if before is None else max(before.seq + 1, seq_least)
        if seq > INT_MAX:
            raise WrongState(
                f"slot of {self.owner!r}: the signer has used its last number; write with another key"
            )
        payload = self._canon(value)
        message = signed_bytes(region=self.region, owner=self.owner, seq=seq, payload=payload)
        assert before is None or before.seq < seq
        made = SlotEnvelope(self._key.public, seq, payload, self._key.sign(message))
        others = [] if slot is None else [pair for pair in _pairs(slot) if pair[0].signer != made.signer]
        return self._slot([(made, value), *others], written=value)

    def without(self, slot: Slot[T], signer: bytes) -> Slot[T] | None:
        """The slot without the signer's envelope; nil if that was all."""
        left = [pair for pair in _pairs(slot) if pair[0].signer != signer]
        assert len(left) >= len(slot.envelopes) - 1
        return self._slot(left) if left else None

    # --- what is trusted

    def _is_authentic(self, envelope: SlotEnvelope) -> bool:
        if not self._authority.allows(self.owner, envelope.signer):
            return False
        message = signed_bytes(
            region=self.region, owner=self.owner, seq=envelope.seq, payload=envelope.payload
        )
        return verify(envelope.signer, message, envelope.signature)

    def _decoded(self, envelope: SlotEnvelope) -> list[tuple[SlotEnvelope, T]]:
        """The envelope with its payload; nothing if the bytes are no payload."""
        try:
            value = self.codec.from_cell(decode_cell(envelope.payload))
        except Corrupt:
            return []
        return [(envelope, value)] if self.payloads.check_foreign(value) else []

    def _rescued(self, own: Slot[T] | None, foreign: Slot[T]) -> Slot[T]:
        """The foreign slot; signed anew, with what is here, where joining it would lose that."""
        if own is None or self._key is None or own.of_signer(self._key.public) is None:
            return foreign
        after = self.join(own, foreign)
        assert after is not None
        assert after.of_signer(self._key.public) is not None
        whole = self.payloads.join(after.value, own.value)
        if whole is after.value or not self._may_follow(after, self._key.public):
            return foreign
        return self.sign(after, whole)

    def _may_follow(self, slot: Slot[T], key: bytes) -> bool:
        """Whether the key may sign for the owner still, and has a number left."""
        last = slot.of_signer(key)
        assert last is not None
        return last.seq < INT_MAX and self._authority.allows(self.owner, key)

    # --- making slots

    def _slot(self, pairs: Iterable[tuple[SlotEnvelope, T]], *, written: T | None = None) -> Slot[T]:
        """The slot of these. What was `written` just now is its very value, unless the others hold more."""
        ordered = sorted(pairs, key=lambda pair: pair[0].signer)
        values = tuple(value for _, value in ordered)
        value = reduce(self.payloads.join, values if written is None else (written, *values))
        return Slot(tuple(envelope for envelope, _ in ordered), values, value)

    def _canon(self, value: T) -> bytes:
        return encode_cell(self.codec.to_cell(value))

    def _hides(self, other: T, value: T, *, first: bool) -> bool:
        """Whether another payload holds all of this one; of two equal ones the `first` hides the second."""
        if self.payloads.join(other, value) is not other:
            return False
        return first or self.payloads.join(value, other) is not value


def _pairs(slot: Slot[T]) -> Iterable[tuple[SlotEnvelope, T]]:
    return zip(slot.envelopes, slot.values, strict=True)
