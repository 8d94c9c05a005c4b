"""A read by seq: which records it delivers, and what became of every other seq it passes (semantics 4).

`plan` touches nothing: it decides tombstone, deleted, own TTL, own node and filter from the columns alone, so the
account is exact before a byte is fetched. The plan lists the records to deliver and the few extents their frames lie
in; a driver fetches those, and `frames.assemble` checks and cuts the frames out of the buffers.

Examining goes in slices of 8192 seqs, at most 100 000 a read; a page ends before a lost range.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import attrs
import msgspec

from topics.kernel.config import Durability
from topics.kernel.limits import SCAN_SEQS_MAX, SCAN_SLICE_SEQS
from topics.log.floors import Gap
from topics.log.index import LIVE, TIMED, Index
from topics.log.past import LOST, DeathCause, Gone
from topics.log.reads import masks, tombstone
from topics.log.reads.frames import FramesPlan, extents_at
from topics.log.reads.masks import Members
from topics.log.reads.match import Match
from topics.log.topic import Topic

_PLAIN: Final = b"\x01"
_STRIDE_FIRST: Final = 256  # slots examined at once: few at first, for most pages are full soon
_IS_LIVE: Final = bytes(flag & LIVE for flag in range(256))
_IS_DELETED: Final = bytes(not flag & LIVE and flag & DeathCause.DELETED > 0 for flag in range(256))
_IS_TIMED: Final = bytes(flag & TIMED > 0 for flag in range(256))


class DiffQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader asks. `from_ts` wins over `from_seq` if given; `nodes` are the reader's own names. `durable_only`:
    nothing that a power cut now would take; of an ephemeral topic, of which it takes all, everything.
    """

    topic: str
    from_seq: int = 0
    from_ts: int | None = None
    epoch: int | None = None
    limit: int = 256
    nodes: frozenset[bytes] = frozenset()
    match: Match | None = None
    bytes_max: int = 1 << 20
    durable_only: bool = False

    def limited(self, limit: int) -> DiffQuery:
        return msgspec.structs.replace(self, limit=limit)


@attrs.frozen
class Account:
    """Promise 4: every seq in (from_seq, next_from_seq] is exactly one of these."""

    delivered: int
    lost: int
    deleted: int
    expired: int
    own_node: int
    filtered: int

    @property
    def total(self) -> int:
        return self.delivered + self.lost + self.deleted + self.expired + self.own_node + self.filtered


class DiffPlan(FramesPlan, frozen=True, kw_only=True):
    """Which frames to fetch, and everything a page says beside its records. `end_seq`: the last that there is for this
    reader.
    """

    epoch: int
    from_seq: int
    next_from_seq: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    end_seq: int
    gap: Gap | None
    account: Account

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq >= self.end_seq


def plan(topic: Topic, query: DiffQuery, *, now_ms: int, durable_seq: int) -> DiffPlan:
    """The whole plan of one read; `now_ms` decides own TTL only (floors move by frames)."""
    index = topic.index
    from_seq = query.from_seq
    if query.from_ts is not None:
        from_seq = tombstone.resolve_ts(index, topic.floors, query.from_ts)
    same_epoch = query.epoch is None or query.epoch == topic.epoch
    start = tombstone.classify(index, topic.floors, from_seq, same_epoch=same_epoch)
    end_seq = index.head_seq
    if query.durable_only and topic.config.durability is not Durability.EPHEMERAL:
        end_seq = durable_seq
    scan = _Scan(topic, query, now_ms, start, end_seq)
    while not scan.ended:
        scan.step()
    resolved = start.from_seq
    account = Account(
        len(scan.positions), start.lost, scan.deleted, scan.expired, scan.own_node, scan.filtered
    )  # fmt: skip
    assert account.total == scan.cursor - resolved  # I-06, promise 4
    seqs, offsets, lengths = scan.columns()
    return DiffPlan(
        topic=topic.name,
        topic_id=topic.topic_id,
        epoch=topic.epoch,
        from_seq=resolved,
        next_from_seq=scan.cursor,
        head_seq=index.head_seq,
        durable_seq=durable_seq,
        earliest_seq=index.base_seq,
        end_seq=end_seq,
        gap=start.gap,
        account=account,
        seqs=seqs,
        offsets=offsets,
        lengths=lengths,
        extents=extents_at(topic, seqs, offsets, lengths),
    )


class _Scan:
    """The walk over the slots of one read. `cursor` is the last seq decided."""

    def __init__(
        self, topic: Topic, query: DiffQuery, now_ms: int, start: tombstone.ReadStart, end_seq: int
    ) -> None:
        index = topic.index
        self.topic, self.index, self.query, self.now_ms = topic, index, query, now_ms
        self.cursor = start.after
        self.room = query.bytes_max
        self.positions: list[int] = []
        self.deleted = self.expired = self.own_node = self.filtered = 0
        lost = index.lost.at(self.cursor + 1) or index.lost.next_from(self.cursor + 1)
        page_stop = end_seq if lost is None else min(end_seq, lost.first - 1)
        self.last = min(page_stop, self.cursor + SCAN_SEQS_MAX)
        self.ended = self.cursor >= self.last or query.limit <= 0
        own = query.nodes if topic.config.dedupe_node else ()
        self.own = Members(frozenset(index.nodes.number(node) for node in own) - {0})
        self.wanted = None if query.match is None else Members(frozenset(query.match.numbers(index.tags)))
        self.stride = _STRIDE_FIRST
        if not self.ended and self.cursor + 1 < index.base_seq:
            self._pass_by(min(index.base_seq - 1, self.last))

    def step(self) -> None:
        """Examine one slice of slots, or pass by a run of dead ones that have left."""
        stop_seq = min(self.cursor + SCAN_SLICE_SEQS, self.last)
        if self.index.slotless.firsts and (run := self.index.slotless.next_from(self.cursor + 1)) is not None:
            if run.first <= self.cursor + 1:
                self._pass_run(run)
                return
            stop_seq = min(stop_seq, run.first - 1)
        start, stop = self.index.position(self.cursor + 1), self.index.position(stop_seq + 1)
        assert stop - start == stop_seq - self.cursor
        full = self._deliver_dense(start, stop) if self._dense(start, stop) else self._examine(start, stop)
        if not full:
            self.cursor = stop_seq
        self.ended = full or self.cursor >= self.last

    def columns(self) -> tuple[array[int], array[int], array[int]]:
        """(seqs, offsets, lengths) of the records to deliver."""
        index, positions = self.index, self.positions
        if not positions:
            return array("Q"), array("I"), array("I")
        first, last = positions[0], positions[-1]
        if last - first + 1 == len(positions):
            span = slice(first, last + 1)
            return index.seqs(first, last + 1), index.offsets[span], index.lengths[span]
        return (
            _seqs_at(index, positions),
            array("I", [index.offsets[at] for at in positions]),
            array("I", [index.lengths[at] for at in positions]),
        )

    def _pass_by(self, last: int) -> None:
        """Seqs up to `last` have no slot any more: they ended voluntarily."""
        deleted, expired = self.index.past.counts(self.cursor + 1, last)
        assert deleted + expired == last - self.cursor
        self.deleted += deleted
        self.expired += expired
        self.cursor = last
        self.ended = self.cursor >= self.last

    def _pass_run(self, run: Gone) -> None:
        last = min(run.last, self.last)
        assert run.end != LOST  # a page ends before
        if run.end == DeathCause.DELETED:
            self.deleted += last - self.cursor
        else:
            self.expired += last - self.cursor
        self.cursor = last
        self.ended = self.cursor >= self.last

    def _dense(self, start: int, stop: int) -> bool:
        """True if every slot is live and nothing can hold it back."""
        if self.wanted is not None:
            return False
        if not self.own and self.index.expires is None:
            return self.index.all_live(start, stop)
        return self.index.flags.count(_PLAIN, start, stop) == stop - start

    def _deliver_dense(self, start: int, stop: int) -> bool:
        """Deliver the slots in order until the page is full; returns whether it is."""
        taken = min(stop - start, self.query.limit - len(self.positions))
        size = sum(self.index.lengths[start : start + taken])
        if size > self.room:
            fitting = 0
            for length in self.index.lengths[start : start + taken]:
                if length > self.room and (self.positions or fitting):
                    break
                self.room -= length
                fitting += 1
            taken = fitting
        else:
            self.room -= size
        self.positions.extend(range(start, start + taken))
        full = taken < stop - start or len(self.positions) >= self.query.limit
        if full:
            self.cursor += taken
        return full

    def _examine(self, start: int, stop: int) -> bool:
        """Decide what becomes of the slots until the page is full; returns whether it is."""
        while start < stop:
            middle = min(start + self.stride, stop)
            if self._examine_some(start, middle):
                return True
            start = middle
            self.stride = min(self.stride * 2, SCAN_SLICE_SEQS)
        return False

    def _examine_some(self, start: int, stop: int) -> bool:
        index = self.index
        slots = stop - start
        flags = bytes(index.flags[start:stop])
        alive = masks.of_flags(flags, _IS_LIVE)
        deleted = masks.of_flags(flags, _IS_DELETED)
        late = own = 0
        if index.expires is not None:
            timed = masks.of_flags(flags, _IS_TIMED) & alive
            late = timed and timed & masks.mask_below(index.expires[start:stop], self.now_ms)
        left = alive ^ late
        if self.own and index.node_ids is not None:
            own = left & self.own.of(index.node_ids[start:stop])
        given = left = left ^ own
        if self.wanted is not None:
            given = 0 if index.tag_ids is None else left & self.wanted.of(index.tag_ids[start:stop])

        if index.has_absent:  # a record whose labels are lost with its bytes must not be passed by in silence
            absent = masks.zero(index.lengths[start:stop]) & (alive ^ late)
            left, given, own = left | absent, given | absent, own & ~absent

        cut, full = self._take(masks.positions(given, start, stop), start, stop)
        alive, deleted, late, own, left, given = (
            masks.before(mask, slots, cut).bit_count() for mask in (alive, deleted, late, own, left, given)
        )
        self.deleted += deleted
        self.expired += cut - alive - deleted + late
        self.own_node += own
        self.filtered += left - given
        self.cursor += cut
        return full

    def _take(self, found: Sequence[int], start: int, stop: int) -> tuple[int, bool]:
        """Deliver what fits. Returns how many slots are decided by that, and whether the page is full."""
        lengths, limit = self.index.lengths, self.query.limit
        assert len(self.positions) < limit
        for at in found:
            if self.positions and lengths[at] > self.room:
                return at - start, True
            self.positions.append(at)
            self.room -= lengths[at]
            if len(self.positions) >= limit:
                return at + 1 - start, True
        return stop - start, False


def _seqs_at(index: Index, positions: Sequence[int]) -> array[int]:
    """The seqs of the slots at these ascending positions."""
    first, last = positions[0], positions[-1]
    shift = index.seq_at(first) - first
    if index.seq_at(last) == last + shift:
        return array("Q", [shift + at for at in positions])
    return array("Q", map(index.seq_at, positions))
