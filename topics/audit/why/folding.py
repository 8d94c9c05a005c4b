"""The fold of one topic by recovery's own rules, and who watches it: which frame took which of some seqs.

Nothing is worked out here that a start does not work out: the index tells what dies (`on_killed`), the floors tell why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from topics.audit.why.kept_log import At, KeptLog
from topics.audit.why.starts import FoldStart
from topics.codec.log.control import ConfigUpdate, Control, Delete, LossRange
from topics.codec.log.frame import Run
from topics.codec.log.leases import Acked, Moved, Purged
from topics.engine.apply import Catalog
from topics.engine.image import LogPlace
from topics.engine.recovery.recover import Folding, ShardKey, name_damages
from topics.host.cold.cold_disk import ColdBehind
from topics.host.directory.loading import settle_rewritten
from topics.log import retention
from topics.log.floors import Reason
from topics.log.index import LIVE
from topics.log.topic import Topic

_TAKEN_BY: Final = {
    Delete: "deleted",
    Acked: "acked",
    Moved: "moved",
    Purged: "purged",
    ConfigUpdate: "expired",
}


@attrs.frozen(kw_only=True, eq=False)
class End:
    """What took some seqs, and where that lies in the log; None: time alone, which no frame has said yet."""

    state: str
    at: At | None
    ts: int
    reason: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None


@attrs.define(eq=False)
class WatchedSeqs:
    """The seqs [first, last]. `ends`: of each that has ended; `passed`: by which loss a floor went over the first of
    them behind its end. `catalog`: what the fold gave; `is_damaged`: not all of the log fitted.
    """

    first: int
    last: int
    ends: dict[int, End] = attrs.field(factory=dict)
    passed: End | None = None
    catalog: Catalog = attrs.field(factory=Catalog)
    is_damaged: bool = False
    _topic: Topic | None = None
    _places: Mapping[ShardKey, LogPlace] = attrs.field(factory=dict)
    _at: At | None = None
    _ts: int = 0
    _dying: list[int] = attrs.field(factory=list)
    _last_dying: int = 0
    _head: int = 0
    _floor: int = 1

    def fold(self, disk: ColdBehind, start: FoldStart, log: KeptLog, topic_id: int) -> Topic | None:
        """Fold all of the topic's log from there. None: it is not there any more."""
        self.catalog, self._places = start.catalog, start.places
        folding = Folding(start.catalog)
        # The others are not folded, but routers name them: those from before it, and those that the log has.
        folding.known = max(folding.known, topic_id)
        folding.created.update(item.topic_id for item, _ in log.creations() if item.topic_id != topic_id)
        self._follow(start.catalog.topics.get(topic_id))
        for key in sorted(log.shards):
            verdict = log.shards[key].verdict
            place = start.places.get(key)
            for item, file in verdict.items() if place is None or place.file else ():
                behind = place is None or (file.first_frame, item.offset) >= (place.file, place.offset)
                if item.topic_id == topic_id and behind:
                    self._add(folding, At(item, log.paths[file], file), whole=not verdict.damages)
        self.is_damaged = bool(folding.damages)
        self._begin(None)
        for key in sorted(log.shards):
            list(name_damages(self.catalog, log.shards[key].verdict))
        self._end()
        settle_rewritten(disk, self.catalog, start.unsure)
        return self._topic

    def has_folded(self, at: At) -> bool:
        """Whether the fold went through that place, so that it would have seen an end there."""
        place = self._places.get(at.file[:2])
        if self._topic is None or (place is not None and not place.file):
            return False
        return place is None or (at.file.first_frame, at.item.offset) >= (place.file, place.offset)

    def let_pass(self, now_ms: int) -> None:
        """What time has ended, and no frame says yet."""
        assert self._topic is not None
        self._begin(None)
        self._ts = now_ms
        retention.retire(self._topic, now_ms)
        self._end()
        if self._topic.jobs is not None:
            self._topic.jobs.advance(now_ms)

    def _add(self, folding: Folding, at: At, *, whole: bool) -> None:
        self._begin(at)
        folding.add(at.item, at.file, whole=whole)
        if self._topic is not folding.catalog.topics.get(at.item.topic_id):
            self._follow(folding.catalog.topics.get(at.item.topic_id))
        self._end()

    def _follow(self, topic: Topic | None) -> None:
        self._topic = topic
        if topic is None:
            return
        before = topic.index.on_killed

        def killed(positions: Iterable[int]) -> None:
            these = list(positions)
            self._killed(topic, these)
            if before is not None:
                before(these)

        topic.index.on_killed = killed

    def _begin(self, at: At | None) -> None:
        self._at = at
        self._ts = self._ts if at is None else at.item.ts
        self._head = 0 if self._topic is None else self._topic.head_seq
        self._floor = 1 if self._topic is None else self._topic.evict_floor

    def _killed(self, topic: Topic, positions: list[int]) -> None:
        """Behind what died before in the same frame, of which the floors say by now why."""
        self._tell_dead(topic)
        index, first, last = topic.index, self.first, self.last
        alive = [index.seq_at(at) for at in positions if index.flags[at] & LIVE]
        self._dying = [seq for seq in alive if first <= seq <= last]
        self._last_dying = alive[-1] if alive else 0

    def _tell_dead(self, topic: Topic) -> None:
        if self._dying:
            end = self._end_of(topic, self._last_dying)
            self.ends.update(dict.fromkeys(self._dying, end))
        self._dying = []

    def _end_of(self, topic: Topic, last_seq: int) -> End:
        item = None if self._at is None else self._at.item
        floors = topic.floors
        if isinstance(item, Control) and isinstance(item.payload, LossRange):
            return self._made("lost", reason=item.payload.reason)
        if floors.evict_floor == last_seq + 1:
            reason = next((reason for reason, seq in floors.reasons.items() if seq == last_seq), Reason.CAP)
            if reason in (Reason.CAP, Reason.TTL):
                return self._made("lost", reason=reason.value, by=item)
        payload = item.payload if isinstance(item, Control) else None
        state = _TAKEN_BY.get(type(payload), "expired")  # type: ignore[arg-type]  # None is in no table
        if isinstance(payload, ConfigUpdate) and payload.carried is not None:
            state = "deleted"
        reason_text = selector(payload) if isinstance(payload, Delete) else None
        return self._made(state, reason=reason_text)

    def _made(
        self,
        state: str,
        *,
        reason: str | None = None,
        by: Run | Control | None = None,
    ) -> End:
        first, last = (by.seq_start, by.seq_stop - 1) if isinstance(by, Run) else (None, None)
        return End(state=state, at=self._at, ts=self._ts, reason=reason, first_seq=first, last_seq=last)

    def _end(self) -> None:
        topic = self._topic
        if topic is None:
            return
        self._tell_dead(topic)
        self._tell_lost(topic)
        if self._floor <= self.first < topic.evict_floor and self.first in self.ends:
            if self.ends[self.first].state != "lost" and self.passed is None:
                highest = max(topic.floors.reasons, key=topic.floors.reasons.__getitem__)
                self.passed = self._made("passed", reason=highest.value)

    def _tell_lost(self, topic: Topic) -> None:
        """Seqs that the head has moved over without a record."""
        first, item = self._head + 1, None if self._at is None else self._at.item
        last = item.seq_start - 1 if isinstance(item, Run) else topic.head_seq
        if first > last or topic.head_seq < self.first:
            return
        loss = item.payload if isinstance(item, Control) else None
        reason = Reason.CORRUPT.value
        if isinstance(loss, LossRange):
            reason = loss.reason
        elif isinstance(loss, ConfigUpdate) and loss.carried is not None:
            return  # records of its time as an ephemeral topic, of which no frame tells
        end = End(state="lost", at=self._at, ts=self._ts, reason=reason, first_seq=first, last_seq=last)
        seqs = range(max(first, self.first), min(last, self.last) + 1)
        self.ends.update({seq: end for seq in seqs if seq not in self.ends})


def selector(delete: Delete) -> str:
    """What a delete asked for, in the words of a call."""
    parts = [] if delete.before_seq is None else [f"before_seq {delete.before_seq}"]
    parts += [] if delete.match is None else [f"match {delete.match.decode('utf-8', 'backslashreplace')}"]
    return " and ".join(parts)
