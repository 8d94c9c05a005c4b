"""Ack, nack, extend, and what a worker that went away had (queues 4).

A seq counts only if the node holds its live lease, and if a lease is named, only if it is that one. What does not count
is listed, never an error, so all of them may be said again. Until the frame is applied nobody else is given the job.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat

from topics.codec.log.leases import Acked, Extended, Released
from topics.engine.batch import Entry
from topics.engine.change import in_class, in_lease_class
from topics.engine.commands import Ack, Extend, GiveUp, Nack, Release, Settle
from topics.engine.lane import Lane
from topics.engine.moving.letters import CORRUPT
from topics.engine.moving.moves import begin_move
from topics.engine.queue.claim import queue_of
from topics.engine.queue.waiting import QueueLane
from topics.engine.replies import JobsSettled
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.ids import Lease
from topics.log.jobs.backoff import backoff_ms
from topics.log.reads.waiting import News


def propose_ack(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They are deleted by the frame, which is as durable as the topic's records."""
    command = ticket.command
    assert isinstance(command, Ack)
    queue, seqs, counters, skipped = _settled(state, lane, command, now_ms)
    if not seqs:
        state.finish(ticket, _told(lane, queue, (), skipped))
        return
    event = Acked(command.node, array("Q", seqs), array("Q", counters))
    entry = in_class(state, _Acknowledgement, lane, ticket, [event], now_ms)
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_nack(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They rest as long as the worker says, or as the queue's backoff does."""
    command = ticket.command
    assert isinstance(command, Nack)
    queue, seqs, counters, skipped = _settled(state, lane, command, now_ms)
    if not seqs:
        state.finish(ticket, _told(lane, queue, (), skipped))
        return
    if command.delay_ms is None:
        ready_at = _backed_off(lane, queue, seqs, now_ms)
    else:
        ready_at = array("Q", (now_ms + command.delay_ms,)) * len(seqs)
    event = Released(command.node, command.reason, array("Q", seqs), array("Q", counters), ready_at)
    entry = in_lease_class(state, _Settlement, lane, ticket, [event], now_ms)
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_extend(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """A new deadline, from now."""
    command = ticket.command
    assert isinstance(command, Extend)
    queue, seqs, counters, skipped = _settled(state, lane, command, now_ms)
    if not seqs:
        state.finish(ticket, _told(lane, queue, (), skipped))
        return
    deadline = now_ms + command.lease_ms
    event = Extended(command.node, deadline, array("Q", seqs), array("Q", counters))
    entry = in_lease_class(state, _Settlement, lane, ticket, [event], now_ms)
    entry.deadline = deadline
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_release(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They are ready at once. Whose they were is in the lease."""
    command = ticket.command
    assert isinstance(command, Release)
    queue, _ = queue_of(lane)
    state.check_writable(lane.shard, lane)
    queue.jobs.advance(now_ms)
    seqs, counters, skipped = _leased(queue, None, command.seqs, command.leases, now_ms)
    if not seqs:
        state.finish(ticket, _told(lane, queue, (), skipped))
        return
    rows = queue.jobs.rows
    _, node = rows.owner(queue.jobs.row(seqs[0]))
    ready_at = array("Q", (now_ms,)) * len(seqs)
    event = Released(node, b"disconnect", array("Q", seqs), array("Q", counters), ready_at)
    entry = in_lease_class(state, _Settlement, lane, ticket, [event], now_ms)
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_give_up(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They are nobody's from then on. Without a topic for dead letters they stay leased, and come again."""
    command = ticket.command
    assert isinstance(command, GiveUp)
    queue, topic = queue_of(lane)
    queue.jobs.advance(now_ms)
    seqs, _, _ = _leased(queue, None, command.seqs, command.leases, now_ms)
    begun: Sequence[int] = ()
    if seqs and topic.config.dead_letter is not None:
        begun = begin_move(state, lane, seqs, topic.config.dead_letter, CORRUPT.encode(), now_ms)
    state.finish(ticket, _told(lane, queue, begun, [seq for seq in command.seqs if seq not in begun]))


class _Settlement(Entry, eq=False, kw_only=True):
    """Jobs on their way to being settled."""

    lane: Lane
    seqs: Sequence[int] = ()
    skipped: Sequence[int] = ()
    deadline: int | None = None

    def release(self) -> None:
        assert self.lane.queue is not None
        self.lane.queue.settled(self.seqs)

    def reply(self) -> JobsSettled:
        queue = self.lane.queue
        assert queue is not None
        return _told(self.lane, queue, self.seqs, self.skipped, self.deadline)


class _Acknowledgement(_Settlement, eq=False, kw_only=True):
    """They go, and with them what they took."""

    def news(self) -> News:
        return News.FLOORS


def _settled(
    state: EngineState, lane: Lane, command: Settle, now_ms: int
) -> tuple[QueueLane, list[int], list[int], list[int]]:
    """(the queue, seqs that count, the number of the lease of each, seqs that do not)."""
    queue, topic = queue_of(lane)
    state.check_writable(lane.shard, lane)
    queue.jobs.advance(now_ms)  # the counts of the answer are as of now
    fenced = topic.config.require_lease_id
    return queue, *_leased(queue, command.node, command.seqs, command.leases, now_ms, fenced=fenced)


def _leased(
    queue: QueueLane, node: bytes | None, seqs: Sequence[int], leases: Sequence[Lease | None] | None, now_ms: int,
    *, fenced: bool = False,
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """(seqs of which a live lease is meant, the number of each lease, the other seqs)."""
    jobs, rows, busy = queue.jobs, queue.jobs.rows, queue.busy
    kept: list[int] = []
    counters: list[int] = []
    skipped: list[int] = []
    taken: set[int] = set()
    meant: Iterable[Lease | None] = repeat(None) if leases is None else leases
    owners = dict[int, tuple[int, bytes]]()
    for seq, row, lease in zip(seqs, jobs.rows_of(seqs), meant, strict=False):
        counter, owner = rows.counters[row], rows.owners[row]
        if owner not in owners:
            nonce, worker = rows.owner(row)
            owners[owner] = int.from_bytes(nonce, "big"), worker
        if (
            not rows.leased[row]
            or rows.until[row] < now_ms
            or (node is not None and owners[owner][1] != node)
            or seq in busy
            or seq in taken
            or (fenced and lease is None)
            or (lease is not None and lease != (owners[owner][0], counter))
        ):
            skipped.append(seq)
            continue
        taken.add(seq)
        kept.append(seq)
        counters.append(counter)
    return kept, counters, skipped


def _backed_off(lane: Lane, queue: QueueLane, seqs: Iterable[int], now_ms: int) -> array[int]:
    assert lane.topic is not None
    backoff, jobs = lane.topic.config.retry_backoff, queue.jobs
    return array(
        "Q", [now_ms + backoff_ms(backoff, jobs.rows.deliveries[jobs.row(seq)], seq) for seq in seqs]
    )


def _enqueue(
    state: EngineState, lane: Lane, queue: QueueLane, entry: _Settlement, seqs: Sequence[int], skipped: Sequence[int]
) -> None:  # fmt: skip
    entry.seqs, entry.skipped = seqs, skipped
    queue.settle(seqs)
    state.enqueue(lane.shard, entry)


def _told(
    lane: Lane, queue: QueueLane, seqs: Sequence[int], skipped: Sequence[int], deadline: int | None = None
) -> JobsSettled:
    assert lane.topic is not None
    ready, in_flight, _ = queue.counts(lane.topic)
    return JobsSettled(
        topic=lane.name, seqs=seqs, skipped=skipped, ready=ready, in_flight=in_flight, deadline=deadline
    )
