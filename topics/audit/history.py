"""What became of one record or job: what the log says of it, `archive/` first, and how it stands (queues 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import msgspec

from topics.audit.checks.archived import archive_tasks
from topics.audit.checks.queue_logs import LogItem, read_items
from topics.audit.recovery import RecoveredDirectory, read, wal_tasks
from topics.audit.scan.walscan import scan_wal
from topics.codec.log.control import Delete
from topics.codec.log.frame import Run
from topics.codec.log.leases import (
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    LeaseEvent,
    Moved,
    Purged,
    Released,
    ReleasedAll,
)
from topics.engine.moving.letters import move_id
from topics.kernel.config import TopicType
from topics.kernel.errors import Code, Rejected, not_a_queue
from topics.kernel.ids import lease_id
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log import retention
from topics.log.jobs.transitions import JobState
from topics.log.past import DeathCause
from topics.log.reads.match import parse_match
from topics.log.topic import Topic

_ENDINGS = frozenset({"acked", "moved", "deleted"})


@attrs.frozen(kw_only=True)
class LogEvent:
    """`ts`, `deadline` and `ready_at` in ms; what an event does not say is None. `dest`: where it is moved. A `purged`
    is told of what the log does not show leased; that is not for certain where the log begins later than the job. A
    `released` without a `node`: nobody was given the job, and that was no delivery.
    """

    ts: int
    event: str
    file: str
    offset: int
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    ready_at: int | None = None
    reason: str | None = None
    dest: str | None = None


@attrs.frozen(kw_only=True)
class Standing:
    """How it stands. `state`: `live` of a record; `ready`, `in_flight`, `delayed`, `moving` of a job; else how it
    ended: `acked`, `moved`, `purged`, `deleted`, `expired`, `lost`; `unborn` above the head. What there is not is None.
    """

    state: str
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None
    deliveries: int | None = None
    reason: str | None = None
    dest: str | None = None
    dest_seq: int | None = None


@attrs.frozen
class History:
    """In the log's order; and how it stands, by the log and the snapshots. `is_job`: it is of a queue."""

    is_job: bool
    events: Sequence[LogEvent]
    now: Standing


def history(disk: Disk, where: str, name: str, seq: int, now_ms: int) -> History:
    """What became of a record, or of a job.

    Raises:
        Rejected: topic_not_found.
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed, or a file went away.
    """
    state = read(disk, where, same_boot=False)
    topic = _topic(state, where, name)
    events = list(_events(_items(disk, topic), seq))
    retention.retire(topic, now_ms)
    is_job = topic.jobs is not None
    if topic.jobs is not None:
        topic.jobs.advance(now_ms)
    return History(is_job, events, _standing(state, topic, seq, events))


def queue_items(disk: Disk, where: str, queue: str) -> Iterator[LogItem]:
    """All that the log and the archive tell of a queue. Raises as `history`, and not_a_queue."""
    topic = _topic(read(disk, where, same_boot=False), where, queue)
    if topic.config.type is not TopicType.QUEUE:
        raise not_a_queue(queue)
    return _items(disk, topic)


def _topic(state: RecoveredDirectory, where: str, name: str) -> Topic:
    found = next((topic for topic in state.topics.values() if topic.name == name), None)
    if found is None:
        raise Rejected(Code.TOPIC_NOT_FOUND, f"there is no topic {name!r} in {where}", topic=name)
    return found


def _items(disk: Disk, topic: Topic) -> Iterator[LogItem]:
    tasks = (*archive_tasks(disk), *wal_tasks(disk))
    rows = [row for task in tasks if (row := scan_wal(disk, task)) is not None]
    return (at for at in read_items(disk, rows) if at.item.topic_id == topic.topic_id)


def _events(items: Iterator[LogItem], seq: int) -> Iterator[LogEvent]:
    """Those that are of this seq, up to the one that ended it."""
    nonce: int | None = None
    tag = b""
    held_until: int | None = None  # 0: it is not leased; None: the log does not go back so far
    for at in items:
        item = at.item
        if isinstance(item, Run):
            if item.seq_start <= seq < item.seq_stop:
                tag = b"" if item.tags is None else item.tags[seq - item.seq_start]
                held_until = 0
                yield LogEvent(ts=item.ts, event="put", file=at.file, offset=item.offset)
            continue
        if isinstance(item.payload, Delete):
            told = _deleted(item.payload, seq, tag)
            event = "deleted"
        elif isinstance(item.payload, LeaseEvent):
            if isinstance(item.payload, Claimed) and seq in item.payload.seqs:
                nonce = item.payload.nonce
            told = _told(
                item.payload, seq, nonce, is_held=None if held_until is None else held_until >= item.ts
            )
            held_until = _held_until(item.payload, told, held_until)
            event = _NAMES.get(type(item.payload), "")
        else:
            continue
        if told is not None:
            yield LogEvent(ts=item.ts, event=event, file=at.file, offset=item.offset, **told)  # type: ignore[arg-type]  # as `_told` gives them
            if event in _ENDINGS or (event == "purged" and held_until is not None):
                return


def _deleted(event: Delete, seq: int, tag: bytes) -> dict[str, object] | None:
    """As `_told`, of a delete. `tag`: of the record, if the log has it."""
    before_seq = event.upto + 1 if event.before_seq is None else event.before_seq
    if seq > event.upto or seq >= before_seq:
        return None
    if event.match is None:
        return {"reason": f"before_seq {before_seq}"}
    match = parse_match(msgspec.json.decode(event.match), tag_bytes_max=U64_MAX)
    return {"reason": f"match {_text(event.match)}"} if match.accepts(tag) else None


def _standing(state: RecoveredDirectory, topic: Topic, seq: int, events: Sequence[LogEvent]) -> Standing:
    last = events[-1] if events else None
    if last is not None and last.event in _ENDINGS:
        if last.event != "moved":
            return Standing(state=last.event, node=last.node, reason=last.reason)
        sent = next((one for one in reversed(events) if one.event == "dead_lettered"), last)
        return Standing(
            state="moved", reason=sent.reason, dest=sent.dest, dest_seq=_arrived(state, topic, seq, sent)
        )
    if topic.index.is_live(seq):
        return _live(topic, seq)
    if seq > topic.head_seq:
        return Standing(state="unborn")
    if last is not None and last.event == "purged":
        return Standing(state="purged")
    return _gone(topic, seq)


def _arrived(state: RecoveredDirectory, topic: Topic, seq: int, sent: LogEvent) -> int | None:
    """As which seq it is where it was moved to, if that is known there."""
    dest = next((one for one in state.topics.values() if one.name == sent.dest), None)
    if dest is None:
        return None
    move = move_id(topic.topic_id, topic.epoch, seq, (sent.reason or "").encode())
    return dest.dedup_ids.find(move, 0)


def _live(topic: Topic, seq: int) -> Standing:
    if topic.jobs is None:
        move = topic.moving().get(seq)
        return Standing(state="live") if move is None else Standing(state="moving", dest=move.dest)
    jobs = topic.jobs
    row, rows, job = jobs.row(seq), jobs.rows, jobs.state(seq)
    move = topic.moves.get(seq)
    return Standing(
        state=job.name.lower(),
        node=_text(rows.owner(row)[1]) if job is JobState.IN_FLIGHT else None,
        deadline=rows.until[row] if job is JobState.IN_FLIGHT else None,
        ready_at=jobs.waiting_since(seq) if job is JobState.DELAYED else None,
        deliveries=rows.deliveries[row],
        reason=_text(jobs.reason(seq)) or None,
        dest=None if move is None else move.dest,
    )


def _gone(topic: Topic, seq: int) -> Standing:
    """Of what the log does not name: by the floors, and what is remembered of slots."""
    index, floors = topic.index, topic.floors
    lost = index.lost.at(seq)
    if lost is not None:
        return Standing(state="lost", reason=lost.reason)
    if seq < floors.evict_floor:
        return Standing(state="lost", reason=floors.reason_above(seq - 1, []).value)
    if seq >= index.base_seq:
        is_expired = bool(index.flags[index.position(seq)] & DeathCause.EXPIRED)
    else:
        is_expired = index.past.counts(seq, seq)[1] > 0
    return Standing(state="expired" if is_expired else "deleted")


def _held_until(event: LeaseEvent, told: dict[str, object] | None, before: int | None) -> int | None:
    """Until when nobody else can get it, behind an event."""
    match event:
        case _ if told is None:
            return before
        case Claimed() | Extended():
            deadline = told["deadline"]
            assert isinstance(deadline, int)
            return deadline
        case DeadLettered():
            return U64_MAX
        case Purged():
            return before
        case _:
            return 0


def _told(
    event: LeaseEvent, seq: int, nonce: int | None, *, is_held: bool | None
) -> dict[str, object] | None:
    """What an event of leases says of this seq; None if it is not of it. `nonce`: of the start that leased it last, if
    the log goes back so far. `is_held`: whether it is leased then, or moves; None if that is not known.
    """
    match event:
        case ReleasedAll(reason=reason):
            return {"reason": _text(reason)} if is_held else None
        case Purged(upto=upto):
            return {} if seq <= upto and not is_held else None
        case Claimed() | Extended() | Released() | Acked() | DeadLettered() | Moved():
            if seq not in event.seqs:
                return None
        case _:
            return None
    i = event.seqs.index(seq)
    match event:
        case Claimed():
            first = 0
            for node, deadline, jobs in event.grants:
                first += jobs
                if i < first:
                    lease = lease_id(event.nonce, event.first_lease + i)
                    return {"node": _text(node), "lease_id": lease, "deadline": deadline}
        case DeadLettered(dest=dest, reason=reason):
            return {"dest": _text(dest), "reason": _text(reason)}
        case Extended() | Released() | Acked():
            told: dict[str, object] = {
                "node": _text(event.node) or None,
                "lease_id": None if nonce is None else lease_id(nonce, event.leases[i]),
            }
            if isinstance(event, Extended):
                told["deadline"] = event.deadline
            if isinstance(event, Released):
                told |= {"reason": _text(event.reason) or None, "ready_at": event.ready_at[i]}
            return told
        case _:
            pass
    return {}


_NAMES: dict[type[LeaseEvent], str] = {
    Claimed: "claimed", Extended: "extended", Released: "released", ReleasedAll: "released_all", Acked: "acked",
    DeadLettered: "dead_lettered", Moved: "moved", Purged: "purged",
}  # fmt: skip


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
