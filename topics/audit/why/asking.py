"""The three questions: what became of a record, of a job, of what a reader has not got.

Only files are read, and without the directory's lock: whoever owns it may go on. So a file may go away meanwhile; then
it is asked again. What a server knows better, how things stand in its engine, it puts in itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import attrs
import msgspec

from topics.audit.why.events import ENDINGS, events_of
from topics.audit.why.folding import WatchedSeqs
from topics.audit.why.kept_log import Budget, KeptLog, read_kept
from topics.audit.why.names import not_found, router_names, topic_named
from topics.audit.why.standing import Live, Reader, arrived_as, live_of, parts_of
from topics.audit.why.starts import FoldStart, no_start, read_snapshots, starts
from topics.audit.why.waiting import waits_of
from topics.audit.why.writes import stored_event
from topics.codec.log.control import TopicCreate, TopicDelete
from topics.codec.log.forwards import Forward
from topics.codec.log.frame import Run
from topics.codec.log.routers import RouterCreate
from topics.codec.why import AfterRestore, Before, Event, LogTold, Standing, Why, WhyRange
from topics.engine.image import Snapshot
from topics.engine.recovery.judge import Item
from topics.host.cold.cold_disk import ColdBehind
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import read_format
from topics.host.directory.restored import RestoreNote, read_restored
from topics.kernel.config import Durability, TopicType
from topics.kernel.errors import CannotOpen, Code, Corrupt, Rejected, Unusable, invalid, not_a_queue
from topics.kernel.limits import REPLANS_MAX, SCAN_SEQS_MAX, WHY_MS_MAX, WHY_PARTS_MAX
from topics.kernel.ports import Disk
from topics.log.reads import tombstone
from topics.log.topic import Topic

T = TypeVar("T")
ANYBODY: Final = Reader()


def why(
    disk: Disk,
    where: str,
    name: str,
    seq: int,
    *,
    now_ms: int,
    of_job: bool = False,
    budget: Callable[[], Budget] = Budget,
    live: Live | None = None,
    cold: SegmentStore | None = None,
) -> Why:
    """What became of one seq. `of_job`: of a queue, and of nothing else. `live`: how it stands in a server's engine,
    which counts where the files do not tell: of an ephemeral topic, and if the budget is too small for a fold. `cold`:
    the cold tier, for a record that lies there.

    Raises:
        Rejected: topic_not_found, not_a_queue.
        Corrupt: snapshots or log that it would be folded from are damaged or gone.
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed.
    """
    topic_id = None if live is None else live.topic_id
    tiers = ColdBehind(disk, cold)
    return _again(
        lambda spent: _why(
            _known(tiers, where, name, seq, seq, now_ms, spent, topic_id), seq, live, of_job=of_job
        ),
        budget,
    )


def why_range(
    disk: Disk,
    where: str,
    name: str,
    from_seq: int,
    to_seq: int | None = None,
    *,
    now_ms: int,
    reader: Reader = ANYBODY,
    budget: Callable[[], Budget] = Budget,
    topic_id: int | None = None,
    parts_max: int = WHY_PARTS_MAX,
) -> WhyRange:
    """What became of each seq above `from_seq`, up to `to_seq` or the head; of so many at most as a read looks at, in
    `parts_max` parts at most.

    Raises: as `why`, and Rejected: invalid_request of an ephemeral topic, throttled if the budget is too small.
    """
    last = from_seq + SCAN_SEQS_MAX if to_seq is None else min(to_seq, from_seq + SCAN_SEQS_MAX)
    tiers = ColdBehind(disk, None)
    return _again(
        lambda spent: _range(
            _known(tiers, where, name, from_seq + 1, last, now_ms, spent, topic_id),
            from_seq,
            to_seq,
            reader,
            parts_max,
        ),
        budget,
    )


def _again(ask: Callable[[Budget], T], budget: Callable[[], Budget]) -> T:
    """A checkpoint may have taken something away meanwhile. What is told twice alike is so."""
    before = ""
    for _ in range(REPLANS_MAX):
        spent = budget()
        try:
            return ask(spent)
        except (FileNotFoundError, Corrupt) as error:
            if str(error) == before or spent.is_over():
                raise
            before = str(error)
    return ask(budget())


@attrs.frozen(kw_only=True, eq=False)
class _KnownTopic:
    """All that was found out of one topic. `topic`, `start`: None if the budget left too little for a fold."""

    disk: ColdBehind
    name: str
    topic_id: int
    topic: Topic | None
    start: FoldStart | None
    watch: WatchedSeqs
    log: KeptLog
    budget: Budget
    names: dict[int, str]
    snapshots: Sequence[Snapshot]
    restored: RestoreNote | None
    now_ms: int

    def log_told(self) -> LogTold:
        start = self.start
        return LogTold(
            folded_from="nothing" if start is None else start.kind,
            since_ts=None if start is None else start.since_ts,
            is_whole=start is not None and start.kind == "creation" and not self.budget.bytes_left,
            bytes_read=self.budget.bytes_read,
            bytes_left=self.budget.bytes_left,
        )

    def restored_below(self, seq: int) -> AfterRestore | None:
        """The restore that left the topic with a head below this seq."""
        note = self.restored
        head = None if note is None else note.head_of(self.topic_id)
        if note is None or head is None or seq <= head:
            return None
        return AfterRestore(ts=note.ts, as_of=note.as_of, head_seq=head)

    def too_little(self) -> Rejected:
        return Rejected(
            Code.THROTTLED,
            f"{self.budget.bytes_read} bytes of the log were looked at, which do not reach back to a snapshot, and"
            f" {self.budget.bytes_left} are left (at most {self.budget.bytes_max} are looked at here, for {WHY_MS_MAX}"
            f" ms); take a checkpoint first, or ask the directory itself: topics why --data",
            topic=self.name,
        )


def _known(
    disk: ColdBehind,
    where: str,
    name: str,
    first: int,
    last: int,
    now_ms: int,
    budget: Budget,
    topic_id: int | None,
) -> _KnownTopic:
    if read_format(disk, where) is None:
        raise CannotOpen(
            Unusable.MISSING, f"{where} holds no data directory of topics: it has no FORMAT", path=where
        )
    snapshots, damaged = read_snapshots(disk, budget)
    if topic_id is None:
        topic_id = topic_named(disk, where, name, snapshots, damaged)
    log = read_kept(disk, _wanted(topic_id), budget)
    names = {image.topic_id: image.name for snapshot in snapshots for image in snapshot.state.topics}
    names |= {item.topic_id: create.name for item, create in log.creations()}
    names |= router_names(log, snapshots)
    watch, topic, begun = WatchedSeqs(first, last), None, None
    for start in starts(disk, log, snapshots, topic_id):
        tried = WatchedSeqs(first, last)
        folded = tried.fold(disk, start, log, topic_id)
        if folded is not None:
            watch, topic, begun = tried, folded, start
            if not watch.is_damaged:
                break  # an earlier start tells more, unless not all of the log fits it
    if topic is not None:
        watch.let_pass(now_ms)
    elif not budget.bytes_left:
        deleted_ts = log.deleted_ts(topic_id)
        raise no_start(name, damaged) if deleted_ts is None else not_found(disk, where, name, deleted_ts)
    return _KnownTopic(
        disk=disk,
        name=name,
        topic_id=topic_id,
        topic=topic,
        start=begun,
        watch=watch,
        log=log,
        budget=budget,
        names=names,
        snapshots=snapshots,
        restored=read_restored(disk),
        now_ms=now_ms,
    )


def _wanted(topic_id: int) -> Callable[[Item], bool]:
    """What is of the topic, what says which topics there were, and what came from it to others."""
    moved = (b"dl:%d:" % topic_id, b"rd:%d:" % topic_id)

    def wanted(item: Item) -> bool:
        if item.topic_id == topic_id:
            return True
        if isinstance(item, Run):
            return item.dedup is not None and any(dedup.startswith(moved) for _, dedup in item.dedup)
        if isinstance(item.payload, Forward):
            return item.payload.source == topic_id
        return isinstance(item.payload, TopicCreate | TopicDelete | RouterCreate)

    return wanted


def _why(known: _KnownTopic, seq: int, live: Live | None, *, of_job: bool) -> Why:
    topic, end = known.topic, known.watch.ends.get(seq)
    if topic is not None and (live is None or live.durability is not Durability.EPHEMERAL):
        live = live_of(topic, seq, known.now_ms, end)
        if live.now.state == "unborn" and live.durability is Durability.EPHEMERAL and seq <= topic.ceiling:
            live = attrs.evolve(live, now=Standing(state="unknown"))
        if topic.jobs is not None and topic.index.is_live(seq):
            waits = waits_of(topic, seq, known.now_ms)
            live = attrs.evolve(live, now=msgspec.structs.replace(live.now, waits=waits))
    if live is None:
        raise known.too_little()
    if of_job and live.type is not TopicType.QUEUE:
        raise not_a_queue(known.name)
    events = events_of(known.disk, known.log, known.watch, known.topic_id, known.names, seq, known.now_ms)
    if live.now.state in ("lost", "expired"):  # so that who was deleted here was perhaps gone by then
        named = {"deleted": "named"}
        events = [msgspec.structs.replace(one, event=named.get(one.event, one.event)) for one in events]
    cold = None
    if topic is not None and not any(event.event == "put" for event in events):
        stored = stored_event(known.disk, topic, seq, known.names)
        if isinstance(stored, Event):
            events = [stored, *events]
        else:
            cold = stored
    return Why(
        topic=known.name,
        type=live.type.value,
        epoch=live.epoch,
        durability=live.durability.value,
        seq=seq,
        head_seq=live.head_seq,
        now=_completed(known, live, seq, events),
        reader=live.told,
        events=events,
        log=known.log_told(),
        created_ts=_created_ts(known),
        before=_before(known, live.epoch),
        restored=known.restored_below(seq),
        cold=cold,
    )


def _completed(known: _KnownTopic, live: Live, seq: int, events: Sequence[Event]) -> Standing:
    """With what an event says of the end, and only that."""
    now = live.now
    if (until := _repeats_until(known, seq, events)) is not None:
        now = msgspec.structs.replace(now, repeats_until=until)
    last = next((event for event in reversed(events) if event.event in ENDINGS), None)
    if last is None or now.state not in ("acked", "moved", "purged", "deleted"):
        return now
    if last.event == "moved":
        sent = next((event for event in reversed(events) if event.event == "dead_lettered"), last)
        dest_seq = _arrived(known, arrived_as(known.topic_id, live.epoch, seq, sent.reason or ""))
        return Standing(state="moved", reason=sent.reason, dest=sent.dest, dest_seq=dest_seq)
    if last.event in ("acked", "purged", "deleted"):
        return Standing(state=last.event, node=last.node, reason=last.reason)
    return now


def _repeats_until(known: _KnownTopic, seq: int, events: Sequence[Event]) -> int | None:
    """Until when a repeat of its write, or of itself, is answered with it."""
    put, topic = next((event for event in events if event.event == "put"), None), known.topic
    if put is None or topic is None:
        return None
    found = [topic.dedup_ids.until((put.dedup_id or "").encode(), seq)]
    result = topic.results.find((put.idempotency_key or "").encode(), known.now_ms)
    found.append(None if result is None or seq not in result.seqs() else result.expires_at)
    return max((until for until in found if until is not None and until >= known.now_ms), default=None)


def _arrived(known: _KnownTopic, move: bytes) -> int | None:
    """As which seq it is where it was moved to, by the log or the newest snapshot."""
    for at, _ in known.log.walk():
        if isinstance(at.item, Run) and at.item.topic_id != known.topic_id:
            for i, dedup_id in at.item.dedup or ():
                if dedup_id == move:
                    return at.item.seq_start + i
    for snapshot in known.snapshots:
        for image in snapshot.state.topics:
            for dedup_id, arrived in image.moved_ids:
                if dedup_id == move:
                    return arrived
    return None


def _created_ts(known: _KnownTopic) -> int | None:
    return next((item.ts for item, _ in known.log.creations() if item.topic_id == known.topic_id), None)


def _before(known: _KnownTopic, epoch: int) -> Before | None:
    """The last instance of the name before this one, if the log knows of it."""
    made = [(item, create) for item, create in known.log.creations() if create.name == known.name]
    earlier = [(item.topic_id, create.epoch) for item, create in made if create.epoch < epoch]
    if not earlier:
        return None
    topic_id, before = earlier[-1]
    ends = (
        at.item.ts for at, _ in known.log.walk()
        if at.item.topic_id == topic_id and isinstance(getattr(at.item, "payload", None), TopicDelete)
    )  # fmt: skip
    return Before(epoch=before, deleted_ts=next(ends, None))


def _range(known: _KnownTopic, from_seq: int, to_seq: int | None, reader: Reader, parts_max: int) -> WhyRange:
    topic = known.topic
    if topic is None:
        raise known.too_little()
    if topic.config.durability is Durability.EPHEMERAL:
        raise invalid(
            "from_seq",
            f"topic {known.name!r} is ephemeral, so its records are in no file; ask of single seqs",
        )
    head = topic.head_seq
    last = min(known.watch.last, head)
    wanted = head if to_seq is None else min(to_seq, head)
    gap = tombstone.classify(topic.index, topic.floors, from_seq, same_epoch=True).gap
    parts = parts_of(topic, from_seq + 1, last, known.now_ms, known.watch.ends, reader, parts_max)
    last = parts[-1].last if parts else last
    return WhyRange(
        topic=topic.name,
        type=topic.config.type.value,
        epoch=topic.epoch,
        from_seq=from_seq,
        to_seq=max(last, from_seq),
        head_seq=head,
        parts=parts,
        reason=None if gap is None else gap.reason.value,
        gap_to=None if gap is None else gap.gap_to,
        next_from_seq=last if last < wanted else None,
        restored=known.restored_below(max(last, from_seq)),
        log=known.log_told(),
    )
