"""The checks: each has a name, says what must hold, and gives violations (spark 4).

They compare rows, which any machine may have made, with the state that a start would have. None reads a file of
records. A check that a new part of the product needs is a function here or in a module beside, and a row in CHECKS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from topics.audit.checks.endings import check_endings
from topics.audit.recovery import RecoveredDirectory, current, segment_tasks
from topics.audit.scan.rows import SegmentRow, Severity, Violation, WalRow, WalSpan
from topics.audit.scan.walscan import look_of
from topics.codec.primitives import U64
from topics.engine.recovery.judge import Verdict, judge
from topics.engine.recovery.recover import DamageReport
from topics.host.directory.layout import path_of, topic_dir, wal_path
from topics.log.regions import SegmentId, WalFileId
from topics.log.topic import Topic

CHECKS: Final[Mapping[str, str]] = {
    "format": "FORMAT is whole",
    "newer": "every frame is of a type that this version of topics knows",
    "lock": "LOCK is the line of an owner",
    "hint": "CURRENT names a file of its shard, with the checksum of its name",
    "cold": "COLD, and OWNER in the cold tier, say whose the cold segments are",
    "reserve": "a file that is reserved for the log holds zeros",
    "leftover": "every file is one that topics made and still needs",
    "snapshot": "every snapshot is whole and fits its segments",
    "snapshot.agree": "a kept snapshot with the log behind it gives the state that the newest one gives",
    "wal.damage": "what of the log is known to be durable is whole, and its files follow each other",
    "wal.tail": "behind the last sync that a mark covers there are whole writes and zeros",
    "wal.absorbed": "what of the log the newest snapshot has made needless is whole",
    "archive": "what is kept of the log in archive/ is whole, and its files follow each other",
    "wal.duplicate": "a record that is in the log twice is the same each time",
    "wal.segment": "a record that is in the log and in a segment is the same in both",
    "segment.record": "every record that a segment counts is there, with its checksum, its length, topic and seq right",
    "segment.idx": "an .idx is whole and says where the records of its .data lie",
    "segment.col": "a .col is whole and says of each record what its frame says",
    "segment.del": "a .del is whole, and of its segment",
    "segment.ts": "ts never fall, in a segment and from one to the next",
    "segment.flag": "every delete byte is 0x00 or 0xd5",
    "segment.deletes": "what a segment marks as deleted or expired is so in the state",
    "segment.marks": "what ended before the older snapshot is marked so in its segment",
    "segment.floor": "no whole segment is left below the floor that both snapshots have",
    "segment.overlap": "no segment begins inside another one",
    "tombstones": "the floors, lost ranges and caps of a topic fit each other and the records it has",
    "acknowledged": "nothing that was acknowledged is missing or has changed",
    "queue.leases": "a job is leased to one at a time, settled by that lease only, and never leased once it is done",
    "queue.deliveries": "a job is not delivered more often than its queue says",
    "queue.order": "jobs of a key are leased in order, and no more of them at a time than the queue says",
    "queue.dead_letters": "what was deleted as moved is where it was sent, and what arrived was sent",
    "consumers": "a consumer of a topic goes forward by its commits",
    "schedules": "each instant of a schedule is fired once, and a later one later",
    "routers": "a router joins topics that were there when it was put",
    "router.copies": "a router goes forward, and what it has copied is what its source has",
    "kv.journal": "the journal of a database can be folded, and its joins give one state in any order",
    "weaver.journal": "hashes, links and signatures of a Weaver's log hold, and any order of arrival gives one state",
}
LIVE_LISTED_MAX: Final = 100  # violations of one row of ranges
# Checks of files that lie beside a `.data`.
_OTHER_PARTS: Final = frozenset({"segment.idx", "segment.col", "segment.del"})


def check_rows(
    state: RecoveredDirectory, wal_rows: Sequence[WalRow], segment_rows: Sequence[SegmentRow]
) -> list[Violation]:
    """Everything that rows and state show to be wrong, in a fixed order."""
    return [
        *_check_recovery(state, segment_rows),
        *_check_absorbed(state, wal_rows),
        *_check_log_twice(state, wal_rows, segment_rows),
        *_check_flaws(state, segment_rows),
        *_check_segments(state, segment_rows),
        *check_endings(state, segment_rows),
        *_check_tombstones(state),
    ]


# What recovery says.


def _check_recovery(state: RecoveredDirectory, rows: Sequence[SegmentRow]) -> Iterator[Violation]:
    """Damage, and tails that a start would cut. What a row says of its segment already is not said again."""
    flawed = {row.task.file for row in rows if any(flaw.check == "segment.record" for flaw in row.flaws)}
    told = {path_of(damage.file) for damage in state.read.recovered.damages}
    there = {row.task.file for row in rows}
    for damage in state.read.recovered.damages:
        file = path_of(damage.file)
        if isinstance(damage.file, SegmentId) and file in flawed:
            continue
        yield _of_damage(damage, file)
    for task in segment_tasks(state):
        if task.file not in there and task.file not in told and not task.cold:
            detail = f"{task.file} is not there, and a snapshot needs it"
            yield state.violation(task.topic_id, task.file, "segment.record", None, None, detail)
    for cut in state.read.recovered.cuts:
        file = wal_path(cut.file)
        detail = f"{cut}; damage and a write that was cut off cannot be told apart there"
        topic, seq = next(iter(cut.seqs.items()), ("", None))
        yield Violation(topic, file, "wal.tail", Severity.UNDECIDABLE, seq, cut.offset, detail)


def _of_damage(damage: DamageReport, file: str) -> Violation:
    check = "segment.record" if isinstance(damage.file, SegmentId) else "wal.damage"
    if damage.newer:
        return Violation("", file, "newer", Severity.ERROR, None, damage.offset, damage.why)
    detail = damage.why
    if damage.topic is None:
        detail += "; unknown records"
    elif damage.first_seq != damage.last_seq:
        detail += f"; seqs {damage.first_seq} to {damage.last_seq}"
    return Violation(damage.topic or "", file, check, Severity.ERROR, damage.first_seq, damage.offset, detail)


def _check_absorbed(state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """Damage before the newest snapshot's place, of which no start replays anything; recovery's own `judge` finds it.

    A live record among it, which no segment has, a start does miss: that is damage as any, and told with the others.
    """
    places = state.read.restored.places
    told = {(damage.file, damage.offset) for damage in state.read.recovered.damages}
    for key, own in _by_shard(rows).items():
        place = places.get(key)
        if place is None:
            continue
        stop = (place.file, place.offset) if place.file else (own[-1].task.first_frame + 1, 0)
        for damage in _judged(own, same_boot=state.same_boot).damages:
            if (damage.file.first_frame, damage.offset) < stop and (damage.file, damage.offset) not in told:
                topic_id, seq = damage.plausible or (0, None)
                detail = f"{damage.why}; in front of the newest snapshot, and no record that only the log has"
                yield state.violation(
                    topic_id, wal_path(damage.file), "wal.absorbed", seq, damage.offset, detail
                )


def _by_shard(rows: Sequence[WalRow]) -> dict[tuple[int, int], list[WalRow]]:
    found: dict[tuple[int, int], list[WalRow]] = {}
    for row in sorted(rows, key=lambda row: row.task.first_frame):
        found.setdefault((row.task.generation, row.task.shard), []).append(row)
    return found


def _judged(rows: Sequence[WalRow], *, same_boot: bool) -> Verdict:
    """Of a shard whose first files may have been removed."""
    first = rows[0].task
    since = WalFileId(first.generation, first.shard, first.first_frame)
    return judge([look_of(row) for row in rows], same_boot=same_boot, since=since)


# The same record in two places.


def _check_log_twice(
    state: RecoveredDirectory, wal_rows: Sequence[WalRow], segment_rows: Sequence[SegmentRow]
) -> Iterator[Violation]:
    spans: dict[int, list[tuple[WalSpan, str]]] = {}
    for row in wal_rows:
        for span in row.spans:
            spans.setdefault(span.topic_id, []).append((span, row.task.file))
    for topic_id, own in sorted(spans.items()):
        own.sort(key=lambda one: one[0].first)
        for (span, _), (later, file) in pairwise(own):
            for seq in _differing(span.first, span.prints, later.first, later.prints):
                detail = "it is in the log before, and was another one there"
                yield state.violation(topic_id, file, "wal.duplicate", seq, later.offset, detail)
    for stored in segment_rows:
        for span, file in spans.get(stored.task.topic_id, ()):
            for seq in _differing(span.first, span.prints, stored.print_first, stored.prints):
                detail = f"the record is another one in {file}"
                yield state.violation(
                    stored.task.topic_id, stored.task.file, "wal.segment", seq, None, detail
                )


def _differing(first: int, prints: bytes, other_first: int, other: bytes) -> Iterator[int]:
    """The seqs that both have, with another checksum in each. 0 stands for a record that is not there."""
    start = max(first, other_first)
    stop = min(first + len(prints) // U64.size, other_first + len(other) // U64.size)
    if start >= stop:
        return
    own = prints[(start - first) * U64.size : (stop - first) * U64.size]
    right = other[(start - other_first) * U64.size : (stop - other_first) * U64.size]
    if own == right:
        return
    for at in range(stop - start):
        (a,), (b,) = U64.unpack_from(own, at * U64.size), U64.unpack_from(right, at * U64.size)
        if a and b and a != b:
            yield start + at


# Segments.


def _check_flaws(state: RecoveredDirectory, rows: Sequence[SegmentRow]) -> Iterator[Violation]:
    for row in rows:
        task = row.task
        for flaw in row.flaws:
            file = task.part(flaw.check.partition(".")[2]) if flaw.check in _OTHER_PARTS else task.file
            topic = state.name_of(task.topic_id)
            yield Violation(topic, file, flaw.check, flaw.severity, flaw.seq, flaw.offset, flaw.detail)


def _check_segments(state: RecoveredDirectory, rows: Sequence[SegmentRow]) -> Iterator[Violation]:
    for topic, own in current(state, rows):
        for row in own:
            yield from _check_against_state(state, topic, row)
        for before, row in pairwise(own):
            if row.records and before.records and row.ts_first < before.ts_last:
                detail = f"ts {row.ts_first} is before {before.ts_last}, the last of the segment before it"
                yield state.violation(
                    topic.topic_id, row.task.file, "segment.ts", row.task.first, None, detail
                )


def _check_against_state(state: RecoveredDirectory, topic: Topic, row: SegmentRow) -> Iterator[Violation]:
    task, topic_id = row.task, topic.topic_id
    for seq in _live_in(topic, row.missing):
        detail = "the record is live, and it is not there"
        yield state.violation(topic_id, task.file, "segment.record", seq, None, detail)
    known = dict.fromkeys(row.damaged)
    for word, ranges in (("deleted", row.deleted), ("expired", row.expired)):
        for seq in _live_in(topic, (one for one in ranges if one not in known)):
            detail = (
                f"marked as {word}, and live in snapshot and log; a power cut may have taken what ended it"
            )
            yield Violation(topic.name, task.file, "segment.deletes", Severity.UNDECIDABLE, seq, None, detail)


def _live_in(topic: Topic, ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """The seqs of the ranges that are live, the first of them."""
    base, head = topic.index.base_seq, topic.head_seq
    seqs = (seq for first, last in ranges for seq in range(max(first, base), min(last, head) + 1))
    yield from islice((seq for seq in seqs if topic.index.is_live(seq)), LIVE_LISTED_MAX)


# Floors.


def _check_tombstones(state: RecoveredDirectory) -> Iterator[Violation]:
    for topic_id, topic in sorted(state.topics.items()):
        for seq, detail in _contradictions(topic):
            yield state.violation(topic_id, topic_dir(topic_id), "tombstones", seq, None, detail)


def _contradictions(topic: Topic) -> Iterator[tuple[int, str]]:
    """What cannot be, whatever was written and deleted (I-01, I-05), and the seq that shows it."""
    index, floors, config = topic.index, topic.floors, topic.config
    base, head, floor = index.base_seq, index.head_seq, floors.evict_floor
    if not 1 <= floor <= base <= head + 1:
        yield floor, f"evict_floor {floor}, earliest_seq {base} and head_seq {head} are not in this order"
    if topic.delete_below > base:
        yield base, f"everything below {topic.delete_below} was deleted, and earliest_seq is {base}"
    if topic.segments.stored_seq > head:
        stored = topic.segments.stored_seq
        yield stored, f"records up to {stored} are in segments, and head_seq is {head}"
    before = floor - 1
    for lost in index.lost:
        if not (lost.first <= lost.last <= head and lost.last >= floor and lost.last > before):
            where = f"lies below {max(floor, before + 1)} or above head_seq {head}"
            yield lost.first, f"lost range {lost.first} to {lost.last} {where}"
        before = lost.last
    for reason, last in sorted(floors.reasons.items()):
        if last >= max(floor, 2):
            yield last, f"seq {last} is lost by {reason}, and evict_floor is {floor}"
    if (floor == 1) != (not floors.reasons):
        yield floor, f"evict_floor is {floor}, and the reasons are {sorted(floors.reasons)}"
    if config.cap_records and index.live_count > config.cap_records:
        yield base, f"{index.live_count} records are live, and cap_records is {config.cap_records}"
    if config.cap_bytes and index.live_bytes > config.cap_bytes:
        yield base, f"{index.live_bytes} bytes are live, and cap_bytes is {config.cap_bytes}"
    if config.ttl_ms and index.live_count and index.ts[index.start] + config.ttl_ms < topic.retired_ms:
        yield base, f"seq {base} is older than ttl_ms, and time has passed up to {topic.retired_ms}"
