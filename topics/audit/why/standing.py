"""How a record or job stands in a topic, and what a reader is told of it. No file is read, and nothing changes.

The topic is one that was folded here, or an engine's own: that one only as long as nobody else has its turn.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from topics.audit.why.folding import End
from topics.codec.why import Part, Standing, Told
from topics.engine.moving.letters import move_id
from topics.kernel.config import Durability, TopicType
from topics.log.index import TIMED
from topics.log.jobs.transitions import JobState
from topics.log.past import LOST, DeathCause
from topics.log.reads import tombstone
from topics.log.reads.match import Match
from topics.log.topic import Topic


class Reader(NamedTuple):
    """Who reads, as far as it matters for what is given to him."""

    nodes: frozenset[bytes] = frozenset()
    match: Match | None = None


@attrs.frozen(kw_only=True)
class Live:
    """How one seq stands in a topic at a moment, and what of the topic goes with that. `told`: None above the head."""

    topic_id: int
    epoch: int
    type: TopicType
    durability: Durability
    head_seq: int
    now: Standing
    told: Told | None


def live_of(topic: Topic, seq: int, now_ms: int, end: End | None = None) -> Live:
    """`end`: as for `standing`. It costs little, whatever the topic holds: what a job waits for is `waits_of`."""
    return Live(
        topic_id=topic.topic_id,
        epoch=topic.epoch,
        type=topic.config.type,
        durability=topic.config.durability,
        head_seq=topic.head_seq,
        now=standing(topic, seq, now_ms, end),
        told=account_told_to_reader(topic, seq, now_ms) if seq <= topic.head_seq else None,
    )


def standing(topic: Topic, seq: int, now_ms: int, end: End | None) -> Standing:
    """How it stands. `end`: what the log says ended it, if that is known."""
    if topic.index.is_live(seq) and not _is_over(topic, seq, now_ms):
        return _live(topic, seq)
    if seq > topic.head_seq:
        return Standing(state="unborn")
    if end is not None:
        return Standing(state=end.state, reason=end.reason)
    told = account_told_to_reader(topic, seq, now_ms)
    return Standing(state=told.as_, reason=told.reason)


def account_told_to_reader(topic: Topic, seq: int, now_ms: int) -> Told:
    """What a reader is told who has read up to right before it, as the account of his read has it (semantics 4)."""
    assert 1 <= seq <= topic.head_seq
    gap = tombstone.classify(topic.index, topic.floors, seq - 1, same_epoch=True).gap
    if gap is not None:
        return Told(as_="lost", reason=gap.reason.value, gap_from=gap.gap_from, gap_to=gap.gap_to)
    if topic.index.is_live(seq):
        return Told(as_="expired" if _is_over(topic, seq, now_ms) else "delivered")
    return Told(as_="expired" if _is_expired(topic, seq) else "deleted")


def parts_of(
    topic: Topic, first: int, last: int, now_ms: int, ends: dict[int, End], reader: Reader, parts_max: int
) -> list[Part]:
    """Each seq of [first, last], neighbours that ended alike together, as they are told to who reads from before them:
    what lies in the tombstone that he begins with is lost to him, whatever else became of it. `parts_max`
    parts at most; the last one says how far they go.
    """
    gap_to = 0 if first > last else account_told_to_reader(topic, first, now_ms).gap_to or 0
    found: list[Part] = []
    for seq in range(first, last + 1):
        part = _part(topic, seq, now_ms, ends.get(seq), reader, is_lost=seq <= gap_to)
        before = found[-1] if found else None
        if before is not None and _alike(before) == _alike(part):
            found[-1] = _joined(before, part)
        elif len(found) == parts_max:
            break
        else:
            found.append(part)
    return found


def _part(topic: Topic, seq: int, now_ms: int, end: End | None, reader: Reader, *, is_lost: bool) -> Part:
    now = standing(topic, seq, now_ms, end)
    as_ = "lost" if is_lost else account_told_to_reader(topic, seq, now_ms).as_
    if as_ == "delivered":
        as_ = _given(topic, seq, reader)
    at = None if end is None or end.state != now.state else end.at
    return Part(
        first=seq,
        last=seq,
        as_=as_,
        state=now.state,
        reason=now.reason if as_ != "delivered" else None,
        since=None if end is None else end.ts,
        until=None if end is None else end.ts,
        file=None if at is None else at.path,
        offset=None if at is None else at.item.offset,
    )


def _joined(before: Part, part: Part) -> Part:
    """Both in one; of what took them, what is true of both."""
    is_one_frame = (before.file, before.offset) == (part.file, part.offset)
    are_dated = before.since is not None and before.until is not None and part.until is not None
    return Part(
        first=before.first,
        last=part.last,
        as_=before.as_,
        state=before.state,
        reason=before.reason,
        since=before.since if are_dated else None,
        until=part.until if are_dated else None,
        file=before.file if is_one_frame else None,
        offset=before.offset if is_one_frame else None,
    )


def _given(topic: Topic, seq: int, reader: Reader) -> str:
    """As `delivered`, but for what he has written himself, or does not want."""
    index = topic.index
    at = index.position(seq)
    if index.node_ids is not None and topic.config.dedupe_node and reader.nodes:
        if index.node_ids[at] and index.nodes.name(index.node_ids[at]) in reader.nodes:
            return "own_node"
    if reader.match is not None:
        if index.tag_ids is None or index.tag_ids[at] not in reader.match.numbers(index.tags):
            return "filtered"
    return "delivered"


def _alike(part: Part) -> tuple[object, ...]:
    return part.as_, part.state, part.reason


def _is_over(topic: Topic, seq: int, now_ms: int) -> bool:
    """Its own time has passed, and no frame has said so yet."""
    index = topic.index
    at = index.position(seq)
    return index.expires is not None and bool(index.flags[at] & TIMED) and index.expires[at] < now_ms


def _is_expired(topic: Topic, seq: int) -> bool:
    """Of what has ended above the floor: by its own ttl."""
    index = topic.index
    if seq < index.base_seq:
        return index.past.counts(seq, seq)[1] > 0
    run = index.slotless.next_from(seq)
    if run is not None and run.first <= seq:
        assert run.end != LOST
        return run.end == DeathCause.EXPIRED
    return bool(index.flags[index.position(seq)] & DeathCause.EXPIRED)


def _live(topic: Topic, seq: int) -> Standing:
    index = topic.index
    at = index.position(seq)
    expires_at = (index.expires[at] or None) if index.expires is not None else None
    move = topic.moves.get(seq)
    if topic.jobs is None:
        if move is None:
            return Standing(state="live", expires_at=expires_at)
        return Standing(state="moving", dest=move.dest, reason=_text(move.reason))
    jobs = topic.jobs
    row, rows, job = jobs.row(seq), jobs.rows, jobs.state(seq)
    return Standing(
        state=job.name.lower(),
        node=_text(rows.owner(row)[1]) if job is JobState.IN_FLIGHT else None,
        deadline=rows.until[row] if job is JobState.IN_FLIGHT else None,
        ready_at=jobs.waiting_since(seq) if job is JobState.DELAYED else None,
        deliveries=rows.deliveries[row] or None,
        reason=_text(jobs.reason(seq)) or None,
        dest=None if move is None else move.dest,
        expires_at=expires_at,
    )


def arrived_as(topic_id: int, epoch: int, seq: int, reason: str) -> bytes:
    """The id with which a record that was moved came to where it was moved to."""
    return move_id(topic_id, epoch, seq, reason.encode("utf-8", "backslashreplace"))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
