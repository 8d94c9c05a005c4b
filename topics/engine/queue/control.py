"""Pausing, resuming and purging a queue, and looking at it (queues 4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from topics.codec.log.leases import Paused, Purged, Resumed
from topics.engine.batch import Entry
from topics.engine.commands import Pause, Purge
from topics.engine.lane import Lane
from topics.engine.queue.claim import queue_of
from topics.engine.replies import QueuePaused, QueuePurged, QueueState
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.change import Barrier, in_class
from topics.kernel.config import Durability
from topics.log.jobs.transitions import JobState
from topics.log.reads.waiting import News
from topics.log.topic import Topic


def propose_pause(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Hand out nothing, or again. It survives a restart."""
    command = ticket.command
    assert isinstance(command, Pause)
    queue_of(lane)
    state.check_writable(lane.shard, lane)
    event = Paused() if command.paused else Resumed()
    entry = in_class(state, _Pausing, lane, ticket, [event], now_ms, outlives_records=True)
    entry.paused = command.paused
    state.enqueue(lane.shard, entry)


class _Pausing(Entry, eq=False, kw_only=True):
    lane: Lane
    paused: bool = False

    def reply(self) -> QueuePaused:
        return QueuePaused(topic=self.lane.name, paused=self.paused)


def propose_purge(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Delete what is ready or delayed. Claims on their way come first, and later ones behind."""
    assert isinstance(ticket.command, Purge)
    _, topic = queue_of(lane)
    if lane.in_flight:
        state.park(lane, ticket)
        return
    state.check_writable(lane.shard, lane)
    ephemeral = (
        topic.config.durability is Durability.EPHEMERAL
    )  # its jobs are not in the log, so no frame may be
    purge = _Purging.of(
        lane, [Purged(topic.head_seq)], now_ms, staged=not ephemeral, must_sync=not ephemeral, ticket=ticket,
        memory=b"" if ephemeral else None,
    )  # fmt: skip
    purge.live_before = topic.index.live_count
    if not ephemeral:
        state.check_space(lane.shard, purge.size, keep_reserve=False)
    lane.barrier = ticket
    state.enqueue(lane.shard, purge)


class _Purging(Barrier, eq=False, kw_only=True):
    live_before: int = 0

    def news(self) -> News:
        return News.FLOORS

    def reply(self) -> QueuePurged:
        assert self.lane.topic is not None
        return QueuePurged(topic=self.lane.name, purged=self.live_before - self.lane.topic.index.live_count)


def queue_state(lane: Lane, topic: Topic, now_ms: int) -> QueueState | None:
    """Counts as of now; None of a log."""
    queue = lane.queue
    if queue is None:
        return None
    queue.jobs.advance(now_ms)
    ready, in_flight, delayed = queue.counts(topic)
    return QueueState(
        ready=ready, in_flight=in_flight, delayed=delayed, dead_lettered=queue.jobs.dead_lettered,
        paused=queue.jobs.paused,
    )  # fmt: skip


class QueueFigures(NamedTuple):
    """A queue as it is now, and what became of its jobs since the store was opened."""

    state: QueueState
    claims: int
    claimed: int
    acked: int
    nacked: int
    expired: int


def queue_figures(lane: Lane, topic: Topic, now_ms: int) -> QueueFigures | None:
    """None of a log."""
    state, queue = queue_state(lane, topic, now_ms), lane.queue
    if state is None or queue is None:
        return None
    return QueueFigures(state, queue.claims, queue.claimed, queue.acked, queue.nacked, queue.jobs.expired)


class JobView(NamedTuple):
    """A job as it stands. `node` and `deadline`: of its lease; `ready_at`: of a job that rests; 0 if it has none."""

    seq: int
    state: JobState
    deliveries: int
    priority: int
    reason: bytes
    node: bytes
    deadline: int
    ready_at: int


def peek(lane: Lane, wanted: JobState | Sequence[int], limit: int, now_ms: int) -> Sequence[JobView]:
    """The jobs of a state, at most so many: ready ones in the order in which they would be handed out, and behind them
    by seq those whose turn is only when others of their key are done; else by seq. Or those of these seqs that are
    there, whatever their state.
    """
    queue, topic = queue_of(lane)
    queue.jobs.advance(now_ms)
    if not isinstance(wanted, JobState):
        live = filter(topic.index.is_live, dict.fromkeys(wanted))
        return [_view(queue.jobs.row(seq), seq, lane) for seq in islice(live, limit)]
    if wanted is JobState.READY:
        return [_view(queue.jobs.row(seq), seq, lane) for seq in queue.ready_order(topic).peek(limit)]
    states, rows, index = _SHOWN_AS[wanted], queue.jobs.rows, topic.index
    assert index.job_rows is not None
    limit = min(limit, sum(queue.jobs.counts[state] for state in states))
    if not limit:
        return []
    found = (row for row in filter(None, index.job_rows[index.start :]) if rows.state[row] in states)
    return [_view(row, rows.seqs[row], lane) for row in islice(found, limit)]


_SHOWN_AS: Final = {
    JobState.DELAYED: (JobState.DELAYED,),
    JobState.IN_FLIGHT: (JobState.IN_FLIGHT, JobState.MOVING),
}


def _view(row: int, seq: int, lane: Lane) -> JobView:
    queue, _ = queue_of(lane)
    rows, jobs = queue.jobs.rows, queue.jobs
    state = JobState(rows.state[row])
    leased, resting = state is JobState.IN_FLIGHT, state is JobState.DELAYED
    return JobView(
        seq, state, rows.deliveries[row], jobs.priority(seq), jobs.reason(seq),
        rows.owner(row)[1] if leased else b"", rows.until[row] if leased else 0,
        jobs.waiting_since(seq) if resting else 0,
    )  # fmt: skip
