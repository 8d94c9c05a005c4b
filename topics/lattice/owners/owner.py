"""A map from owners to their signed slots: the boundary that foreign state has to pass (replication 4).

Whoever brings a map, each entry is judged by itself: what an authorised key has signed for this owner, in this region,
is taken, and the rest is as if it had not been there. So the transport need not be trusted, and one bad entry harms
none beside it. `sift` is that judgement, and every cursor's `merge` asks it; `join` itself joins what has passed.

The owner's own writes go through a cursor at `OwnSlot`, which signs once a write, or once a `sync` of its fork.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final, Generic, TypeAlias, TypeVar

from topics.codec.cell import Cell, CellMap
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt
from topics.lattice.owners.authority import Authority, Fate, Owner, identity_of, is_owner
from topics.lattice.owners.signed import CellCodec, SignedLattice, Slot, envelopes_of
from topics.lattice.values.algebra import Lattice
from topics.lattice.values.cursor import Cursor

T = TypeVar("T")

OWNERS_MAX: Final = 100_000  # entries of one foreign map that are looked at

Slots: TypeAlias = Mapping[Owner, Slot[T]]


class OwnerLattice(Generic[T]):
    """Slots by owner, as claimed: forms of one key are different slots (replication 4.2)."""

    def __init__(
        self,
        payloads: Lattice[T],
        codec: CellCodec[T],
        *,
        region: str,
        authority: Authority,
        key: KeyPair | None = None,
    ) -> None:
        assert region, "an empty region would let envelopes of two databases be taken for one another"
        self.payloads: Final = payloads
        self.codec: Final = codec
        self.region: Final = region
        self.authority: Final = authority
        self.key: Final = key

    def slot(self, owner: Owner) -> SignedLattice[T]:
        """The lattice of one owner's slot."""
        return SignedLattice(
            self.payloads, self.codec, region=self.region, owner=owner, authority=self.authority, key=self.key
        )

    def zero(self) -> Slots[T]:
        return {}

    def join(self, own: Slots[T], other: Slots[T]) -> Slots[T]:
        if own is other:
            return own
        changed: dict[Owner, Slot[T]] = {}
        for owner, theirs in other.items():
            ours = own.get(owner)
            joined = theirs if ours is None else self.slot(owner).join(ours, theirs)
            if joined is not None and joined is not ours:
                changed[owner] = joined
        assert len(changed) <= len(other)
        return {**own, **changed} if changed else own

    def merge_cad(self, own: Slots[T], other: Slots[T]) -> Slots[T]:
        """The text, slot by slot. Raises `WrongState` where it asks for a signature that nobody here may give."""
        merged = dict(own)
        for owner, theirs in other.items():
            slot = self.slot(owner).merge_cad(own.get(owner), theirs)
            if slot is not None:
                merged[owner] = slot
        return merged

    def check_foreign(self, value: object) -> bool:
        return (
            isinstance(value, Mapping)
            and len(value) <= OWNERS_MAX
            and all(is_owner(owner) and envelopes_of(entry) is not None for owner, entry in value.items())
        )

    def sift(self, own: Slots[T], foreign: object) -> Slots[T]:
        """Of a foreign map, or its cell, what may be joined: authorised, well signed and well formed (replication 4.1).

        A slot that is the same here costs no verification; a frozen owner's changes are not looked at.
        """
        if not isinstance(foreign, Mapping) or len(foreign) > OWNERS_MAX:
            return {}
        good: dict[Owner, Slot[T]] = {}
        for owner, entry in foreign.items():
            if not is_owner(owner):
                continue
            slot = self.slot(owner).sift(own.get(owner), entry)
            if slot is not None:
                good[owner] = slot
        assert len(good) <= len(foreign)
        return good

    def to_cell(self, slots: Slots[T]) -> CellMap:
        """The map as a cell, for a peer or for storage."""
        return CellMap([(owner, slot.to_cell()) for owner, slot in slots.items()])

    def restored(self, cell: Cell) -> Slots[T]:
        """The map of a cell that this node stored; its slots were verified when they came. Raises `Corrupt`."""
        if not isinstance(cell, Mapping):
            raise Corrupt(f"owners of {self.region}: not a map")
        slots: dict[Owner, Slot[T]] = {}
        for owner, entry in cell.items():
            if not is_owner(owner):
                raise Corrupt(f"owners of {self.region}: {owner!r:.80} is no owner")
            slots[owner] = self.slot(owner).restored(entry)
        return slots

    def without(self, slots: Slots[T], owner: Owner, key: bytes) -> Slots[T]:
        """The map without what the key signed for the owner."""
        slot = slots.get(owner)
        if slot is None or slot.of_signer(key) is None:
            return slots
        left = self.slot(owner).without(slot, key)
        assert left is None or left.of_signer(key) is None
        others = {name: kept for name, kept in slots.items() if name != owner}
        return others if left is None else {**others, owner: left}


class OwnSlot(Generic[T]):
    """The step from a map of slots into one owner's payload. Writing there signs, with the lattice's key."""

    def __init__(self, lattice: OwnerLattice[T], owner: Owner) -> None:
        assert is_owner(owner), "the slot of nobody could be written and never be read by a peer"
        self._slot: Final = lattice.slot(owner)
        self._zero: Final = lattice.payloads.zero()
        self.owner: Final = owner

    @property
    def lattice(self) -> Lattice[T]:
        return self._slot.payloads

    def get(self, whole: Slots[T]) -> T:
        slot = whole.get(self.owner)
        return self._zero if slot is None else slot.value

    def put(self, whole: Slots[T], part: T) -> Slots[T]:
        return {**whole, self.owner: self._slot.sign(whole.get(self.owner), part)}


def revoke(cursor: Cursor[Slots[T]], lattice: OwnerLattice[T], owner: Owner, key: bytes, fate: Fate) -> None:
    """Take a key's authority over an owner's slot away: its envelope goes, or the slot stays and takes nothing more.

    From then on the key signs no more for this owner, whatever form it is claimed in, and what it signed under any of
    them is dropped. Dropping moves the map down, so it is refused on a fork, after that (replication 4.2, 1.4); a fork
    that was made before and has work to sync brings back what it holds, so revoke again after its sync.
    """
    lattice.authority.revoke(owner, key, fate)
    if fate is Fate.DROP:
        meant = identity_of(owner)
        cursor.shrink(
            lambda slots: reduce(
                lambda left, form: lattice.without(left, form, key),
                [form for form in slots if identity_of(form) == meant],
                slots,
            )
        )
