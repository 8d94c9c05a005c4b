"""Eviction and expiry as functions of the log: "now" is always the ts of the frame being applied (semantics 6).

Order at each ts: own-TTL records retire (silently), then topic TTL moves the floor, then caps evict the oldest live
records. A record whose own time and topic's time have both passed counts by whichever came first: topic TTL takes
only records that were live when it passed (semantics 4).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from topics.kernel.config import Discard
from topics.kernel.deadlines import NEVER
from topics.log.floors import Reason
from topics.log.index import LIVE
from topics.log.past import DeathCause
from topics.log.topic import Topic


def retire(topic: Topic, ts: int) -> None:
    """Let time pass up to `ts`: own TTL, topic TTL, remembered keys."""
    assert ts >= 0
    if ts > topic.retired_ms:
        topic.retired_ms = ts
    topic.results.retire(ts)
    topic.dedup_ids.retire(ts, topic.config.dedup_max_entries)
    if topic.deadlines.count:
        _retire_own(topic, ts)
    if topic.config.ttl_ms:
        _retire_topic_ttl(topic, ts)


def evict(topic: Topic) -> None:
    """Evict the oldest live records until the caps hold."""
    config, index = topic.config, topic.index
    over_count = index.live_count - config.cap_records if config.cap_records else 0
    over_bytes = index.live_bytes - config.cap_bytes if config.cap_bytes else 0
    if over_count <= 0 and over_bytes <= 0:
        return
    if index.live_count == index.stop - index.start:
        stop = _dense_stop(topic, over_count, over_bytes)
    else:
        stop = _sparse_stop(topic, over_count, over_bytes)
    _lose_front(topic, stop, Reason.CAP)
    assert not config.cap_records or index.live_count <= config.cap_records
    assert not config.cap_bytes or index.live_bytes <= config.cap_bytes


def fits(topic: Topic, *, records: int, size: int, now_ms: int) -> bool:
    """Would `reject` let this many more records and bytes in, once time has passed up to `now_ms`?"""
    config, index = topic.config, topic.index
    if config.discard is not Discard.REJECT:
        return True
    count, held = index.live_count + records, index.live_bytes + size

    def within(count: int, held: int) -> bool:
        over = (config.cap_records and count > config.cap_records) or (
            config.cap_bytes and held > config.cap_bytes
        )
        return not over

    if within(count, held):
        return True
    due_count, due_size = _due(topic, now_ms)
    return within(count - due_count, held - due_size)


def next_due_ms(topic: Topic) -> int | None:
    """The first instant at which time alone would retire a record; None if there is none. May be early, never late."""
    first_ms = topic.deadlines.first_ms
    own = None if first_ms == NEVER else first_ms + 1
    if not topic.config.ttl_ms or not topic.index.live_count:
        return own
    due = topic.index.ts[topic.index.start] + topic.config.ttl_ms + 1
    return due if own is None else min(due, own)


def _retire_own(topic: Topic, ts: int) -> None:
    index, ttl_ms = topic.index, topic.config.ttl_ms
    due = topic.deadlines.take_due(ts)
    if not due:
        return
    gone = []
    for seq in due:
        if not index.is_live(seq):
            continue
        at = index.position(seq)
        assert index.expires is not None
        topic_time = index.ts[at] + ttl_ms
        if ttl_ms and topic_time < index.expires[at] and topic_time < ts:
            continue  # live when topic TTL passed: the floor takes it, just below
        gone.append(seq)
    if index.kill_seqs(gone, DeathCause.EXPIRED):
        index.pop_dead(topic.floors.evict_floor)
        topic.trim()


def _retire_topic_ttl(topic: Topic, ts: int) -> None:
    horizon = ts - topic.config.ttl_ms
    index = topic.index
    if horizon <= 0 or not index.live_count or index.ts[index.start] >= horizon:
        return
    stop = bisect_left(index.ts, horizon, index.start)
    while stop > index.start and not index.flags[stop - 1] & LIVE:
        stop -= 1
    _lose_front(topic, stop, Reason.TTL)


def _lose_front(topic: Topic, stop: int, reason: Reason) -> None:
    """Every live slot before `stop` is lost; the slot before `stop` is live."""
    index = topic.index
    if stop == index.start:
        return
    assert index.flags[stop - 1] & LIVE
    assert index.start < stop <= index.stop
    last_seq, last_ts = index.seq_at(stop - 1), index.ts[stop - 1]
    index.kill_range(index.start, stop, DeathCause.DELETED)
    # Before the floor folds the lost ranges it passes: slots are counted around them.
    index.pop_dead(last_seq + 1)
    topic.floors.raise_to(last_seq, ts=last_ts, reason=reason, lost=index.lost)
    topic.trim()
    assert topic.evict_floor == last_seq + 1
    assert topic.evict_floor <= topic.earliest_seq  # I-01


def _dense_stop(topic: Topic, over_count: int, over_bytes: int) -> int:
    """Position behind the last record to evict when every slot is live."""
    index = topic.index
    assert index.live_count == index.stop - index.start
    stop = index.start + max(over_count, 0)
    if over_bytes > 0:
        for at, freed in enumerate(
            accumulate(index.sizes[i] for i in range(index.start, index.stop)), index.start
        ):
            if freed >= over_bytes:
                stop = max(stop, at + 1)
                break
    return stop


def _sparse_stop(topic: Topic, over_count: int, over_bytes: int) -> int:
    """The same among slots some of which are dead."""
    index = topic.index
    at = index.start
    while over_count > 0 or over_bytes > 0:
        if index.flags[at] & LIVE:
            over_count -= 1
            over_bytes -= index.sizes[at]
        at += 1
    return at


def _due(topic: Topic, now_ms: int) -> tuple[int, int]:
    """(count, bytes) of live records that time up to `now_ms` retires."""
    index = topic.index
    positions = {index.position(seq) for seq in topic.deadlines.due(now_ms) if index.is_live(seq)}
    if topic.config.ttl_ms:
        stop = bisect_left(index.ts, max(now_ms - topic.config.ttl_ms, 0), index.start)
        positions.update(i for i in range(index.start, stop) if index.flags[i] & LIVE)
    return len(positions), sum(index.sizes[i] for i in positions)
