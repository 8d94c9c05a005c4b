"""Reclaiming the space of dead records in segments: what is flagged, what is rewritten, and when (storage 5).

A round of a checkpoint shows its image of the state here (`look`): segments in which more is dead than at the last
look get flags, and a sealed one of which half is dead becomes a candidate, with a mask of what is dead in it.

A candidate is rewritten when the snapshot of that image is the older one of the two that are kept. Then every start
begins with a state in which the dropped records are dead: nothing that folding the log needs of them (sizes, tags,
times) is ever missed, whichever snapshot is damaged, and no loss of a log's tail can make one of them live again.

Rewriting goes in slices: each look of a driver gives it `SLICE_BYTES` to write, and what is written beyond that is
taken from the looks that follow, so that it keeps behind writes and reads. Nothing of all this outlives the process:
after a start the next rounds find the candidates again.

On a full disk flags are left out, for they are hints, and rewriting rests: other work may make room. A segment that is
damaged, or of which the medium does not give something, stays as it is until the next start, and is told (`damaged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Final

import attrs

from topics.codec.segments.segidx import IdxColumns
from topics.codec.segments.segment import END_SIZE
from topics.engine.engine import Engine
from topics.engine.image import StateImage
from topics.host.checkpoint.pins import Pins
from topics.host.checkpoint.snapshots import KEPT_MAX, Kept
from topics.host.checkpoint.steps import Blocking, Steps, Swap, disk_full
from topics.host.segments.flags import flag_ends, note_ends
from topics.host.segments.rewrite import Rewrite
from topics.host.segments.segment_files import load_idx
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.image import TopicImage
from topics.log.past import DeathCause
from topics.log.regions import SegmentId
from topics.log.segments import Segment

SLICE_BYTES: Final = 16 * MIB  # written a look, which is once a second
MASKS_MAX: Final = 16 * MIB  # of all candidates, a byte a slot; those beyond wait for a later round
LOOK_TOGETHER: Final = 32  # segments looked at by one step
ROOM_AGAIN_MS: Final = 30_000  # where there was no room for one, none is rewritten for so long
_POPPED: Final = 1  # in a mask: below the floor, which is one number and needs no flag
_FLAGGED: Final = bytes(bits & (DeathCause.DELETED | DeathCause.EXPIRED) for bits in range(256))
_DeadRun = tuple[int, int, int]


@attrs.frozen(kw_only=True)
class Candidate:
    """A segment to be rewritten. `number`: of the snapshot in which `dead` is dead: nonzero for each such slot."""

    id: SegmentId
    number: int
    dead: bytes


@attrs.frozen(kw_only=True)
class _DeadRecords:
    """What is dead in a segment. `runs`: (first, last, bits of `DeathCause`), ascending."""

    id: SegmentId
    segment: Segment
    runs: Sequence[_DeadRun]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.runs)

    @property
    def mask(self) -> bytes:
        """For each slot what it died of, 0 if it lives."""
        mask = bytearray(self.segment.count)
        for first, last, bits in self.runs:
            mask[first - self.segment.first : last + 1 - self.segment.first] = bytes((bits,)) * (
                last - first + 1
            )
        assert len(mask) == self.segment.count
        return bytes(mask)


class Reclaimer:
    """Flags and rewrites of one store.

    Since the start: `rewrites`, `rewritten_bytes` that they wrote, `freed_bytes` by which they made segments smaller;
    `damaged`: segments that were given up, and why.
    """

    def __init__(self, engine: Engine, disk: Disk, pins: Pins, *, min_free_bytes: int = 0) -> None:
        self.rewrites = 0
        self.rewritten_bytes = 0
        self.freed_bytes = 0
        self.damaged: dict[SegmentId, str] = {}
        self.slice_bytes = SLICE_BYTES
        self._engine = engine
        self._disk = disk
        self._pins = pins
        self._min_free_bytes = min_free_bytes
        self._seen: dict[SegmentId, int] = {}
        self._candidates: dict[SegmentId, Candidate] = {}
        self._credit = 0
        self._again_ms = 0

    # In a round.

    def look(self, image: StateImage, number: int) -> Steps:
        """Flag what ended since the last look, and note what is half dead. Snapshot `number` of `image` is kept."""
        looks: list[_DeadRecords] = []
        yield Blocking(partial(self._find, image, looks))
        for start in range(0, len(looks), LOOK_TOGETHER):
            yield Blocking(partial(self._look_at, looks[start : start + LOOK_TOGETHER], number))

    def forget(self, needed: frozenset[SegmentId]) -> None:
        """Segments that no snapshot names have gone."""
        self._seen = {known: count for known, count in self._seen.items() if known in needed}
        self._candidates = {known: one for known, one in self._candidates.items() if known in needed}
        self.damaged = {known: why for known, why in self.damaged.items() if known in needed}

    # Between rounds.

    def waits(self, kept: Sequence[Kept]) -> bool:
        """True if a candidate needs another round before it can be rewritten."""
        return any(not _is_ready(one, kept) for one in self._candidates.values())

    def due(self, kept: Sequence[Kept]) -> Steps | None:
        """A slice of rewriting, None if there is nothing to rewrite now."""
        self._credit = min(self._credit + self.slice_bytes, self.slice_bytes)
        if self._engine.now_ms() < self._again_ms:
            return None
        if self._credit <= 0 or not any(map(self._may_begin, self._ready(kept))):
            return None
        return self._slice(kept)

    def everything(self, kept: Sequence[Kept]) -> Steps:
        """All that can be rewritten now, at once: somebody waits for it."""
        for candidate in self._ready(kept):
            if candidate.id in self._candidates and self._may_begin(candidate):
                yield from self._rewrite(candidate)

    def give_up(self, segment: SegmentId, why: str) -> None:
        """It is damaged: it stays as it is, until the next start."""
        self.damaged = {**self.damaged, segment: why}
        self._candidates.pop(segment, None)

    def half_dead(self) -> frozenset[SegmentId]:
        """What is going to be rewritten: it had better not go to the cold tier before."""
        return frozenset(self._candidates)

    def cold_ones(self, kept: Sequence[Kept]) -> list[SegmentId]:
        """What could be rewritten now if it was not in the cold tier."""
        return [one.id for one in self._ready(kept) if self._is_cold(one)]

    # Inside.

    def _find(self, image: StateImage, looks: list[_DeadRecords]) -> None:
        """Segments in which another number of records is dead than at the last look."""
        for topic in image.topics:
            looks += [look for look in _dead_of(topic) if look.count != self._seen.get(look.id, 0)]

    def _look_at(self, looks: Sequence[_DeadRecords], number: int) -> None:
        """Flag what is dead in these segments, and make candidates of those of which half is."""
        for look in looks:
            if self._pins.holds(look.id) or look.id in self.damaged:
                continue
            try:
                with unreadable_on_error():
                    idx, rebuilt = load_idx(self._disk, look.id.topic_id, look.segment)
            except Unreadable as failed:
                self.give_up(look.id, str(failed))
                continue
            mask = look.mask
            unfit = rebuilt and not look.segment.cold  # the next start mends it, or tells that it is damaged
            flagged = unfit or self._flag(look, idx, mask.translate(_FLAGGED))
            if look.id in self.damaged:
                continue
            dead = sum(length + END_SIZE for length in compress(idx.lengths, mask) if length)
            if look.segment.sealed and look.segment.size <= 2 * dead > 0 and look.id not in self._candidates:
                if sum(len(one.dead) for one in self._candidates.values()) + len(mask) > MASKS_MAX:
                    continue
                self._candidates[look.id] = Candidate(id=look.id, number=number, dead=mask)
            if flagged:
                self._seen[look.id] = look.count

    def _flag(self, look: _DeadRecords, idx: IdxColumns, ends: bytes) -> bool:
        """False if there is no room for it: a later round does it. One that cannot be read is given up."""
        topic_id, segment = look.id.topic_id, look.segment
        try:
            if not segment.cold:
                return flag_ends(self._disk, topic_id, segment, idx, ends, free_min=self._min_free_bytes)
            note_ends(self._disk, topic_id, segment, ends)
        except Unreadable as failed:
            self.give_up(look.id, str(failed))
        except OSError as error:
            if not disk_full(error):
                raise
            return False
        return True

    def _ready(self, kept: Sequence[Kept]) -> list[Candidate]:
        return [one for one in self._candidates.values() if _is_ready(one, kept)]

    def _may_begin(self, candidate: Candidate) -> bool:
        return not self._pins.holds(candidate.id) and not self._is_cold(candidate)

    def _is_cold(self, candidate: Candidate) -> bool:
        segment = self._engine.catalog.find_segment(candidate.id)
        return segment is not None and segment.cold

    def _slice(self, kept: Sequence[Kept]) -> Steps:
        """Rewrites one after the other, until as much is written as a look may."""
        for candidate in self._ready(kept):
            if self._credit <= 0 or self._engine.now_ms() < self._again_ms:
                return
            if self._may_begin(candidate):
                yield from self._rewrite(candidate)

    def _rewrite(self, candidate: Candidate) -> Steps:
        """One rewrite. A candidate is forgotten when it is done, given up, or has gone; not if it is postponed."""
        segment = self._engine.catalog.find_segment(candidate.id)
        if segment is None or segment.cold:
            del self._candidates[candidate.id]
            return
        assert segment.count == len(candidate.dead)
        of_queue = self._engine.catalog.topics[candidate.id.topic_id].index.of_queue
        rewrite = Rewrite(self._disk, candidate.id.topic_id, segment, candidate.dead, of_queue=of_queue)
        yield Blocking(partial(rewrite.begin, self._min_free_bytes))
        for chunk in rewrite.chunks():
            yield Blocking(partial(rewrite.copy, chunk))
        yield Blocking(rewrite.end)
        if rewrite.postponed:
            self._again_ms = self._engine.now_ms() + ROOM_AGAIN_MS
            self._candidates[candidate.id] = self._candidates.pop(candidate.id)  # others may need less
            return
        yield Swap(partial(rewrite.swap, self._engine))
        del self._candidates[candidate.id]
        if rewrite.damaged is not None:
            self.give_up(candidate.id, rewrite.damaged)
        if rewrite.swapped:
            yield Blocking(rewrite.finish)
            self.rewrites += 1
            self.rewritten_bytes += rewrite.size
            self.freed_bytes += segment.size - rewrite.size
        self._credit -= rewrite.size


def _is_ready(candidate: Candidate, kept: Sequence[Kept]) -> bool:
    """True if what it drops is dead in both snapshots that a start may begin with."""
    return len(kept) == KEPT_MAX and all(candidate.number <= one.number for one in kept)


def _dead_of(topic: TopicImage) -> Iterator[_DeadRecords]:
    """What is dead in each of a topic's segments, of those in which anything is."""
    dead, at = topic.dead, 0
    for segment in topic.segments:
        if segment.last < topic.base_seq:
            continue
        runs: list[_DeadRun] = []
        if segment.first < topic.base_seq:
            runs.append((segment.first, topic.base_seq - 1, _POPPED))
        while at < len(dead) and dead[at][0] <= segment.last:
            first, last, bits = dead[at]
            if last >= segment.first:
                runs.append((max(first, segment.first), min(last, segment.last), bits))
            if last > segment.last:
                break  # it goes on in the next one
            at += 1
        if runs:
            yield _DeadRecords(id=SegmentId(topic.topic_id, segment.first), segment=segment, runs=runs)
