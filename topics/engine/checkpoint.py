"""What goes from the WAL into segments, and when the state may be kept (storage 5). Pure: plans and their ends.

A checkpoint is a round: `plan` says which records to append to which segment; the driver copies and syncs them and
proposes each mark; when nothing is left, `cut` gives the state as a value with which, and the WAL behind it, recovery
begins. Records are absorbed when they are durable, so a segment never holds what a power cut takes from the WAL.

A topic gives one piece a plan, so that what comes next is decided when the mark of the last one is folded.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import attrs

from topics.codec.log.control import CheckpointMark
from topics.codec.segments.segment import END_SIZE
from topics.engine.batch import Entry
from topics.engine.commands import Checkpointed
from topics.engine.image import StateImage, image_of
from topics.engine.lane import Lane
from topics.engine.replies import Absorbed
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.checks import whole_number
from topics.kernel.config import Durability
from topics.kernel.errors import invalid
from topics.kernel.limits import MIB, PIECE_RECORDS_MAX, SEGMENT_BYTES_MAX, SEGMENT_RECORDS_MAX
from topics.log import fold
from topics.log.image import take_image
from topics.log.reads.frames import Extent, extents_of
from topics.log.regions import SegmentId
from topics.log.segments import Segment
from topics.log.slots import Slots, slots_between
from topics.log.topic import Topic

PLAN_BYTES_MAX: Final = 8 * MIB
PIECE_BYTES_MAX: Final = 8 * MIB  # and one record more
_FILES_BYTES: Final = 16 * 1024  # of a disk, for a topic's directory and a segment's files, by its blocks


@attrs.frozen(kw_only=True)
class SegmentRules:
    """When a segment is full (seed 6.1). `age_ms`: since it was begun; 0 for never."""

    records_max: int = 10_000
    bytes_max: int = 64 * MIB
    age_ms: int = 3_600_000

    def __attrs_post_init__(self) -> None:
        for field, value, most in (
            ("segments.records_max", self.records_max, SEGMENT_RECORDS_MAX),
            ("segments.bytes_max", self.bytes_max, SEGMENT_BYTES_MAX),
        ):
            if not 1 <= whole_number(field, value) <= most:
                raise invalid(field, f"must be from 1 to {most}, not {value}")
        whole_number("segments.age_ms", self.age_ms)


@attrs.frozen(kw_only=True)
class Piece:
    """Records to append to one segment, or only its sealing.

    `slots`: None if nothing is appended. `extents`: where the frames are now, in the order of the slots. `before`:
    entries that the segment has. `at`: bytes of data that it has.
    """

    topic: str
    topic_id: int
    before: int
    at: int
    mark: CheckpointMark
    slots: Slots | None
    extents: Sequence[Extent]

    @property
    def size(self) -> int:
        """Bytes of data it appends."""
        return self.mark.size - self.at


class Checkpoints:
    """The engine's side of checkpoints."""

    def __init__(self, state: EngineState, rules: SegmentRules) -> None:
        self._state = state
        self._rules = rules

    def goals(self) -> dict[int, int]:
        """The last durable seq of each topic id now: a round ends there, however much is written meanwhile."""
        return {
            lane.topic_id: lane.durable_seq for lane in self._state.lanes.values() if lane.topic is not None
        }

    def left(self, goals: dict[int, int]) -> int:
        """About how much of a disk the copies take of what up to the goals is in the log alone. Costs a look at each
        record.
        """
        size = 0
        for topic_id, goal in goals.items():
            lane = self._state.lanes.get(topic_id)
            if lane is not None and (topic := lane.topic) is not None and self._is_copied(lane, topic):
                assert goal <= lane.durable_seq, "what is copied is durable"
                first = max(topic.segments.stored_seq + 1, topic.index.base_seq)
                if first <= goal:
                    size += _FILES_BYTES + sum(
                        topic.index.lengths[topic.index.position(first) : topic.index.position(goal + 1)]
                    )
        return size

    def plan(self, goals: dict[int, int], bytes_max: int = PLAN_BYTES_MAX) -> list[Piece]:
        """What to copy next, at most one piece a topic; empty when everything up to the goals is in segments.

        `bytes_max`: of data, and at most a piece more; no piece is larger by more than its last record.

        A topic with nothing left leaves the goals, so that a large one does not cost a look at all others a piece.
        """
        now_ms = self._state.time.read()
        pieces: list[Piece] = []
        size = 0
        for topic_id, goal in list(goals.items()):
            lane = self._state.lanes.get(topic_id)
            piece = (
                None if lane is None else self._piece(lane, min(lane.durable_seq, goal), now_ms, bytes_max)
            )
            if piece is None:
                del goals[topic_id]
                continue
            pieces.append(piece)
            size += piece.size
            if size >= bytes_max:
                break
        return pieces

    def would_seal(self) -> bool:
        """True if the segment to which some topic appends has grown old."""
        now_ms = self._state.time.read()
        return any(
            (topic := lane.topic) is not None
            and (active := topic.segments.active) is not None
            and self._is_old(active, now_ms)
            and self._is_copied(lane, topic)
            for lane in self._state.lanes.values()
        )

    def want_cut(self, *, wanted: bool) -> None:
        """While a cut is wanted no batch is given out, so that soon none is in flight (architecture 3.4)."""
        for shard in self._state.shards:
            shard.cut_wanted = wanted

    def cut(self) -> StateImage | None:
        """The state as a value; None while a batch is in flight. The driver adds where each shard's log is."""
        state = self._state
        if any(shard.in_flight is not None for shard in state.shards):
            return None
        catalog = state.catalog
        return StateImage(
            ts=state.time.read(),
            high_ts=catalog.high_ts,
            next_topic_id=catalog.next_topic_id,
            epochs=sorted(catalog.epochs.items()),
            topics=[take_image(topic) for _, topic in sorted(catalog.topics.items())],
            routers=image_of(catalog.routers.values()),
        )

    # Where bytes lie is no state, so no frame speaks of it.

    def place_segment(
        self, named: SegmentId, segment: Segment, offsets: array[int], lengths: array[int], *, size: int
    ) -> None:
        """The data of this segment was written anew: `Topic.place_segment`."""
        self._state.catalog.topics[named.topic_id].place_segment(segment, offsets, lengths, size=size)

    def give_up_segment(self, named: SegmentId) -> None:
        """Nothing more is to go into this one: the next plan seals it, and a new one takes what follows."""
        topic = self._state.catalog.topics.get(named.topic_id)
        if topic is not None:
            topic.segments.damaged |= {named.first_seq}

    # One topic.

    def _piece(self, lane: Lane, goal: int, now_ms: int, bytes_max: int) -> Piece | None:
        topic = lane.topic
        if topic is None or not self._is_copied(lane, topic):
            return None
        index, active = topic.index, topic.segments.active
        first = max(topic.segments.stored_seq + 1, index.base_seq)
        while (lost := index.lost.at(first)) is not None:  # another may adjoin it, for another reason
            first = lost.last + 1
        damaged = active is not None and active.first in topic.segments.damaged
        if active is not None and (damaged or self._is_done(active, first, goal, now_ms)):
            return _sealing(topic, active)
        return self._appending(topic, active, first, goal, bytes_max) if first <= goal else None

    def _is_done(self, active: Segment, first: int, goal: int, now_ms: int) -> bool:
        """Nothing more goes into it: it is full or old, or the next record does not follow its last."""
        rules = self._rules
        return (
            active.count >= rules.records_max
            or active.size >= rules.bytes_max
            or self._is_old(active, now_ms)
            or (first <= goal and active.last + 1 != first)
        )

    def _is_old(self, active: Segment, now_ms: int) -> bool:
        return bool(self._rules.age_ms and now_ms - active.since >= self._rules.age_ms)

    def _is_copied(self, lane: Lane, topic: Topic) -> bool:
        """Whether its records go into segments, now."""
        if topic.config.durability is Durability.EPHEMERAL:
            return False
        return self._state.shards[lane.shard].read_only is None and lane.read_only is None

    def _appending(
        self, topic: Topic, active: Segment | None, first: int, goal: int, bytes_max: int
    ) -> Piece:
        index, rules = topic.index, self._rules
        before, at = (active.count, active.size) if active is not None else (0, 0)
        lost = index.lost.next_from(first)
        last = min(
            goal if lost is None else min(goal, lost.first - 1),
            first + min(rules.records_max - before, PIECE_RECORDS_MAX) - 1,
        )
        start, stop = index.position(first), index.position(last + 1)
        room = min(rules.bytes_max - at, PIECE_BYTES_MAX, bytes_max)
        sizes = list(accumulate(index.lengths[start:stop]))
        count = min(bisect_left(sizes, room) + 1, len(sizes))  # the one that goes over the bound is the last
        stop, last = start + count, first + count - 1
        size = at + sizes[count - 1] + count * END_SIZE
        slots = slots_between(index, start, stop)
        segment = active.first if active is not None else first
        sealed = before + last - first + 1 >= rules.records_max or size >= rules.bytes_max
        return Piece(
            topic=topic.name,
            topic_id=topic.topic_id,
            before=before,
            at=at,
            mark=CheckpointMark(segment, first, last, size, sealed),
            slots=slots,
            extents=extents_of(topic, start, stop),
        )


def propose_checkpointed(state: EngineState, ticket: Ticket) -> None:
    """Log that records are in a segment. If the topic has gone or changed meanwhile, nobody needs to know.

    Nothing waits for its sync: a mark says where bytes are as well, and a crash that takes it leaves them in the WAL.
    """
    command = ticket.command
    assert isinstance(command, Checkpointed)
    lane = state.lanes.get(command.topic_id)
    mark = command.mark
    if lane is None or lane.topic is None or lane.barrier is not None or not _takes(lane.topic, mark):
        state.finish(ticket, Absorbed(mark=None))
        return
    state.check_writable(lane.shard, lane)
    entry = _Mark.of(lane, [mark], state.time.high_ms, staged=False, must_sync=False, ticket=ticket)
    state.check_space(lane.shard, entry.size, keep_reserve=False)
    state.enqueue(lane.shard, entry)


class _Mark(Entry, eq=False, kw_only=True):
    """A mark in the log."""

    def reply(self) -> Absorbed:
        assert isinstance(self.ticket, Ticket)
        assert isinstance(self.ticket.command, Checkpointed)
        return Absorbed(mark=self.ticket.command.mark)


def _takes(topic: Topic, mark: CheckpointMark) -> bool:
    """Whether the mark says something new of a segment that is there."""
    if not topic.segments.moves(segment=mark.segment, first=mark.first, last=mark.last):
        return fold.takes(topic, mark)
    segment = topic.segments.holds(mark.segment)
    return segment is not None and segment.first == mark.segment and segment.cold is not mark.cold


def _sealing(topic: Topic, active: Segment) -> Piece:
    mark = CheckpointMark(active.first, active.last + 1, active.last, active.size, sealed=True)
    return Piece(
        topic=topic.name,
        topic_id=topic.topic_id,
        before=active.count,
        at=active.size,
        mark=mark,
        slots=None,
        extents=(),
    )
