"""Recovery: what the files of a directory say, folded by the same `apply` as live writes (storage 4).

Pure. The driver reads each file and asks `look`; `judge` decides shard by shard; `recover` folds everything kept, in
the order generations, shard 0 first, other shards, and says what is damaged or cut, by topic and seq. A damaged
store gives the read-only view that a repair would keep: every intact frame, and a `corrupt` lost range for what is
missing between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from topics.codec.log.consumers import ConsumerCommit
from topics.codec.log.control import (
    CheckpointMark,
    CommitMark,
    ConfigUpdate,
    Control,
    Delete,
    LossRange,
    Payload,
    TopicCreate,
)
from topics.codec.log.frame import Run
from topics.codec.log.layout import FRAME_OVERHEAD, FrameType
from topics.codec.log.leases import LeaseEvent, Purged
from topics.codec.log.routers import RouterCreate
from topics.engine.apply import Catalog, apply
from topics.engine.recovery.judge import Item, LogState, Verdict
from topics.log import fold
from topics.log.floors import Reason
from topics.log.lost import LostRange
from topics.log.regions import SegmentId, WalFileId
from topics.log.topic import Topic

ShardKey = tuple[int, int]  # generation, shard
REPORTS: Final = 100  # of progress, in all
_WORDS: Final = {
    FrameType.DELETE: "delete",
    FrameType.LEASE: "lease event",
    FrameType.CONSUMER_COMMIT: "commit",
}


@attrs.frozen(kw_only=True)
class DamageReport:
    """Acknowledged data that is gone or wrong: file, offset, why; topic and seqs where they can be told.

    Damage in the log leaves unknown what was promised behind it, so a store with such is read-only. Damage in a segment
    takes the records it names and nothing else. `newer`: a frame of a type that this version does not know, which makes
    the store read-only wherever it lies.
    """

    file: WalFileId | SegmentId
    offset: int
    why: str
    topic: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    newer: bool = False

    @property
    def in_log(self) -> bool:
        return isinstance(self.file, WalFileId)

    def __str__(self) -> str:
        what = "written by a newer version" if self.newer else "unknown records"
        if self.topic is not None:
            what = f"topic {self.topic!r} seqs {self.first_seq}-{self.last_seq}"
        if isinstance(self.file, SegmentId):
            return f"{what}: {self.why} (segment {self.file.first_seq})"
        return f"{what}: {self.why} (wal file {self.file.first_frame}, offset {self.offset})"


@attrs.frozen(kw_only=True)
class CutReport:
    """An un-synced tail that was cut: how many bytes, and the highest seqs still readable in it, by topic."""

    file: WalFileId
    offset: int
    bytes: int
    seqs: Mapping[str, int]

    def __str__(self) -> str:
        named = (
            ", ".join(f"{topic!r} up to seq {seq}" for topic, seq in self.seqs.items()) or "no whole record"
        )
        where = f"at offset {self.offset} of wal file {self.file.first_frame}"
        return f"{self.bytes} bytes of tail that no mark covers cut {where}: {named}"


@attrs.frozen(kw_only=True)
class Recovered:
    catalog: Catalog
    damages: Sequence[DamageReport]
    cuts: Sequence[CutReport]

    @property
    def read_only(self) -> bool:
        return any(damage.in_log or damage.newer for damage in self.damages)

    @property
    def newer(self) -> DamageReport | None:
        """What a newer version of topics has written here, and this one cannot read."""
        return next((damage for damage in self.damages if damage.newer), None)


def recover(
    verdicts: Mapping[ShardKey, Verdict],
    catalog: Catalog | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> Recovered:
    """Fold the kept items of every shard, generations in order, shard 0 of each first, onto what a snapshot holds.

    `progress` is told now and then which share of the items is folded; the last time 1.
    """
    folding = Folding(catalog or Catalog())
    total = sum(len(seen.items) for verdict in verdicts.values() for seen in verdict.looks)
    step, done = max(1, total // REPORTS), 0
    for key in sorted(verdicts):
        verdict = verdicts[key]
        for item, file in verdict.items():
            folding.add(item, file, whole=verdict.state is not LogState.CORRUPT)
            done += 1
            if progress is not None and done % step == 0:
                progress(min(done / max(1, total), 1.0))  # a damaged log gives items that are in no total
    if progress is not None:
        progress(1.0)
    catalog = folding.catalog
    for key in sorted(verdicts):  # behind everything intact: what a broken head claims is the weakest witness
        folding.damages += name_damages(catalog, verdicts[key])
    if folding.damages:
        folding.damages += _lose_forwarded(catalog, folding.damages[0].file)
    cuts = [
        cut_report(catalog, verdict)
        for _, verdict in sorted(verdicts.items())
        if verdict.state is LogState.TORN
    ]
    return Recovered(catalog=catalog, damages=folding.damages, cuts=[cut for cut in cuts if cut is not None])


class Folding:
    """The state being folded, and what did not fit. `created`: all topic ids so far, but those below `known`, which a
    snapshot has seen; `missing`: ids that never were.
    """

    __slots__ = ("catalog", "created", "damages", "known", "missing")

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.known = catalog.next_topic_id
        self.damages: list[DamageReport] = []
        self.created: set[int] = set()
        self.missing: set[int] = set()

    def add(self, item: Item, file: WalFileId, *, whole: bool) -> None:
        """Fold one item where it fits. `whole`: nothing of its shard is damaged."""
        if not isinstance(item, Run):
            if isinstance(item.payload, TopicCreate) and not self._make_way(item, item.payload, file):
                return
            if isinstance(item.payload, CommitMark | TopicCreate):
                apply(self.catalog, item, file)
                return
        topic = self.catalog.topics.get(item.topic_id)
        if topic is not None:
            self.damages += _make_fit(topic, item, file, whole=whole)
            if not _fits(topic, item):
                return
        elif not self._was_created(item.topic_id):
            self._miss(item.topic_id, item, file)
            return
        if isinstance(item, Control) and isinstance(item.payload, RouterCreate):
            if not self._was_created(item.payload.dest_id):
                self._miss(item.payload.dest_id, item, file)
                return
        apply(self.catalog, item, file)

    def _miss(self, topic_id: int, item: Item, file: WalFileId) -> None:
        """The creation of a topic that this item is of is not there: said once."""
        if topic_id not in self.missing:
            why = f"of topic id {topic_id}, whose creation is not in the log, from here on"
            self.damages.append(DamageReport(file=file, offset=item.offset, why=why))
        self.missing.add(topic_id)

    def _was_created(self, topic_id: int) -> bool:
        return topic_id < self.known or topic_id in self.created

    def _make_way(self, item: Control, created: TopicCreate, file: WalFileId) -> bool:
        """A name that is created again had been deleted, whatever the log still holds of that. False: not to fold."""
        if self._was_created(item.topic_id):
            why = f"topic id {item.topic_id} comes again, as {created.name!r}"
            self.damages.append(DamageReport(file=file, offset=item.offset, why=why))
            return False
        self.created.add(item.topic_id)
        before = self.catalog.find(created.name)
        if before is not None:
            self.catalog.remove(before)
            why = f"topic {created.name!r} is created again, so its deletion before this is missing"
            self.damages.append(DamageReport(file=file, offset=item.offset, why=why))
        return True


def _make_fit(topic: Topic, item: Item, file: WalFileId, *, whole: bool) -> Iterable[DamageReport]:
    """Report what an intact item shows to be wrong before it, and fold what it says of that.

    Seqs follow each other; a delete was given a head that was published; a topic whose floors are carried was empty.
    """
    start = _starts(item)
    payload = None if isinstance(item, Run) else item.payload
    if start is not None:
        if start > topic.head_seq + 1:
            yield _lose_before(topic, start, item, file)
        elif start <= topic.head_seq and whole:
            why = f"seq {start} comes again behind {topic.head_seq}"
            yield _report(topic, start, topic.head_seq, why, item, file)
    elif (last := _last_named(payload)) > topic.head_seq:
        yield _lose_before(topic, last + 1, item, file)
    elif isinstance(payload, ConfigUpdate) and (carried := payload.carried) is not None:
        if carried.head_seq < topic.head_seq:
            why = f"an update carries head {carried.head_seq}, below what the log holds"
            yield _report(topic, carried.head_seq + 1, topic.head_seq, why, item, file)
        elif carried.head_seq == topic.head_seq and topic.index.live_count:
            why = "deleted before an intact update, by nothing that the log still holds"
            yield _report(topic, topic.earliest_seq, topic.head_seq, why, item, file)
            fold.delete(topic, before_seq=None, match=None, upto=topic.head_seq)


def _fits(topic: Topic, item: Item) -> bool:
    """False for what a damaged log cannot place: a record already there, a head already passed."""
    start = _starts(item)
    payload = None if isinstance(item, Run) else item.payload
    if start is not None:
        return start == topic.head_seq + 1
    if isinstance(payload, LossRange):
        return max(payload.last, topic.head_seq) >= topic.evict_floor
    if isinstance(payload, ConfigUpdate) and payload.carried is not None:
        return payload.carried.head_seq >= topic.head_seq
    if isinstance(payload, CheckpointMark):
        return fold.takes(topic, payload)
    return True


def _starts(item: Item) -> int | None:
    """The first seq of an item that moves the head, None for the others."""
    if isinstance(item, Run):
        return item.seq_start
    if isinstance(item.payload, LossRange) and item.payload.reason != Reason.RESTART.value:
        return item.payload.first
    return None


def _last_named(payload: Payload | None) -> int:
    """The highest seq that was published when this was written; 0 if it names none."""
    if isinstance(payload, Delete | Purged):
        return payload.upto
    if isinstance(payload, ConsumerCommit):
        return payload.seq
    seqs = getattr(payload, "seqs", ()) if isinstance(payload, LeaseEvent) else ()
    return max(seqs, default=0)


def _lose_before(topic: Topic, seq: int, item: Item, file: WalFileId) -> DamageReport:
    """What is missing between the head and `seq`, which an intact item presupposes, is lost."""
    first = topic.head_seq + 1
    assert first < seq
    fold.loss(topic, LostRange(first, seq - 1, Reason.CORRUPT.value, item.ts))
    what = "record" if isinstance(item, Run) else _WORDS.get(item.type, "loss")
    return _report(topic, first, seq - 1, f"missing before an intact {what}", item, file)


def _report(topic: Topic, first: int, last: int, why: str, item: Item, file: WalFileId) -> DamageReport:
    return DamageReport(
        file=file, offset=item.offset, why=why, topic=topic.name, first_seq=first, last_seq=last
    )


def name_damages(catalog: Catalog, verdict: Verdict) -> Iterable[DamageReport]:
    """Each damaged place, with the topic and seq its head still claims; a claimed seq above the head is lost too.

    Nothing verifies a claim. It is believed unless the record is there, or more seqs would be lost than frames fit in
    the damaged bytes.
    """
    room = 0
    for damage in verdict.damages:
        topic_id, seq = damage.plausible or (0, 0)
        topic = catalog.topics.get(topic_id)
        room += -(-damage.size // FRAME_OVERHEAD)
        if topic is None or topic.index.is_live(seq) or seq > topic.head_seq + room:
            yield DamageReport(file=damage.file, offset=damage.offset, why=damage.why, newer=damage.newer)
            continue
        first = min(topic.head_seq + 1, seq)
        if seq > topic.head_seq:
            fold.loss(topic, LostRange(first, seq, Reason.CORRUPT.value, catalog.high_ts))
        yield DamageReport(
            file=damage.file, offset=damage.offset, why=damage.why,
            topic=topic.name, first_seq=first, last_seq=seq,
        )  # fmt: skip


def _lose_forwarded(catalog: Catalog, file: WalFileId | SegmentId) -> Iterable[DamageReport]:
    """What a router has brought over was there: where the source has lost it, its seqs are given to nobody else."""
    for router in catalog.routers.values():
        source, dest = catalog.topics[router.source_id], catalog.topics[router.dest_id]
        first, last = source.head_seq + 1, dest.inbound[router.id].cursor
        if first <= last:
            fold.loss(source, LostRange(first, last, Reason.CORRUPT.value, catalog.high_ts))
            why = f"missing, and router {router.name!r} has dealt with it"
            yield DamageReport(
                file=file, offset=0, why=why, topic=source.name, first_seq=first, last_seq=last
            )


def cut_report(catalog: Catalog, verdict: Verdict) -> CutReport | None:
    """What a cut takes; None if there is nothing to cut but zeros."""
    assert verdict.tail is not None
    assert verdict.state is LogState.TORN
    if verdict.lost_bytes == 0:
        return None
    seqs: dict[str, int] = {}
    for item in verdict.beyond:
        if isinstance(item, Run) and (topic := catalog.topics.get(item.topic_id)) is not None:
            seqs[topic.name] = max(seqs.get(topic.name, 0), item.seq_stop - 1)
    return CutReport(file=verdict.tail.file, offset=verdict.tail.end, bytes=verdict.lost_bytes, seqs=seqs)
