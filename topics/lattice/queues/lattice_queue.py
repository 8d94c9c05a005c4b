"""A replicated queue as its users see it (replication 2.2; the seed's Lattice Queue).

Records are appended at the end, keep their absolute offset for ever, and stay until they are truncated. The queue
holds no consumer's position. It is a handle on a cursor: standing alone, as a fork of another one, or as a partition
inside a topic. The state itself is a value; see `topics.lattice.queues.queue_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, overload

from topics.codec.cell import Cell
from topics.kernel.errors import invalid
from topics.kernel.ports import Clock
from topics.lattice.queues.divergence import Divergence, find_divergence
from topics.lattice.queues.editor import Editor, Place
from topics.lattice.queues.fence import Lease, admit, refuse_stale
from topics.lattice.queues.handle import Handle
from topics.lattice.queues.queue_state import QUEUES, LatticeQueueState
from topics.lattice.queues.record import QueueRecord, make_record
from topics.lattice.values.cursor import Cursor, Mutex, Root

OFFER_ROWS_MAX: Final = 10_000

Offsets: TypeAlias = range
Row: TypeAlias = tuple[Cell, Cell, Cell]  # key, value, headers
ROW_SIZE: Final = 3


class LatticeQueue(Handle[LatticeQueueState]):
    """One queue. Raises `Rejected` for what cannot be stored, `NotLeader` where somebody else may append."""

    def __init__(
        self,
        cursor: Cursor[LatticeQueueState] | None = None,
        *,
        clock: Clock | None = None,
        editor: Editor | None = None,
        topic: str = "",
        partition: int = 0,
        place: Place | None = None,
    ) -> None:
        assert clock is None or editor is None, "the editor has a clock"
        super().__init__(
            Root(QUEUES) if cursor is None else cursor,
            QUEUES,
            editor=Editor(clock) if editor is None else editor,
            place=(topic, partition) if place is None else place,
        )
        assert partition >= 0
        self.topic: Final = topic
        self.partition: Final = partition

    def __len__(self) -> int:
        return len(self.state.entries)

    # --- producer

    @overload
    def offer(self, value: Cell, /) -> int: ...
    @overload
    def offer(self, key: Cell, value: Cell, /) -> int: ...
    @overload
    def offer(self, key: Cell, value: Cell, headers: Mapping[Cell, Cell] | None, /) -> int: ...
    def offer(self, *arguments: Cell) -> int:
        """Append a record: `offer(value)`, `offer(key, value)`, `offer(key, value, headers)`. Returns its offset."""
        return self.offer_all([_row(arguments)]).start

    def offer_all(self, rows: Sequence[Row]) -> Offsets:
        """Append records of (key, value, headers), all or none. Returns their offsets."""
        if len(rows) > OFFER_ROWS_MAX:
            raise invalid("rows", f"{len(rows)} at once, at most {OFFER_ROWS_MAX}; offer them in batches")
        if not all(map(_is_row, rows)):
            raise invalid("rows", "each must be a tuple (key, value, headers)")
        now_ms = self.editor.now_ms()
        held = self.editor.lease(self._place)

        def append(state: LatticeQueueState) -> LatticeQueueState:
            admit(state.lease, held, now_ms=now_ms)
            stamp = state.stamp(now_ms)
            records = [
                make_record(value, key=key, headers=headers, timestamp=stamp) for key, value, headers in rows
            ]
            return state.append(records, stamp)

        after = self._cursor.update(append) if rows else self.state
        offsets = Offsets(after.stop - len(rows), after.stop)
        assert after.start <= offsets.start
        return offsets

    # --- consumers

    def peek(self, offset: int) -> Cell:
        """The value at an absolute offset, None if there is none."""
        return _value_of(self.peek_entry(offset))

    def peek_entry(self, offset: int) -> QueueRecord | None:
        """The record at an absolute offset, None outside [start, end)."""
        state = self.state
        found = state.entries.at(offset)
        assert (found is not None) == (state.start <= offset < state.stop)
        return found

    def peek_first(self) -> Cell:
        return _value_of(self.peek_first_entry())

    def peek_last(self) -> Cell:
        return _value_of(self.peek_last_entry())

    def peek_first_entry(self) -> QueueRecord | None:
        entries = self.state.entries
        return entries.at(entries.start)

    def peek_last_entry(self) -> QueueRecord | None:
        entries = self.state.entries
        return entries.at(entries.stop - 1)

    def range(self, first: int, last: int) -> Iterator[Cell]:
        """The values at offsets [first, last], both inclusive, as far as they are present."""
        return (record.value for record in self.state.entries.between(first, last + 1))

    # --- about the queue

    def start_offset(self) -> int:
        """The offset of the first record that is present."""
        return self.state.start

    def end_offset(self) -> int:
        """The offset of the next record (exclusive end)."""
        return self.state.stop

    def size(self) -> int:
        state = self.state
        assert len(state.entries) == state.stop - state.start
        return len(state.entries)

    def is_empty(self) -> bool:
        return self.size() == 0

    def get_meta(self, key: Cell) -> Cell:
        """A value of metadata, None if it was never set, or set to None."""
        return self.state.metadata.get(key)

    def set_meta(self, key: Cell, value: Cell) -> None:
        """Set a key of metadata, later than all that was seen; None takes the value back."""
        now_ms = self.editor.now_ms()
        self._cursor.update(lambda state: state.put_meta(key, value, now_ms))

    def truncate(self, start: int) -> int:
        """Drop the records below `start`, which may lie beyond the end; returns how many that were."""
        now_ms = self.editor.now_ms()
        dropped = 0

        def cut(state: LatticeQueueState) -> LatticeQueueState:
            nonlocal dropped
            truncated, dropped = state.truncate(start, now_ms)
            return truncated

        after = self._cursor.update(cut)
        assert after.start >= start
        assert dropped >= 0
        return dropped

    # --- leading

    def acquire(self, holder: str, *, ttl_ms: int) -> Lease:
        """Lead this queue for a time, or longer; raises `NotLeader` while somebody else does."""
        now_ms = self.editor.now_ms()
        after = self._cursor.update(lambda state: state.acquire(holder, ttl_ms=ttl_ms, now_ms=now_ms))
        assert after.lease.holder == holder
        assert after.lease.is_live(now_ms)
        self.editor.hold(self._place, after.lease)
        return after.lease

    # --- copies

    def fork(self, guard: Mutex | None = None) -> LatticeQueue:
        """A copy to work on alone; its `sync` brings the work here."""
        return LatticeQueue(
            self._cursor.fork(guard),
            editor=self.editor,
            topic=self.topic,
            partition=self.partition,
            place=self._place,
        )

    def newest_stamp(self, value: LatticeQueueState) -> int:
        return value.newest_stamp

    def divergences_between(self, own: LatticeQueueState, other: LatticeQueueState) -> Iterable[Divergence]:
        found = find_divergence(own, other, topic=self.topic, partition=self.partition)
        return () if found is None else (found,)

    def refuse_stale_fork(
        self, *, forked: LatticeQueueState, local: LatticeQueueState, parent: LatticeQueueState
    ) -> None:
        refuse_stale(appended=local.has_appended_to(forked), held=local.lease, parent=parent.lease)


def _row(arguments: tuple[Cell, ...]) -> Row:
    if len(arguments) == 1:
        return None, arguments[0], None
    if len(arguments) == 2:
        return arguments[0], arguments[1], None
    if len(arguments) == 3:
        return arguments
    raise invalid(
        "offer", f"takes (value), (key, value) or (key, value, headers), not {len(arguments)} arguments"
    )


def _is_row(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == ROW_SIZE


def _value_of(record: QueueRecord | None) -> Cell:
    return None if record is None else record.value
