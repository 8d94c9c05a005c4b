"""Moving sealed segments between the tiers, as steps that a driver carries out (storage 6, seed 3.6).

    to the cold tier:  copy data, idx and columns; read them back and compare    (the store makes them durable)
                       log a mark that says so; sync the log                     (the commit point)
                       remove the data from the data directory
    back:              copy the data aside, flag in it what .del says; sync, rename
                       log a mark that says so; sync the log
                       remove the segment from the cold tier

Idx and columns stay in the data directory, so a start reads nothing of the cold tier. Whatever a crash leaves is
settled after the next start: the log says where the segment is, and the other copy goes, unless it is the only whole
one. So at every moment the tier that the durable state names has all of the segment.

A segment moves as a whole. A slice of work is one segment, or small ones up to SLICE_BYTES. A cold store that fails
holds up nothing but this: what was begun is left, and tried again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from topics.codec.log.control import CheckpointMark
from topics.codec.primitives import checksum
from topics.engine.commands import Checkpointed, Sync
from topics.engine.engine import Engine
from topics.host.checkpoint.pins import Pins
from topics.host.checkpoint.reclaim import Reclaimer
from topics.host.checkpoint.snapshots import KEPT_MAX, Kept
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps
from topics.host.cold.carrying import SegmentCopies, Unmovable
from topics.host.cold.cold_tier import ColdTier
from topics.host.cold.ownership import OwnedStore
from topics.host.cold.segment_stores import HotRules, StoreFailed
from topics.host.system.refusals import FULL
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.limits import MIB, U64_MAX
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId
from topics.log.segments import Segment

SLICE_BYTES: Final = 16 * MIB
SLICE_WORKS: Final = 64
TOGETHER: Final = 64  # small works that are one
AGAIN_MS: Final = 30_000  # after the store has failed, while a backup is in the way, or a full disk
NEVER_MS: Final = U64_MAX
_Work = Generator[Step, None, int]  # says how many bytes it has moved
_WorkKey = tuple[Callable[..., _Work], tuple[object, ...]]


@attrs.define
class MoveCounts:
    """What has been moved since the start."""

    to_cold: int = 0
    to_cold_bytes: int = 0
    to_hot: int = 0
    dropped: int = 0


class CheckpointerView(Protocol):
    """What relocation sees of the checkpointer. `rounds`: how many were taken; only they make work."""

    engine: Engine
    disk: Disk
    pins: Pins
    reclaimer: Reclaimer
    kept: list[Kept]
    rounds: int


@attrs.frozen
class Relocation:
    """What a Relocator needs besides the checkpointer that makes it."""

    cold: ColdTier
    entropy: Entropy
    rules: HotRules
    min_free_bytes: int = 0

    def begin(self, checkpointer: CheckpointerView) -> Relocator:
        return Relocator(checkpointer, self)


class Relocator:
    """The moves of one store, one at a time. `failed`: what is the matter with the cold store, None if nothing is."""

    def __init__(self, checkpointer: CheckpointerView, needs: Relocation) -> None:
        cold = needs.cold
        self.counts = MoveCounts()
        self.failed: str | None = None
        self.unmovable: dict[SegmentId, str] = {}  # damaged ones stay where they are
        self._checkpointer = checkpointer
        self._engine = checkpointer.engine
        self._disk = checkpointer.disk
        self._cold = cold
        self._store = (
            None if cold.store is None else OwnedStore(cold.store, self._disk, needs.entropy, cold.set_owner)
        )
        self._rules = needs.rules
        self._min_free_bytes = needs.min_free_bytes
        self._pins = checkpointer.pins
        self._present: set[SegmentId] = set()
        self._noted: dict[SegmentId, int] = {}  # digests of the .del files that the store has
        self._works: deque[partial[_Work]] = deque()
        self._put_off: dict[_WorkKey, int] = {}  # those in which the store has failed, ascending by when
        self._planned = -1  # the round after which the works were planned
        self._settled = False
        self._again_ms = 0
        self._replan_ms = NEVER_MS

    def due(self) -> Steps | None:
        """What is to be moved now, None if nothing is or the store has failed a moment ago."""
        if self._store is None or self._engine.now_ms() < self._again_ms:
            return None
        if not self._settled:
            return self._settle(self._store)
        if self._planned != self._checkpointer.rounds or self._engine.now_ms() >= self._replan_ms:
            self._plan()
        return self._slice() if self._works else None

    # What is to be done.

    def _plan(self) -> None:
        """Look at all topics, after a checkpoint: only one seals segments or lets go of some."""
        self._planned = self._checkpointer.rounds
        self._replan_ms = NEVER_MS
        self._works.clear()
        topics = self._engine.catalog.topics
        self.unmovable = {
            known: why for known, why in self.unmovable.items() if self._find(known) is not None
        }
        half_dead = self._checkpointer.reclaimer.half_dead()
        for topic_id, topic in topics.items():
            for found in self._rules.surplus(topic):
                segment = SegmentId(topic_id, found.first)
                if segment not in self.unmovable and segment not in half_dead:
                    self._works.append(partial(self._to_cold, segment))
        for segment in self._checkpointer.reclaimer.cold_ones(self._checkpointer.kept):
            self._works.append(partial(self._to_hot, segment))  # behind what makes room
        noted = [
            SegmentId(topic_id, segment.first)
            for topic_id, topic in topics.items()
            for segment in topic.segments
            if segment.cold and SegmentId(topic_id, segment.first) not in self.unmovable
        ]
        for start in range(0, len(noted), TOGETHER):
            self._works.append(partial(self._note_ends, tuple(noted[start : start + TOGETHER])))
        orphans = self._orphans()
        for start in range(0, len(orphans), TOGETHER):
            self._works.append(partial(self._drop, tuple(orphans[start : start + TOGETHER])))
        self._order()

    def _order(self) -> None:
        """What the store has refused goes behind all others, for it may refuse that for ever: the last one last."""
        keys = {(work.func, work.args) for work in self._works}
        self._put_off = {key: order for key, order in self._put_off.items() if key in keys}
        self._works = deque(
            sorted(self._works, key=lambda work: self._put_off.get((work.func, work.args), 0))
        )

    def _orphans(self) -> list[SegmentId]:
        """Segments of the store that neither the state nor a snapshot that may be started from needs."""
        kept = self._checkpointer.kept
        if len(kept) < KEPT_MAX:
            return []
        needed = frozenset.union(*(one.segments for one in kept))
        return [
            segment
            for segment in sorted(self._present)
            if segment not in needed and self._find(segment) is None and not self._pins.holds(segment)
        ]

    def _slice(self) -> Steps:
        """Works one after the other, until enough is moved or the store fails."""
        self.failed = None
        moved = done = 0
        planned, self._planned = self._planned, -1  # one that is broken off is planned anew
        while self._works and moved < SLICE_BYTES and done < SLICE_WORKS and not self._is_failing():
            work = self._works.popleft()
            moved += yield from work()
            done += 1
            if self._is_failing():
                self._put_off[work.func, work.args] = 1 + max(self._put_off.values(), default=0)
        if self._store is not None:
            yield Blocking(partial(self._ask, self._store.end_changes))
        if not self._is_failing():
            self._planned = planned

    # One segment.

    def _to_cold(self, segment: SegmentId) -> _Work:
        """Move a segment to the cold tier. Nothing is done if it has gone, was moved, or a backup needs it."""
        found, store = self._find(segment), self._store
        if found is None or found.cold or store is None or self._pins.holds(segment):
            return 0
        carrier = SegmentCopies(self._disk, store, segment, found)
        yield Blocking(partial(self._ask, partial(self._copy_out, carrier)))
        if self._is_failing() or segment in self.unmovable:
            return found.size
        self._present.add(segment)
        yield from self._log(segment, found, cold=True)
        if self._cold.is_cold(segment):  # else the segment has gone meanwhile
            yield Blocking(carrier.drop_hot)
            self.counts.to_cold += 1
            self.counts.to_cold_bytes += found.size
        return found.size

    def _copy_out(self, carrier: SegmentCopies) -> None:
        try:
            carrier.copy_out()
        except Unmovable as damage:
            self.unmovable[carrier.segment] = damage.message

    def _to_hot(self, segment: SegmentId) -> _Work:
        """Bring a segment back into the data directory, so that it can be rewritten there."""
        found, store = self._find(segment), self._store
        if found is None or not found.cold or store is None or segment in self.unmovable:
            return 0
        if self._pins.holds(segment):  # a backup may be reading it there
            return 0
        carrier = SegmentCopies(self._disk, store, segment, found)
        yield Blocking(partial(self._ask, partial(self._copy_back, carrier)))
        if not carrier.returned:
            if segment not in self.unmovable and not self._is_failing():  # there was no room
                self._replan_ms = self._engine.now_ms() + AGAIN_MS
            return found.size
        yield from self._log(segment, found, cold=False)
        if self._find(segment) is not None:
            self.counts.to_hot += 1
            yield from self._drop_cold(carrier)
        return found.size

    def _drop_cold(self, carrier: SegmentCopies) -> Steps:
        """A copy that the store does not let go of stays known: it goes when nobody needs the segment any more."""
        yield Blocking(partial(self._ask, carrier.drop_cold))
        if not self._is_failing():
            self._present.discard(carrier.segment)
            self._noted.pop(carrier.segment, None)

    def _copy_back(self, carrier: SegmentCopies) -> None:
        """Nothing is done if there is no room, for the segment and what it is rewritten to; it is tried again later."""
        try:
            if self._disk.free_bytes(carrier.directory) >= self._min_free_bytes + 2 * carrier.found.size:
                carrier.copy_back()
        except Unmovable as damage:
            self.unmovable[carrier.segment] = damage.message
        except OSError as error:
            if error.errno not in FULL:
                raise
            carrier.drop_temporaries()  # somebody else took the room

    def _log(self, segment: SegmentId, found: Segment, *, cold: bool) -> Steps:
        """Say where the segment is, durably."""
        mark = CheckpointMark(found.first, found.last + 1, found.last, found.size, sealed=True, cold=cold)
        yield Propose(Checkpointed(topic_id=segment.topic_id, mark=mark))
        if segment.topic_id in self._engine.catalog.topics:
            yield Propose(Sync(shard=self._engine.shard_of(segment.topic_id)))

    # Many at once.

    def _note_ends(self, segments: Sequence[SegmentId]) -> _Work:
        """The .del files that are new go to the store, too."""
        store = self._store
        assert store is not None
        there = [(segment, found) for segment in segments if (found := self._find(segment)) is not None]
        carriers = [
            SegmentCopies(self._disk, store, segment, found) for segment, found in there if found.cold
        ]
        if carriers:
            yield Blocking(partial(self._ask, partial(self._put_ends, carriers)))
        return 0

    def _put_ends(self, carriers: Sequence[SegmentCopies]) -> None:
        for carrier in carriers:
            try:
                ends = carrier.read_ends()
            except Unmovable as damage:
                self.unmovable[carrier.segment] = damage.message
                continue
            if ends and self._noted.get(carrier.segment) != (digest := checksum(ends)):
                carrier.put_ends(ends)
                self._noted[carrier.segment] = digest

    def _drop(self, segments: Sequence[SegmentId]) -> _Work:
        """Remove segments from the store that nobody needs."""
        store = self._store
        assert store is not None
        for segment in segments:
            yield Blocking(partial(self._ask, partial(store.delete, segment)))
            if self._is_failing():
                break
            self._present.discard(segment)
            self._noted.pop(segment, None)
            self.counts.dropped += 1
        return 0

    # After a start.

    def _settle(self, store: OwnedStore) -> Steps:
        """Finish what a crash has broken off."""
        self.failed = None
        yield Blocking(partial(self._ask, partial(self._look, store, self._cold.segments())))
        if self._is_failing():
            return
        carriers = [
            SegmentCopies(self._disk, store, segment, found)
            for topic_id, topic in self._engine.catalog.topics.items()
            for found in topic.segments
            if found.sealed and (found.cold or SegmentId(topic_id, found.first) in self._present)
            for segment in (SegmentId(topic_id, found.first),)
        ]
        doubles: list[SegmentCopies] = []
        yield Blocking(partial(_find_hot, carriers, doubles))
        for carrier in doubles:
            if self._pins.holds(carrier.segment):  # a backup reads the copy that it has found
                self._wait()
                return
            yield from self._settle_one(carrier)
            if self._is_failing():
                return
        self._settled = True

    def _look(self, store: OwnedStore, expected: int) -> None:
        """See that the store is ours, and what is there. `expected`: segments that the state says are cold."""
        store.claim(expected)
        self._present = set(store.list())

    def _settle_one(self, carrier: SegmentCopies) -> Steps:
        """A segment of which something is hot, and something is or should be cold."""
        segment, found = carrier.segment, carrier.found
        yield Blocking(partial(self._ask, carrier.look))
        if self._is_failing() or not (carrier.hot_whole and carrier.cold_whole):
            if carrier.hot_whole and found.cold and not self._is_failing():
                yield from self._log(segment, found, cold=False)  # the only one there is
            return
        if found.cold:
            yield Blocking(carrier.drop_hot)
        else:
            yield from self._drop_cold(carrier)

    # Inside.

    def _find(self, segment: SegmentId) -> Segment | None:
        found = self._engine.catalog.find_segment(segment)
        return found if found is not None and found.sealed else None

    def _ask(self, call: Callable[[], None]) -> None:
        """A call that asks the store. Its failure ends the slice and nothing else; it is asked again later."""
        try:
            call()
        except StoreFailed as error:
            self._fail(str(error))
        except (Rejected, Corrupt) as refused:
            self._fail(refused.message)

    def _is_failing(self) -> bool:
        return self.failed is not None

    def _fail(self, why: str) -> None:
        self.failed = why
        self._wait()

    def _wait(self) -> None:
        self._again_ms = self._engine.now_ms() + AGAIN_MS


def _find_hot(carriers: Sequence[SegmentCopies], doubles: list[SegmentCopies]) -> None:
    """Those whose data is in the data directory. As a rule that is none, so the store is not asked of all of them."""
    doubles += [carrier for carrier in carriers if carrier.is_hot()]
