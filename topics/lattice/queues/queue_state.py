"""The state of one replicated queue, and how two states join (replication 2.1 to 2.5).

Positions 0 to 3 are the seed's: entries, metadata, timestamp, start offset. Position 4 carries the stamps of metadata,
position 5 the newest lease; both are left out while empty, and a plain peer ignores them. What stands behind is not
known here, so it cannot be joined, and is not kept.

An honest state is the interval [start, end) of one endless log, and the join of two is (max start, max end): truncation
always wins on the low side, and length decides the high side only. A laggard whose end is below the other's start jumps
there, so `entries` never has a hole.

Two rules stand side by side. `merge_cad` is the seed's text, in which the first operand wins a tie: kept for
conformance, never called by replication. `join` decides ties by value: the longer end, and at equal ends the records
from the last one backwards, the larger digest winning. Truncation takes records away at the front only, so it never
takes away the record that decides, and the join associates (replication 8.1).

Mutators are functions of a state and of the time, and only ever move it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from topics.codec.cell import INT_MAX, VALUE_DEPTH_MAX, Cell, CellMap, encode_cell
from topics.kernel.errors import Rejected, invalid
from topics.lattice.queues import fence
from topics.lattice.queues.entries import Entries
from topics.lattice.queues.fence import OPEN, Lease, lease_from_cell
from topics.lattice.queues.metadata import EMPTY, Metadata
from topics.lattice.queues.record import QueueRecord, is_record, is_whole
from topics.lattice.values.stamps import next_stamp

OFFSET_MAX: Final = INT_MAX
STATE_SLOTS: Final = 4
STATE_SLOTS_MAX: Final = 64
QUEUE_DEPTH_MAX: Final = VALUE_DEPTH_MAX + 3  # a value in a record in the entries of a state
_ENTRIES, _METADATA, _TIMESTAMP, _START, _STAMPS, _LEASE = range(6)

Parts: TypeAlias = "tuple[Entries, Metadata, int, Lease]"


@attrs.frozen(eq=False, repr=False)
class LatticeQueueState:
    """One queue at one moment. Two states are equal iff their bytes are."""

    entries: Entries = attrs.field(factory=Entries.empty)
    metadata: Metadata = EMPTY
    timestamp: int = 0
    lease: Lease = OPEN

    def __attrs_post_init__(self) -> None:
        assert self.timestamp >= 0
        assert self.stop <= OFFSET_MAX

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatticeQueueState):
            return NotImplemented
        return self is other or (
            (self.start, self.stop, self.timestamp, self.lease)
            == (other.start, other.stop, other.timestamp, other.lease)
            and self.metadata == other.metadata
            and self.entries.last_difference(other.entries) is None
        )

    def __hash__(self) -> int:
        return self.stop

    def __repr__(self) -> str:
        return f"LatticeQueueState([{self.start}, {self.stop}), timestamp={self.timestamp}, epoch={self.lease.epoch})"

    @property
    def start(self) -> int:
        return self.entries.start

    @property
    def stop(self) -> int:
        return self.entries.stop

    @property
    def newest_stamp(self) -> int:
        """The latest time in it, for the deferral of what comes from the future (replication 1.3)."""
        return max(self.timestamp, self.metadata.newest_stamp, self.lease.granted_ms)

    def has_appended_to(self, older: LatticeQueueState) -> bool:
        """Whether there are records behind the end of an older state. A truncation past its end brings none."""
        return self.stop > max(self.start, older.stop)

    def stamp(self, now_ms: int) -> int:
        """The time of an append or a truncation: the state's own never steps back.

        Records of one millisecond share it, unlike other stamps: offsets order them already, and a stamp a record would
        run away from the clock at a thousand records a second, until peers took it for the future.
        """
        return max(now_ms, self.timestamp)

    # --- moving up

    def append(self, records: Sequence[QueueRecord], timestamp: int) -> LatticeQueueState:
        """The state with these records behind the last."""
        assert timestamp >= self.timestamp
        if self.stop + len(records) > OFFSET_MAX:
            raise invalid("offer", f"offsets end at {OFFSET_MAX}; go on in another partition")
        after = attrs.evolve(self, entries=self.entries.extend(records), timestamp=timestamp)
        assert after.stop == self.stop + len(records)
        assert after.start == self.start
        return after

    def truncate(self, start: int, now_ms: int) -> tuple[LatticeQueueState, int]:
        """The state from `start` on, and how many records went. At or below its start nothing changes."""
        if isinstance(start, bool) or not isinstance(start, int):
            raise invalid("start", f"must be a whole number, not {type(start).__name__}")
        if start > OFFSET_MAX:
            raise invalid("start", f"must be at most {OFFSET_MAX}, the last offset there is")
        if start <= self.start:
            return self, 0
        dropped = min(start - self.start, len(self.entries))
        entries = self.entries.truncate(start)
        assert entries.start == start
        assert len(entries) + dropped == len(self.entries)
        return attrs.evolve(self, entries=entries, timestamp=self.stamp(now_ms)), dropped

    def put_meta(self, key: Cell, value: Cell, now_ms: int) -> LatticeQueueState:
        """The state with a key of metadata set, later than everything in it."""
        stamp = next_stamp(now_ms, self.newest_stamp)
        after = attrs.evolve(self, metadata=self.metadata.put(key, value, stamp), timestamp=stamp)
        assert after.newest_stamp == stamp  # so the local edit wins over all that was seen
        return after

    def acquire(self, holder: str, *, ttl_ms: int, now_ms: int) -> LatticeQueueState:
        """The state led by `holder`; raises `NotLeader` while somebody else leads."""
        lease = fence.acquire(self.lease, holder, ttl_ms=ttl_ms, now_ms=now_ms)
        assert self.lease.join(lease) == lease  # leading moves up, too
        return self if lease == self.lease else attrs.evolve(self, lease=lease)

    # --- joining

    def join(self, other: LatticeQueueState) -> LatticeQueueState:
        """The least state above both. Self if nothing changes."""
        if self is other:
            return self
        parts = (
            _join_entries(self.entries, other.entries),
            self.metadata.join(other.metadata),
            max(self.timestamp, other.timestamp),
            self.lease.join(other.lease),
        )
        joined = self._with(parts, other)
        assert joined.start == max(self.start, other.start)
        assert joined.stop == max(self.stop, other.stop)
        return joined

    def merge_cad(self, other: LatticeQueueState) -> LatticeQueueState:
        """The seed's text, with self as first operand. For conformance only: it does not commute."""
        if self is other:
            return self
        start = max(self.start, other.start)
        own, theirs = self.entries.truncate(start), other.entries.truncate(start)
        assert own.start == theirs.start == start
        parts = (
            theirs if len(theirs) > len(own) else own,
            self.metadata.merge_cad(other.metadata),
            max(self.timestamp, other.timestamp),
            self.lease,
        )
        return self._with(parts, other)

    def _with(self, parts: Parts, other: LatticeQueueState) -> LatticeQueueState:
        """One of the two sides if the parts are its own, else a new state."""
        for side in (self, other):
            small = (side.metadata, side.timestamp, side.lease)
            if parts[0] is side.entries and parts[1:] == small:
                return side
        return LatticeQueueState(*parts)

    # --- as cells

    def to_cell(self) -> tuple[Cell, ...]:
        """The positional form, as short as it may be."""
        records = tuple(record.cells for record in self.entries.between(self.start, self.stop))
        assert len(records) == len(self.entries)
        plain = (records, self.metadata.values(), self.timestamp, self.start)
        stamps = self.metadata.stamps()
        if self.lease.epoch:
            return (*plain, stamps, self.lease.to_cell())
        return (*plain, stamps) if stamps else plain


ZERO: Final = LatticeQueueState()


def _join_entries(own: Entries, other: Entries) -> Entries:
    start = max(own.start, other.start)
    if own.stop != other.stop:
        return (own if own.stop > other.stop else other).truncate(start)
    differs = own.last_difference(other)
    if differs is None:
        return own if own.start == start else other
    mine, theirs = own.at(differs), other.at(differs)
    assert mine is not None
    assert theirs is not None
    assert mine.digest != theirs.digest
    return (own if mine.digest > theirs.digest else other).truncate(start)


def is_queue(cell: object) -> bool:
    """`check_foreign`: whether something from outside may be adopted as a queue. Never raises."""
    if not _has_form(cell):
        return False
    try:
        encode_cell(cell, depth_max=QUEUE_DEPTH_MAX)  # type: ignore[arg-type]  # whether it is a cell is the question
    except Rejected:
        return False
    return True


def _has_form(cell: object) -> bool:
    return (
        isinstance(cell, tuple)
        and STATE_SLOTS <= len(cell) <= STATE_SLOTS_MAX
        and isinstance(cell[_ENTRIES], tuple)
        and isinstance(cell[_METADATA], Mapping)
        and is_whole(cell[_TIMESTAMP])
        and cell[_TIMESTAMP] >= 0  # below zero, the identity, nothing can be
        and is_whole(cell[_START])
        and 0 <= cell[_START] <= OFFSET_MAX - len(cell[_ENTRIES])
        and all(is_record(entry) for entry in cell[_ENTRIES])
    )


def queue_from_cell(cell: Cell) -> LatticeQueueState:
    """The state a peer sent, zero if it is none (replication 1.1)."""
    if not isinstance(cell, tuple) or not is_queue(cell):
        return ZERO
    entries, metadata, timestamp, start = cell[:STATE_SLOTS]
    assert isinstance(entries, tuple)
    assert isinstance(metadata, Mapping)
    assert is_whole(timestamp)
    assert is_whole(start)
    stamps = cell[_STAMPS] if len(cell) > _STAMPS else None
    return LatticeQueueState(
        entries=Entries.empty(start).extend([QueueRecord(entry) for entry in entries if is_record(entry)]),
        metadata=Metadata.from_cells(metadata, stamps if isinstance(stamps, Mapping) else CellMap()),
        timestamp=timestamp,
        lease=lease_from_cell(cell[_LEASE] if len(cell) > _LEASE else None),
    )


class QueueLattice:
    """Queues as a `Lattice`. What comes from outside may be a state, or the cells of one."""

    def zero(self) -> LatticeQueueState:
        return ZERO

    def join(self, own: LatticeQueueState, other: LatticeQueueState) -> LatticeQueueState:
        return own.join(other)

    def merge_cad(self, own: LatticeQueueState, other: LatticeQueueState) -> LatticeQueueState:
        return own.merge_cad(other)

    def check_foreign(self, value: object) -> bool:
        return isinstance(value, LatticeQueueState) or is_queue(value)

    def sift(self, own: LatticeQueueState, foreign: object) -> LatticeQueueState:  # noqa: ARG002  # a queue is good or not
        """The foreign queue, zero if it is none."""
        if isinstance(foreign, LatticeQueueState):
            return foreign
        return queue_from_cell(foreign) if isinstance(foreign, tuple) else ZERO


QUEUES: Final = QueueLattice()
