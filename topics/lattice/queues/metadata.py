"""What a queue or topic says of itself: a map with a hidden stamp a key (replication 2.5).

The seed joins by union and lets the local side win, which does not converge; one stamp for the whole state does not
either, because a third state can carry the stamp without the key (replication 8.2). So each key has the time at which
it was set: the later one stays, at one time the larger canonical value. Whoever sets a key locally does so later than
everything seen, so the local edit wins as the seed demands. A key is never taken out: it is set to nil.

Stamps travel in a slot of their own that plain peers ignore; a missing one is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from topics.codec.cell import Cell, CellMap, decode_cell, encode_cell
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import KIB
from topics.lattice.queues.record import encode_field, is_whole

METADATA_KEYS_MAX: Final = 1024
METADATA_ENTRY_BYTES_MAX: Final = 64 * KIB


class Stamped(NamedTuple):
    """One key, what it was set to, and when."""

    key: Cell
    value: Cell
    stamp: int

    def precedes(self, other: Stamped) -> bool:
        """Whether the other one is to stay."""
        assert min(self.stamp, other.stamp) >= 0
        if self.stamp != other.stamp:
            return self.stamp < other.stamp
        return encode_cell(self.value) < encode_cell(other.value)


class Metadata:
    """Immutable map of cells, found by the canonical bytes of its keys."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[bytes, Stamped]) -> None:
        self._entries: Final = entries

    @classmethod
    def from_cells(cls, values: Mapping[Cell, Cell], stamps: Mapping[Cell, Cell]) -> Metadata:
        """Values with the stamps that came beside them; what is no stamp counts as a missing one."""
        times = {encode_cell(key): time for key, time in stamps.items() if is_whole(time) and time > 0}
        entries = {}
        for key, value in values.items():
            encoded = encode_cell(key)
            entries[encoded] = Stamped(key, value, times.get(encoded, 0))
        assert len(entries) == len(values)
        return cls(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Stamped]:
        """Every key that was ever set, in the order of their bytes."""
        return iter([self._entries[key] for key in sorted(self._entries)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metadata):
            return NotImplemented
        return self is other or (self.values(), self.stamps()) == (other.values(), other.stamps())

    def __hash__(self) -> int:
        return len(self._entries)

    def get(self, key: Cell) -> Cell:
        """The value, None if it was never set or set to None."""
        found = self._entries.get(encode_field("key", key))
        return None if found is None else found.value

    @property
    def newest_stamp(self) -> int:
        return max((entry.stamp for entry in self._entries.values()), default=0)

    def put(self, key: Cell, value: Cell, stamp: int) -> Metadata:
        """The map with the key set. The stamp is later than all there are.

        Raises:
            Rejected: what is no cell, an entry beyond `METADATA_ENTRY_BYTES_MAX`, a new key beyond `METADATA_KEYS_MAX`.
        """
        assert stamp > self.newest_stamp
        encoded, value_bytes = encode_field("key", key), encode_field("value", value)
        encode_field(
            "key", CellMap([(key, None)])
        )  # which refuses what holds a map, as the state's cells would
        size = len(encoded) + len(value_bytes)
        if size > METADATA_ENTRY_BYTES_MAX:
            raise Rejected(
                Code.RECORD_TOO_LARGE,
                f"value: {size} bytes with its key, at most {METADATA_ENTRY_BYTES_MAX} of metadata; offer a record",
                field="value",
            )
        if encoded not in self._entries and len(self._entries) >= METADATA_KEYS_MAX:
            raise Rejected(
                Code.PAYLOAD_TOO_LARGE,
                f"key: {METADATA_KEYS_MAX} keys are set, the most there may be; set one of those instead",
                field="key",
            )
        entry = Stamped(decode_cell(encoded), decode_cell(value_bytes), stamp)
        after = Metadata({**self._entries, encoded: entry})
        assert after.newest_stamp == stamp
        return after

    def join(self, other: Metadata) -> Metadata:
        """Key by key the later, or at one time the larger. Self if nothing changes."""
        if self is other:
            return self
        changed = {
            key: theirs
            for key, theirs in other._entries.items()
            if (mine := self._entries.get(key)) is None or mine.precedes(theirs)
        }
        if not changed:
            return self
        joined = Metadata({**self._entries, **changed})
        assert joined.newest_stamp == max(self.newest_stamp, other.newest_stamp)
        assert len(joined) >= max(len(self), len(other))
        return joined

    def merge_cad(self, other: Metadata) -> Metadata:
        """The seed's rule, for conformance only: the union, own values win."""
        changed = {key: theirs for key, theirs in other._entries.items() if key not in self._entries}
        return Metadata({**self._entries, **changed}) if changed else self

    def values(self) -> CellMap:
        values = CellMap([(entry.key, entry.value) for entry in self._entries.values()])
        assert len(values) == len(self)
        return values

    def stamps(self) -> CellMap:
        """The stamps that are not 0."""
        return CellMap([(entry.key, entry.stamp) for entry in self._entries.values() if entry.stamp])


EMPTY: Final = Metadata({})
