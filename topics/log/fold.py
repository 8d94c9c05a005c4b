"""Folding one frame into one topic: the half of `apply` that knows a topic (architecture 3.2).

Live writes and recovery call the same functions with equal arguments, in the log's order; nothing else changes a
topic. None of them can fail, none reads a clock: now is the frame's ts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from topics.codec.log.control import Carried, CheckpointMark, WriteResult
from topics.codec.log.forwards import Forward, copies_in
from topics.codec.log.frame import Run
from topics.codec.log.leases import DeadLettered, Moved
from topics.codec.log.schedules import FIRING_PREFIX
from topics.kernel.config import Durability, TopicConfig
from topics.log import retention
from topics.log.dedupe import Result
from topics.log.floors import Reason
from topics.log.jobs.bucket import Bucket
from topics.log.lost import LostRange
from topics.log.past import DeathCause
from topics.log.placing.places import place
from topics.log.reads.match import Match
from topics.log.regions import SegmentId, Source
from topics.log.routers import Inbound
from topics.log.segments import Segments
from topics.log.topic import Move, Topic

DeliveriesOf: TypeAlias = Callable[[Topic, Sequence[int], bytes], Sequence[int]]


def run(topic: Topic, appended: Run, source: Source) -> None:
    """Records arrive: time passes up to their ts, they are indexed, caps evict (semantics 6)."""
    assert appended.topic_id == topic.topic_id
    retention.retire(topic, appended.ts)
    topic.index.extend(appended)
    topic.regions.extend(appended.seq_start, source)
    topic.last_write_ts = appended.ts
    topic.note_deadlines(appended)
    if topic.jobs is not None and appended.jobs is not None:
        topic.jobs.arrive(appended.seq_start, appended.jobs, appended.ts)
    if appended.dedup is not None:
        expires_at = appended.ts + topic.config.dedup_window_ms
        for i, dedup_id in appended.dedup:
            if dedup_id.startswith(FIRING_PREFIX):
                topic.schedules.note(dedup_id)
            else:
                topic.dedup_ids.add(dedup_id, appended.seq_start + i, expires_at)
        topic.dedup_ids.retire(appended.ts, topic.config.dedup_max_entries)
    if appended.keyed is not None:
        expires_at = appended.ts + topic.config.idempotency_window_ms
        result = Result(expires_at, appended.keyed.digest, len(appended), appended.seq_start)
        topic.results.add(appended.keyed.key, result)
    retention.evict(topic)


def write_result(topic: Topic, written: WriteResult, ts: int) -> None:
    """An idempotent write that has duplicates: what it answers, ahead of the records it appends (storage 2)."""
    expires_at = ts + topic.config.idempotency_window_ms
    result = Result(expires_at, written.digest, written.count, written.first_seq, tuple(written.duplicates))
    topic.results.add(written.key, result)


def forward(topic: Topic, forwarded: Forward) -> None:
    """A router has come so far; what it brings over is in the frames that follow. One that has ended is nobody's."""
    before = topic.inbound.get(forwarded.router)
    if before is not None:
        cursor = max(before.cursor, forwarded.last)
        topic.inbound[forwarded.router] = Inbound(cursor, before.total + copies_in(forwarded))


def watermark(topic: Topic, ts: int) -> None:
    """Time alone moves the floor: computed from the ts, which is all the frame carries."""
    topic.watermark_ms = ts
    retention.retire(topic, ts)


def delete(topic: Topic, *, before_seq: int | None, match: Match | None, upto: int) -> int:
    """Voluntary removal, of nothing above `upto`; `evict_floor` stays (I-05). Returns how many records went."""
    index = topic.index
    floor_before = topic.evict_floor
    assert upto <= index.head_seq
    stop_seq = upto + 1 if before_seq is None else min(before_seq, upto + 1)
    count = 0
    if match is None:
        count = index.kill_range(index.start, index.position(stop_seq), DeathCause.DELETED)
        topic.delete_below = max(topic.delete_below, stop_seq)
    else:
        count = index.kill_tags(match.numbers(index.tags), stop_seq, DeathCause.DELETED)
    if count:
        index.pop_dead(topic.floors.evict_floor)
        topic.trim()
    assert topic.evict_floor == floor_before  # I-05: deletion is voluntary
    return count


def begin_moves(
    topic: Topic,
    lettered: DeadLettered,
    ts: int,
    deliveries_of: DeliveriesOf,
) -> None:
    """Records begin to go to another topic. Those that are gone, or on their way already, are passed over."""
    moves, dest = topic.moves, lettered.dest.decode()
    seqs = [seq for seq in dict.fromkeys(lettered.seqs) if seq not in moves and topic.index.is_live(seq)]
    for seq, deliveries in zip(seqs, deliveries_of(topic, seqs, lettered.reason), strict=True):
        moves[seq] = Move(dest, lettered.reason, deliveries, ts)


def end_moves(topic: Topic, moved: Moved) -> int:
    """They are there: here they are deleted, as by a client. Returns how many were."""
    count = topic.index.kill_seqs(sorted(set(moved.seqs)), DeathCause.DELETED)
    for seq in moved.seqs:
        topic.moves.pop(seq, None)
    if count:
        topic.index.pop_dead(topic.floors.evict_floor)
        topic.trim()
    return count


def loss(topic: Topic, lost: LostRange) -> None:
    """Seqs up to `lost.last` are lost. `restart` takes everything (ephemeral); other reasons add a lost range."""
    if Reason(lost.reason) is Reason.RESTART:
        last_seq = max(lost.last, topic.index.head_seq)
        for earlier in topic.index.lost:
            topic.floors.note(earlier.last, Reason(earlier.reason))
        topic.index.forget_all(last_seq + 1)
        topic.regions.clear()
        topic.segments = Segments(stored_seq=last_seq)
        topic.deadlines.keep(topic.index.are_live)
        topic.floors.raise_to(last_seq, ts=lost.ts, reason=Reason.RESTART, lost=topic.index.lost)
        return
    assert lost.first == topic.index.head_seq + 1
    topic.index.lose(lost)
    assert topic.head_seq == lost.last


def config(topic: Topic, new: TopicConfig, ts: int) -> None:
    """A new config, in force at once: a lowered ttl or cap evicts here; raising one never revives (semantics 6).

    A topic that becomes ephemeral forgets its keys and dedup ids: no snapshot keeps what an ephemeral one knows, and a
    start from the log must not know more than one from a snapshot (I-20).
    """
    if new.durability is Durability.EPHEMERAL is not topic.config.durability:
        topic.forget_writes()
    if topic.jobs is not None and new.rate_limit != topic.config.rate_limit:
        topic.jobs.bucket = Bucket()
    topic.config = new
    retention.retire(topic, ts)
    retention.evict(topic)


def carry(topic: Topic, carried: Carried) -> None:
    """An empty ephemeral topic becomes a logged one: its head and floors, which no frame had told (semantics 3).

    Lost ranges are older than its time as an ephemeral one, so the log has told of them; those above the floor stay.
    Keys and dedup ids of ephemeral records were never logged and end with them, or a replay would differ (I-09).
    """
    assert topic.index.live_count == 0 or topic.index.head_seq < carried.head_seq
    kept = [lost for lost in topic.index.lost if lost.last >= carried.evict_floor]
    topic.index.forget_all(carried.head_seq + 1)
    topic.regions.clear()
    topic.segments = Segments(stored_seq=carried.head_seq)
    topic.deadlines.keep(topic.index.are_live)
    floors = topic.floors
    floors.evict_floor, floors.lost_ts = carried.evict_floor, carried.lost_ts
    topic.last_write_ts = carried.last_write_ts
    topic.delete_below = carried.head_seq + 1  # its deletes were not logged, and it is empty
    topic.watermark_ms = 0  # nor were its watermarks
    topic.forget_writes()
    floors.reasons = {Reason(reason): last_seq for reason, last_seq in carried.reasons.items()}
    first = carried.evict_floor
    for lost in kept:
        topic.index.lost.add(lost)
        if first < lost.first:
            topic.index.past.add(first, lost.first - 1, DeathCause.DELETED)
        first = lost.last + 1
    if first <= carried.head_seq:
        topic.index.past.add(first, carried.head_seq, DeathCause.DELETED)


def checkpoint(topic: Topic, mark: CheckpointMark, ts: int) -> None:
    """Records are in a segment now, too, and are read from there (storage 5). Nothing a reader is told changes."""
    assert mark.last <= topic.head_seq
    if topic.segments.moves(segment=mark.segment, first=mark.first, last=mark.last):
        topic.segments.move(mark.segment, size=mark.size, cold=mark.cold)
        return
    topic.segments.absorb(
        segment=mark.segment, first=mark.first, last=mark.last, size=mark.size, sealed=mark.sealed, ts=ts
    )
    first = max(mark.first, topic.index.base_seq)
    if first <= mark.last:
        place(topic.index, first, mark.last, mark.size)
        topic.regions.move(first, mark.last, topic.head_seq, SegmentId(topic.topic_id, mark.segment))
        topic.index.changes += mark.last + 1 - first
    topic.segments.drop_below(topic.index.base_seq)
    topic.let_go()


def takes(topic: Topic, mark: CheckpointMark) -> bool:
    """Whether a mark goes on where the last one ended, with records that are there, or moves the data of a segment that
    was sealed before it: all of an intact log do.
    """
    if topic.segments.moves(segment=mark.segment, first=mark.first, last=mark.last):
        return True
    active = topic.segments.active
    if active is not None and (active.first, active.last + 1) != (mark.segment, mark.first):
        return False
    if active is None and (mark.segment != mark.first or mark.first <= topic.segments.stored_seq):
        return False
    lost = topic.index.lost
    return mark.last <= topic.head_seq and lost.count_below(mark.last + 1) == lost.count_below(mark.first)


def ceiling(topic: Topic, ceiling_seq: int) -> None:
    """No seq above it has been published (storage 3); the last one in the log wins."""
    topic.ceiling = ceiling_seq
