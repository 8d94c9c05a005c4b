"""What one shard hands to its writer, and how a shard's frames go from assigned to written to synced (storage 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, Self

import msgspec

from topics.codec.log.control import TYPES, Control, Payload, encode_control
from topics.codec.log.frame import Run
from topics.engine.lane import Lane
from topics.engine.replies import Reply, Synced
from topics.engine.tickets import Ticket
from topics.kernel.errors import Fatal
from topics.kernel.limits import BATCH_BYTES_MAX, BATCH_FRAMES_MAX, PENDING_BYTES_MAX
from topics.log.reads.waiting import NO_NEWS, News
from topics.log.regions import WalFileId

Item = Run | Control
_chunks: Final = attrgetter("chunks")  # of many entries, at the speed of C
_frames: Final = attrgetter("frames")
_size: Final = attrgetter("size")
_is_staged: Final = attrgetter("staged")
_must_sync: Final = attrgetter("must_sync")


class WalPosition(msgspec.Struct, frozen=True):
    """Where the first byte of a batch's frames was written."""

    file: WalFileId
    offset: int


class Entry(msgspec.Struct, eq=False, kw_only=True):
    """Frames that belong together: one write, or one control step, of one topic. What it does beside its frames is a
    subclass's to say.

    `staged` entries apply when synced, the others when written. One that `follows` is never parted from the one before
    it, neither by the end of a batch nor by its stage: what a router brings over is seen when its source's records
    are. `memory` is the chunk of an ephemeral run, which
    passes through the batch for its order only and adds no byte to it. `size`: of the chunks. `outcome`: how many
    records its last frame deleted.
    """

    lane: Lane | None
    items: Sequence[Item]
    chunks: Sequence[bytes]
    size: int
    frames: int
    staged: bool
    must_sync: bool
    ticket: Ticket | None = None
    ordered: bool = True
    follows: bool = False
    memory: bytes | None = None
    outcome: int = 0

    @classmethod
    def of(
        cls, lane: Lane, payloads: Sequence[Payload], ts: int, *, staged: bool, must_sync: bool,
        ticket: Ticket | None = None, ordered: bool = True, memory: bytes | None = None,
    ) -> Self:  # fmt: skip
        """A control frame of each payload; of an ephemeral topic none is written."""
        items, chunks, size = list[Item](), list[bytes](), 0
        for payload in payloads:
            control, chunk = frame_control(payload, topic_id=lane.topic_id, ts=ts)
            items.append(control)
            if memory is None:
                chunks.append(chunk)
                size += control.length
        return cls(
            lane=lane, items=items, chunks=chunks, size=size, frames=len(chunks), staged=staged,
            must_sync=must_sync, ticket=ticket, ordered=ordered, memory=memory,
        )  # fmt: skip

    def absorb(self, _other: Self) -> bool:
        """Have the items of the next one, of its kind and lane, among its own: they are folded with them, as a start
        folds them. False if they are to be folded by themselves.
        """
        return False

    def place(self, offset: int) -> None:
        """Offsets within the entry become offsets within the file. Of control frames nobody asks where they are."""

    def release(self) -> None:
        """Give back the reservations, on apply and on failure alike."""

    def settle(self) -> None:
        """Right after apply."""

    def news(self) -> News:
        """What it has changed, for those who wait for news of the topic."""
        return NO_NEWS

    def waits_for_sync(self) -> bool:
        """Of an answer without frames, when it could be given: whether a sync has to come first."""
        return self.must_sync

    def reply(self) -> Reply:
        """The answer, when the ticket is due. Nobody else makes one of what goes by the log."""
        raise AssertionError("an entry with a ticket has a reply")


def frame_control(
    payload: Payload, *, topic_id: int, ts: int, write_frames: int = 1
) -> tuple[Control, bytes]:
    """A control frame as the value apply takes and as bytes; where it lies in the file is nobody's business."""
    chunk = encode_control(payload, topic_id=topic_id, ts=ts, write_frames=write_frames)
    control = Control(
        TYPES[type(payload)], topic_id, ts, payload, 0, len(chunk), durable=False, write_frames=write_frames
    )
    return control, chunk


def folded_together(entries: Sequence[Entry], *, staged: bool) -> Sequence[Sequence[Entry]]:
    """The staged ones of a batch, or the others; in one list those side by side of which the first has absorbed the
    others. They are placed.
    """
    if len(entries) == 1:
        return [entries] if entries[0].staged is staged else []
    groups: list[list[Entry]] = []
    head: Entry | None = None
    for entry in entries:
        if entry.staged is not staged:
            head = None  # what is behind it does not lie side by side with what is before it
        elif head is not None and entry.lane is head.lane and head.absorb(entry):
            groups[-1].append(entry)
        else:
            head = entry
            groups.append([entry])
    return groups


class WalBatch(msgspec.Struct, frozen=True, eq=False):
    """The chunks of one shard in order, whether they must be synced, and whose they are.

    `ts`: when it was taken. `silent`: nothing is published between its write and its sync, so a driver need not tell
    the engine of the one before the other.
    """

    shard: int
    chunks: tuple[bytes, ...]
    size: int
    frames: int
    sync: bool
    entries: tuple[Entry, ...]
    ts: int = 0
    silent: bool = False


class Shortage(msgspec.Struct, frozen=True):
    """Why a shard has so little room, and what to do about it; `detail` for machines."""

    message: str
    detail: Mapping[str, object]


class Shard:
    """The queue of one shard: what waits, what is in flight, what is written but not synced."""

    __slots__ = (
        "cut_wanted", "in_flight", "number", "pending", "pending_bytes", "read_only", "shortage", "space_left",
        "synced_ms", "unsynced", "unsynced_lanes", "written",
    )  # fmt: skip

    def __init__(self, number: int, timer_ms: int) -> None:
        self.number = number
        self.pending: list[Entry] = []
        self.pending_bytes = 0
        self.in_flight: WalBatch | None = None
        self.written = False
        self.unsynced = False
        self.unsynced_lanes: dict[int, tuple[Lane, int]] = {}
        self.synced_ms = timer_ms
        self.space_left = 0
        self.shortage: Shortage | None = None
        self.read_only: Fatal | None = None
        self.cut_wanted = False

    @property
    def quiet(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return not self.pending and self.in_flight is None

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that `space_left` does not know of yet: what waits, and what is being written."""
        writing = self.in_flight.size if self.in_flight is not None and not self.written else 0
        return self.pending_bytes + writing

    def has_room(self, size: int, *, reserve: int) -> bool:
        """Whether so many more bytes fit into its files, where `reserve` stays free, and among what waits."""
        return self.unwritten_bytes + size + reserve <= self.space_left and self.may_wait(size)

    def may_wait(self, size: int) -> bool:
        """Whether so many more bytes fit among what waits to be written."""
        return self.pending_bytes + size <= PENDING_BYTES_MAX

    def add(self, entry: Entry) -> None:
        assert self.read_only is None
        assert entry.must_sync or not entry.staged
        assert entry.memory is None or not entry.size
        self.pending.append(entry)
        self.pending_bytes += entry.size

    def take(self, now_ms: int) -> WalBatch | None:
        """The next batch: what waits, up to a bound."""
        if self.in_flight is not None or self.read_only is not None or self.cut_wanted:
            return None
        if not self.pending:
            return None
        if len(self.pending) == 1:
            ((entry,), self.pending) = self.pending, []
            batch = WalBatch(
                self.number, tuple(entry.chunks), entry.size, entry.frames, entry.must_sync, (entry,), now_ms,
                entry.staged,
            )  # fmt: skip
        else:
            batch = self._together(now_ms)
        self.pending_bytes -= batch.size
        assert self.pending_bytes >= 0
        assert batch.size == sum(map(len, batch.chunks))
        assert batch.sync or not batch.silent
        self.in_flight, self.written = batch, False
        return batch

    def _together(self, now_ms: int) -> WalBatch:
        """As many of those that wait as a batch may have."""
        frames, size = sum(map(_frames, self.pending)), self.pending_bytes
        if size > BATCH_BYTES_MAX or frames > BATCH_FRAMES_MAX:
            entries = self._cut()
            frames, size = sum(map(_frames, entries)), sum(map(_size, entries))
        else:
            entries, self.pending = self.pending, []
        if any(map(_is_staged, entries)):
            _order_stages(entries)
        return WalBatch(
            self.number, tuple(chain.from_iterable(map(_chunks, entries))), size, frames,
            any(map(_must_sync, entries)), tuple(entries), now_ms, all(map(_is_staged, entries)),
        )  # fmt: skip

    def _cut(self) -> list[Entry]:
        """The first of those that wait: as many as a batch may have, one at least, and whatever follows the last."""
        size = frames = count = 0
        for entry in self.pending:
            is_over = size + entry.size > BATCH_BYTES_MAX or frames + entry.frames > BATCH_FRAMES_MAX
            if count and is_over and not entry.follows:
                break
            size += entry.size
            frames += entry.frames
            count += 1
        assert count > 0
        entries = self.pending[:count]
        del self.pending[:count]
        return entries


def _order_stages(entries: Sequence[Entry]) -> None:
    """Entries of a topic apply in order: behind a staged one, the topic's next ones wait too, and with them those that
    they follow, and those that follow them.
    """
    staged: set[int] = set()
    for at, entry in enumerate(entries):
        if entry.lane is not None and entry.ordered:
            if entry.staged:
                staged.add(entry.lane.topic_id)
            elif entry.lane.topic_id in staged:
                for other in _together_with(entries, at):
                    assert other.lane is not None
                    other.staged = other.must_sync = True
                    staged.add(other.lane.topic_id)


def _together_with(entries: Sequence[Entry], at: int) -> Sequence[Entry]:
    """One of the entries, all that it follows, and all that follows."""
    start, stop = at, at + 1
    while entries[start].follows:
        start -= 1
    while stop < len(entries) and entries[stop].follows:
        stop += 1
    return entries[start:stop]


def sync_point(ticket: Ticket | None = None) -> Entry:
    return _SyncPoint(
        lane=None, items=(), chunks=(), size=0, frames=0, staged=True, must_sync=True, ticket=ticket
    )


class _SyncPoint(Entry, eq=False, kw_only=True):
    """A place in the log up to which all is synced."""

    def reply(self) -> Synced:
        return Synced()
