"""What a lattice is, and the plain ones: max, last-writer-wins, map, set, tuple (replication 1.1).

`join` is the least upper bound: commutative, associative, idempotent and never below an operand, so replicas that have
seen the same values agree, whatever the order, grouping or repetition. Ties are decided by the values themselves (their
canonical bytes), never by who asks. `merge_cad` is the text of the public documents, in which the first operand wins
ties; it does not converge, and only tests of conformance call it.

Values are never changed in place, and `join` gives back the very object `own` where the other one adds nothing: "is"
tells that nothing happened. What comes from outside passes `check_foreign` before it meets `join`; see `admitted`.

`laws` holds these promises as functions that a test can call on any lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from topics.codec.cell import INT_MAX, INT_MIN, Cell, digest_of, encode_cell, is_cell
from topics.crypto.hashing import HASH_SIZE

T = TypeVar("T")
V = TypeVar("V")


class Lattice(Protocol[T]):
    """How values of one kind are joined. Stateless: it may be shared."""

    def zero(self) -> T:
        """The least value: joining it changes nothing."""
        ...

    def join(self, own: T, other: T) -> T:
        """The least value above both; `own` itself if it is that."""
        ...

    def merge_cad(self, own: T, other: T) -> T:
        """The literal rule, in which `own` wins ties. For conformance only: it need not converge."""
        ...

    def check_foreign(self, value: object) -> bool:
        """Whether something from outside has the shape of a value. Never raises."""
        ...


@runtime_checkable
class Sifting(Protocol[T]):
    """A lattice that takes of a foreign value what is good and leaves the rest: a map of signed slots."""

    def sift(self, own: T, foreign: object) -> T:
        """What of the foreign value may be joined to `own`; zero if nothing. Never raises."""
        ...


def admitted(lattice: Lattice[T], own: T, foreign: object) -> T:
    """What may be joined of something that came from outside: the value, what is good of it, or zero."""
    if isinstance(lattice, Sifting):
        return cast("Sifting[T]", lattice).sift(own, foreign)
    return cast(T, foreign) if lattice.check_foreign(foreign) else lattice.zero()


def merged(lattice: Lattice[T], own: T | None, other: T | None) -> T | None:
    """The join of what both sides have; nil is the identity (replication 1.1)."""
    if own is None:
        return other
    return own if other is None else lattice.join(own, other)


def absorbed(lattice: Lattice[T], own: T | None, foreign: object) -> T:
    """The own value after something came from outside; an empty slot starts from zero."""
    base = lattice.zero() if own is None else own
    return lattice.join(base, admitted(lattice, base, foreign))


class MaxLattice:
    """The greatest whole number from 0."""

    def zero(self) -> int:
        return 0

    def join(self, own: int, other: int) -> int:
        assert own >= 0
        assert other >= 0
        return max(own, other)  # the first of two equal ones

    def merge_cad(self, own: int, other: int) -> int:
        return self.join(own, other)

    def check_foreign(self, value: object) -> bool:
        return is_stamp(value)


MapKey: TypeAlias = str | bytes | int
Register: TypeAlias = tuple[Cell, int]  # what was written, and its stamp in ms
NEVER_WRITTEN: Final[Register] = (None, 0)


class LwwLattice:
    """A register: the later stamp wins, and of two writes in one millisecond the larger canonical bytes.

    Nil has the smallest bytes, so a register that was never written, nil at 0, is below every other.
    """

    def zero(self) -> Register:
        return NEVER_WRITTEN

    def join(self, own: Register, other: Register) -> Register:
        assert own[1] >= 0
        assert other[1] >= 0
        if own is other or other[1] < own[1]:
            return own
        if other[1] > own[1]:
            return other
        return other if encode_cell(other[0]) > encode_cell(own[0]) else own

    def merge_cad(self, own: Register, other: Register) -> Register:
        return other if other[1] > own[1] else own

    def check_foreign(self, value: object) -> bool:
        if not isinstance(value, tuple) or len(value) != 2:
            return False
        return is_stamp(value[1]) and is_cell(value[0])


class MapLattice(Generic[V]):
    """Maps from text, bytes or whole numbers, joined key by key. A key that is missing is one whose value is zero.

    Keys are those that a dict keeps apart; a map by other cells is kept under their digests (replication 13).
    """

    def __init__(self, values: Lattice[V]) -> None:
        self.values: Final = values

    def zero(self) -> Mapping[MapKey, V]:
        return {}

    def join(self, own: Mapping[MapKey, V], other: Mapping[MapKey, V]) -> Mapping[MapKey, V]:
        return self._union(own, other, self.values.join)

    def merge_cad(self, own: Mapping[MapKey, V], other: Mapping[MapKey, V]) -> Mapping[MapKey, V]:
        return self._union(own, other, self.values.merge_cad)

    def check_foreign(self, value: object) -> bool:
        return isinstance(value, Mapping) and all(
            is_map_key(key) and self.values.check_foreign(part) for key, part in value.items()
        )

    def _union(
        self, own: Mapping[MapKey, V], other: Mapping[MapKey, V], merge: Callable[[V, V], V]
    ) -> Mapping[MapKey, V]:
        if own is other:
            return own
        changed: dict[MapKey, V] = {}
        for key, theirs in other.items():
            ours = own.get(key)
            value = theirs if ours is None else merge(ours, theirs)
            if value is not ours:
                changed[key] = value
        assert len(changed) <= len(other)
        return {**own, **changed} if changed else own


class SetLattice:
    """Sets of cells that only grow, each member under its digest, so that 1, 1.0 and True are three."""

    def zero(self) -> Mapping[bytes, Cell]:
        return {}

    def of(self, *members: Cell) -> Mapping[bytes, Cell]:
        """The set of these members."""
        return {digest_of(member): member for member in members}

    def join(self, own: Mapping[bytes, Cell], other: Mapping[bytes, Cell]) -> Mapping[bytes, Cell]:
        added = {digest: member for digest, member in other.items() if digest not in own}
        return {**own, **added} if added else own

    def merge_cad(self, own: Mapping[bytes, Cell], other: Mapping[bytes, Cell]) -> Mapping[bytes, Cell]:
        return self.join(own, other)

    def check_foreign(self, value: object) -> bool:
        if not isinstance(value, Mapping):
            return False
        for digest, member in value.items():
            if not isinstance(digest, bytes) or len(digest) != HASH_SIZE or not is_cell(member):
                return False
            if digest != digest_of(member):
                return False
        return True


class TupleLattice:
    """Positions, each with a lattice of its own: the product, which is a lattice because each of them is."""

    def __init__(self, *slots: Lattice[Any]) -> None:
        assert slots
        self.slots: Final = slots

    def zero(self) -> tuple[Any, ...]:
        return tuple(slot.zero() for slot in self.slots)

    def join(self, own: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        assert len(own) == len(other) == len(self.slots)
        parts = [slot.join(*pair) for slot, *pair in zip(self.slots, own, other, strict=True)]
        return own if all(map(is_, parts, own)) else tuple(parts)

    def merge_cad(self, own: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        assert len(own) == len(other) == len(self.slots)
        parts = [slot.merge_cad(*pair) for slot, *pair in zip(self.slots, own, other, strict=True)]
        return own if all(map(is_, parts, own)) else tuple(parts)

    def check_foreign(self, value: object) -> bool:
        if not isinstance(value, tuple) or len(value) != len(self.slots):
            return False
        return all(slot.check_foreign(part) for slot, part in zip(self.slots, value, strict=True))


def is_stamp(value: object) -> bool:
    """Whether the value is a time in ms, or another count from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT_MAX


def is_map_key(value: object) -> bool:
    """Whether the value may be a key of a `MapLattice`. True would be 1 to a dict, so bools are not."""
    if isinstance(value, int):
        return not isinstance(value, bool) and INT_MIN <= value <= INT_MAX
    return isinstance(value, str | bytes) and is_cell(value)
