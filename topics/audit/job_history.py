"""What the log says of one job, `archive/` first: who had it when, and how that ended (queues 2)."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from topics.audit.checks.archived import archive_tasks
from topics.audit.checks.queue_logs import LogItem, read_items
from topics.audit.recovery import read, wal_tasks
from topics.audit.scan.walscan import scan_wal
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
from topics.kernel.config import TopicType
from topics.kernel.errors import Code, Rejected
from topics.kernel.ids import lease_id
from topics.kernel.ports import Disk


@attrs.frozen(kw_only=True)
class JobEvent:
    """`ts`, `deadline` and `ready_at` in ms; what an event does not say is None. `dest`: where it is moved. A `purged`
    or `released_all` is of every job: this one was among them if it was ready, or leased. A `released` without a `node`:
    nobody was given the job, and that was no delivery.
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


def job_history(disk: Disk, where: str, queue: str, seq: int) -> Iterator[JobEvent]:
    """The events of a job that are in the log, in their order.

    Raises:
        Rejected: topic_not_found, not_a_queue.
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed, or a file went away.
    """
    nonce: int | None = None
    for at in queue_items(disk, where, queue):
        item = at.item
        if isinstance(item, Run):
            if item.seq_start <= seq < item.seq_start + len(item):
                yield JobEvent(ts=item.ts, event="put", file=at.file, offset=item.offset)
        elif isinstance(item.payload, LeaseEvent):
            if isinstance(item.payload, Claimed) and seq in item.payload.seqs:
                nonce = item.payload.nonce
            told = _told(item.payload, seq, nonce)
            if told is not None:
                yield _event(at, item.ts, item.payload, told)


def queue_items(disk: Disk, where: str, queue: str) -> Iterator[LogItem]:
    """All that the log and the archive tell of a queue. Raises as `job_history`."""
    state = read(disk, where, same_boot=False)
    topic = next((topic for topic in state.topics.values() if topic.name == queue), None)
    if topic is None:
        raise Rejected(Code.TOPIC_NOT_FOUND, f"there is no topic {queue!r} in {where}", topic=queue)
    if topic.config.type is not TopicType.QUEUE:
        raise Rejected(Code.NOT_A_QUEUE, f"topic {queue!r} is a log; only a queue has jobs", topic=queue)
    tasks = (*archive_tasks(disk), *wal_tasks(disk))
    rows = [row for task in tasks if (row := scan_wal(disk, task)) is not None]
    return (at for at in read_items(disk, rows) if at.item.topic_id == topic.topic_id)


def _event(at: LogItem, ts: int, event: LeaseEvent, told: dict[str, object]) -> JobEvent:
    return JobEvent(ts=ts, event=_NAMES[type(event)], file=at.file, offset=at.item.offset, **told)  # type: ignore[arg-type]  # as `_told` gives them


def _told(event: LeaseEvent, seq: int, nonce: int | None) -> dict[str, object] | None:
    """What an event says of a job; None if it is not of it. `nonce`: of the start that leased it last, if the log
    goes back so far.
    """
    match event:
        case ReleasedAll(reason=reason):
            return {"reason": _text(reason)}
        case Purged(upto=upto):
            return {} if seq <= upto else None
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


_NAMES = {
    Claimed: "claimed", Extended: "extended", Released: "released", ReleasedAll: "released_all", Acked: "acked",
    DeadLettered: "dead_lettered", Moved: "moved", Purged: "purged",
}  # fmt: skip


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
