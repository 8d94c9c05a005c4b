"""What routers bring over of a write: planned with it, and in the log right behind it (semantics 8).

A copy is a write of its dest, `Forward` and then the records, so dest and the router's cursor there are always of one
mind. It follows its source's entry in the same batch and is published with it. What a router brings over may be brought
on by the next one, in the same plan.

A plan touches nothing until it is begun. What cannot go this way now is left: its router is late then, and brought on
by orders (`late`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from topics.codec.log.addressing import RunFrames
from topics.codec.log.control import LossRange
from topics.codec.log.forwards import Forward, ForwardForm, mask_of
from topics.codec.log.frame import Run, encode_run
from topics.engine.batch import Entry, Item, frame_control
from topics.engine.lane import Lane
from topics.engine.replies import BroughtOver
from topics.engine.routers.copies import copy_columns, kept_by, later, with_origin
from topics.engine.routers.route import RunningRouter
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.ceilings import RAISE_BYTES, due_ceiling, raise_of
from topics.kernel.columns import RecordColumns, Texts
from topics.kernel.config import Discard, Durability
from topics.kernel.errors import Rejected
from topics.kernel.limits import FORWARD_BYTES_MAX, FORWARD_HOPS_MAX, FORWARD_SKIPPED_MAX
from topics.log import retention
from topics.log.floors import Reason
from topics.log.reads.waiting import NO_NEWS, News

_RECORDS: Final = News.RECORDS
_FRAME_ROOM: Final = 64  # of a copy beside what is stored of it, about
_Shape = tuple[object, ...]


class Given(NamedTuple):
    """Records that a topic gets: seqs from `first` on, of one ts, which have come by so many routers of a cycle."""

    lane: Lane
    first: int
    records: RecordColumns
    ts: int
    hops: int = 0


class Copy(Entry, eq=False, kw_only=True):
    """What a router brings over at once: records, a loss, or nothing but how far it has come. `last`: the seq of its
    source, `last_seq` of dest, which it takes `count` of.
    """

    lane: Lane
    route: RunningRouter
    last: int
    last_seq: int
    count: int
    stored: int

    def place(self, offset: int) -> None:
        run = self.items[-1]
        if isinstance(run, Run):
            run.offset += offset

    def release(self) -> None:
        self.lane.release(self.count, self.stored)

    def settle(self) -> None:
        if self.last_seq > self.lane.written_seq:
            self.lane.written_seq = self.last_seq

    def news(self) -> News:
        return _RECORDS if self.count else NO_NEWS

    def reply(self) -> BroughtOver:
        return BroughtOver()


class Copies:
    """The plan. `entries`: in the order of the log; `size`: of their frames, and of the raises that they may need."""

    def __init__(self, state: EngineState, now_ms: int) -> None:
        self.entries: list[Copy] = []
        self.size = 0
        self._state = state
        self._now_ms = now_ms
        self._todo: deque[Given] = deque()
        self._sent: dict[RunningRouter, int] = {}
        self._cursors: dict[RunningRouter, int] = {}
        self._next: dict[int, int] = {}  # of a topic: the next seq,
        self._last: dict[int, int] = {}  # and the ts of the last record
        self._held: dict[int, tuple[int, int]] = {}  # of a topic: records and bytes that are planned
        self._framed_once: dict[tuple[int, int, bool], tuple[RecordColumns, RunFrames]] = {}
        self._stored = self._elsewhere = 0  # bytes of these, and of what they are of

    def follow(self, given: Given) -> None:
        """Whatever comes by way of routers of a write that is about to be, as far as it can go along."""
        topic_id, count = given.lane.topic_id, len(given.records)
        self._next[topic_id], self._last[topic_id] = given.first + count, given.ts
        self._held[topic_id] = count, given.records.stored_total
        self._elsewhere = given.records.stored_total
        self._todo.append(given)
        self.go_on()

    def go_on(self) -> None:
        """Whatever comes of what is planned."""
        while self._todo:
            its = self._todo.popleft()
            if isinstance(its.records.data, Texts):  # each is made once
                its = its._replace(records=msgspec.structs.replace(its.records, data=list(its.records.data)))
            shapes: dict[_Shape, tuple[Sequence[int] | None, RecordColumns]] = {}
            for route in self._state.routes.leading_from(its.lane.topic_id):
                self._bring(route, its, shapes)

    def sent(self, route: RunningRouter) -> int:
        """How far it is when this is begun."""
        return self._sent.get(route, route.sent)

    def copy(
        self, route: RunningRouter, records: RecordColumns, seqs: Sequence[int], *, last: int, ts: int, hops: int
    ) -> None:  # fmt: skip
        """Bring over these records, the only ones that are to go up to `last`, as `with_origin`; `seqs`: those of
        the source. Their times are relative to `ts`.
        """
        dest, first_seq, count = route.dest, self._next_seq(route.dest), len(seqs)
        if ts < self._now_ms and (last_ts := self._last_ts(dest)) > ts:
            records, ts = later(records, last_ts - ts), last_ts
        chunk, run = self._framed(route, records, first_seq, ts)
        self._add(route, ForwardForm.COPIES, seqs, last, run, chunk, count, records.stored_total)
        self._last[dest.topic_id] = ts
        if self._state.routes.leading_from(dest.topic_id):
            self._todo.append(Given(dest, first_seq, records, ts, hops))

    def lose(self, route: RunningRouter, last: int, count: int) -> None:
        """So many records up to `last` are lost: dest says so."""
        first_seq = self._next_seq(route.dest)
        lost = LossRange(first_seq, first_seq + count - 1, Reason.SOURCE_TRIM.value)
        control, chunk = frame_control(lost, topic_id=route.dest.topic_id, ts=self._now_ms)
        self._add(route, ForwardForm.TRIMMED, (), last, control, chunk, count, 0)

    def tell(self, route: RunningRouter, last: int) -> None:
        """Bring nothing over, but have the log say how far the router is."""
        self._add(route, ForwardForm.COPIES, (), last, None, b"", 0, 0)

    @property
    def staged(self) -> bool:
        """Whether they are published when they are synced: one of a class that is, or above its ceiling."""
        return any(
            entry.last_seq > entry.lane.ceiling
            or entry.route.dest_topic.config.durability is Durability.FSYNC
            for entry in self.entries
            if entry.count
        )

    def raise_ceilings(self) -> None:
        """What has to be in the log before them. From here on nothing is refused any more."""
        for entry in self.entries:
            lane = entry.lane
            if not entry.count or entry.route.dest_topic.config.durability is Durability.FSYNC:
                continue
            ceiling = due_ceiling(lane, entry.last_seq)
            if ceiling:
                lane.ask_ceiling(ceiling)
                self._state.enqueue(lane.shard, raise_of(lane, ceiling, self._now_ms))

    def begin(self, *, staged: bool, behind: bool, ticket: Ticket | None = None) -> None:
        """Into the log: `behind` the entry that was enqueued last, published as that is. `ticket`: the last one's."""
        state = self._state
        for route, sent in self._sent.items():
            route.sent = sent
        state.total.add(self._stored)
        for entry in self.entries:
            lane = entry.lane
            entry.staged = entry.must_sync = staged
            entry.follows, behind = behind, True
            entry.route.cursor = entry.last
            lane.reserve(entry.count, entry.stored)
            if entry.route.dest_topic.config.durability is not Durability.FSYNC:
                state.touch(lane)
        if ticket is not None:
            self.entries[-1].ticket = ticket
        for entry in self.entries:
            state.enqueue(entry.lane.shard, entry)

    # One router.

    def _bring(
        self, route: RunningRouter, given: Given, shapes: dict[_Shape, tuple[Sequence[int] | None, RecordColumns]]
    ) -> None:  # fmt: skip
        """Its copies of these, if it is not late and dest takes them."""
        first, count = given.first, len(given.records)
        if self._sent.get(route, route.sent) != first - 1 or not self._is_open(route):
            return
        if given.records.stored_longest > route.dest_topic.config.max_record_bytes:
            return  # perhaps too long for dest: then it is lost there, and an order tells so
        router, to_queue = route.router, route.dest_topic.jobs is not None
        shape = (router.filter, router.preserve_node, router.preserve_tag, to_queue)
        found = shapes.get(shape)
        if found is None:
            kept = kept_by(router, given.records.tag, count)
            records = given.records if kept is None or not kept else given.records.take(kept)
            found = shapes[shape] = kept, copy_columns(records, router, to_queue=to_queue)
        kept, records = found
        last, hops = first + count - 1, self.hops(route, given.hops)
        if hops > FORWARD_HOPS_MAX:
            self.tell(route, last)  # at once: if the cycle is broken, a start would bring them over
        elif kept is not None and not kept:
            self._pass(route, last)
        else:
            seqs: Sequence[int] = range(first, last + 1) if kept is None else [first + i for i in kept]
            records = with_origin(records, router, route.source_topic.epoch, seqs, hops)
            if self.fits(route, records):
                self.copy(route, records, seqs, last=last, ts=given.ts, hops=hops)

    def _framed(
        self, route: RunningRouter, records: RecordColumns, first_seq: int, ts: int
    ) -> tuple[bytes, Run]:
        """The frames of copies. Those that many dests get are encoded once."""
        topic_id, durable = route.dest.topic_id, route.dest_topic.config.durable
        kind = id(records), ts, durable
        found = self._framed_once.get(kind)
        if found is not None:
            return found[1].of(topic_id, first_seq)
        chunk, run = encode_run(topic_id, first_seq, ts, records, durable=durable, keyed=None, write_frames=0)
        self._framed_once[kind] = records, RunFrames(chunk, run)  # an id is that of what there is
        return chunk, run

    def hops(self, route: RunningRouter, before: int) -> int:
        """How often a copy will have been copied on cycles; 0 where the router is on none."""
        return before + 1 if self._state.routes.is_cyclic(route) else 0

    def _is_open(self, route: RunningRouter) -> bool:
        """Whether dest is written with the source, and nothing is in the way."""
        dest = route.dest
        return dest.shard == route.source.shard and not dest.blocked and dest.read_only is None

    def fits(self, route: RunningRouter, records: RecordColumns) -> bool:
        """Whether there is room for these: in this plan, in the store and in dest."""
        count, size, dest, topic = len(records), records.stored_total, route.dest, route.dest_topic
        if self.entries and self.size + size + count * _FRAME_ROOM > FORWARD_BYTES_MAX:
            return False
        state, stored = self._state, self._stored + self._elsewhere + size
        if not state.total.fits(state.lanes.values(), stored, state.time.timer_ms):
            return False
        if topic.config.discard is not Discard.REJECT:
            return True
        held_count, held_size = self._held.get(dest.topic_id, (0, 0))
        held_count, held_size = held_count + count, held_size + size
        is_fitting = retention.fits(
            topic, records=dest.reserved_records + held_count, size=dest.reserved_bytes + held_size,
            now_ms=self._now_ms,
        )  # fmt: skip
        if is_fitting:
            self._held[dest.topic_id] = held_count, held_size
        return is_fitting

    def _pass(self, route: RunningRouter, last: int) -> None:
        """Nothing of these goes there. The log hears of it before the source evicts them, or there are many: what it
        has not heard is looked at again by a start, and what was evicted by then would pass for lost.
        """
        self._sent[route] = last
        count, config = last - self._cursors.get(route, route.cursor), route.source_topic.config
        evicts, index = config.cap_records or config.cap_bytes or config.ttl_ms, route.source_topic.index
        is_due = config.ttl_ms and index.live_count and index.ts[index.start] + config.ttl_ms < self._now_ms
        if count >= FORWARD_SKIPPED_MAX or is_due or (evicts and 2 * count >= index.live_count):
            self.tell(route, last)

    def _next_seq(self, lane: Lane) -> int:
        return self._next.get(lane.topic_id) or lane.next_seq

    def _last_ts(self, lane: Lane) -> int:
        """The ts of the last record of a topic, also of one that is planned, or on its way."""
        planned = self._last.get(lane.topic_id)
        if planned is not None:
            return planned
        assert lane.topic is not None
        if not lane.reserved_records:
            return lane.topic.last_write_ts
        shard = self._state.shards[lane.shard]
        writing = shard.in_flight.entries if shard.in_flight is not None else ()
        items = (item for entry in (*writing, *shard.pending) if entry.lane is lane for item in entry.items)
        return max((item.ts for item in items if isinstance(item, Run)), default=lane.topic.last_write_ts)

    def _add(
        self, route: RunningRouter, form: ForwardForm, seqs: Sequence[int], last: int, item: Item | None, chunk: bytes,
        count: int, stored: int,
    ) -> None:  # fmt: skip
        """A write of dest: `Forward`, and what follows it."""
        dest, first_seq = route.dest, self._next_seq(route.dest)
        first = self._cursors.get(route, route.cursor) + 1
        mask = mask_of(seqs, first, last) if form is ForwardForm.COPIES else b""
        forward = Forward(form, route.router.id, route.source.topic_id, first, last, first_seq, count, mask)
        frames = 1 + (count if form is ForwardForm.COPIES else 1)
        self._next[dest.topic_id] = first_seq + count
        control, head = frame_control(forward, topic_id=dest.topic_id, ts=self._now_ms, write_frames=frames)
        if isinstance(item, Run):
            item.offset = len(head)
        size = len(head) + len(chunk)
        self.entries.append(
            Copy(
                lane=dest, items=(control,) if item is None else (control, item),
                chunks=(head, chunk) if chunk else (head,), size=size,
                frames=frames, staged=False, must_sync=False, route=route, last=last,
                last_seq=first_seq + count - 1, count=count, stored=stored,
            )
        )  # fmt: skip
        self.size += size + RAISE_BYTES
        self._stored += stored
        self._sent[route] = self._cursors[route] = last


def tell_passed(state: EngineState, route: RunningRouter) -> None:
    """The log hears how far the router is, and that it has brought nothing of this over, if dest is written now."""
    dest = route.dest
    if dest.blocked:
        return
    try:
        state.check_writable(dest.shard, dest)
        copies = Copies(state, state.time.high_ms)
        copies.tell(route, route.sent)
        state.check_space(dest.shard, copies.size, keep_reserve=False)
    except Rejected:
        return
    # Not seen before the records that it has passed over are.
    copies.begin(staged=route.sent > route.source_topic.head_seq, behind=False)


def tell_all_passed(state: EngineState, lane: Lane) -> None:
    """Before the source evicts: what its routers have passed over would pass for lost, were that all a crash leaves."""
    for route in state.routes.leading_from(lane.topic_id):
        if route.cursor < route.sent:
            tell_passed(state, route)
