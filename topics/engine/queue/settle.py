"""Ack, nack, extend, and what a worker that went away had (queues 4).

A seq counts only if the node holds its live lease, and if a lease is named, only if it is that one. What does not count
is listed, never an error, so all of them may be said again. Until the frame is applied nobody else is given the job;
only what ends the lease makes later words of it count no more: frames are applied in their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import not_
from typing import Final

import msgspec

from topics.codec.log.control import Control
from topics.codec.log.leases import NOBODY, Acked, Extended, Released
from topics.engine.batch import Entry
from topics.engine.commands import Ack, Extend, GiveUp, Nack, Release, Settle
from topics.engine.lane import Lane
from topics.engine.moving.letters import CORRUPT
from topics.engine.moving.moves import begin_move
from topics.engine.queue.claim import queue_of
from topics.engine.queue.waiting import QueueLane
from topics.engine.replies import JobsSettled
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.change import in_class, in_lease_class
from topics.kernel.grouped import grouped, values_at
from topics.kernel.ids import Lease
from topics.log.jobs.backoff import backoff_ms
from topics.log.jobs.rows import TOGETHER_MIN, Rows
from topics.log.jobs.transitions import JobState
from topics.log.reads.waiting import News

_IN_FLIGHT: Final = int(JobState.IN_FLIGHT)


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
    ready_at, leaving = _rested(lane, queue, seqs, command.delay_ms, now_ms)
    event = Released(command.node, command.reason, array("Q", seqs), array("Q", counters), ready_at)
    entry = in_lease_class(state, _Nacking, lane, ticket, [event], now_ms)
    entry.leaving = leaving
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
    entry = in_lease_class(state, _Extension, lane, ticket, [event], now_ms)
    entry.deadline = deadline
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_release(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They are ready at once. Whose they were is in the lease; those that nobody was given the frame calls nobody's."""
    command = ticket.command
    assert isinstance(command, Release)
    queue, _ = queue_of(lane)
    state.check_writable(lane.shard, lane)
    queue.jobs.advance(now_ms)
    seqs, counters, skipped = _leased(queue, None, command.seqs, command.leases)
    if not seqs:
        state.finish(ticket, _told(lane, queue, (), skipped))
        return
    rows = queue.jobs.rows
    node, reason = NOBODY, b""
    if command.was_sent:
        (_, node), reason = rows.owner(queue.jobs.row(seqs[0])), b"disconnect"
    ready_at = array("Q", (now_ms,)) * len(seqs)
    event = Released(node, reason, array("Q", seqs), array("Q", counters), ready_at)
    entry = in_lease_class(state, _Settlement, lane, ticket, [event], now_ms)
    _enqueue(state, lane, queue, entry, seqs, skipped)


def propose_give_up(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """They are nobody's from then on. Without a topic for dead letters they stay leased, and come again."""
    command = ticket.command
    assert isinstance(command, GiveUp)
    queue, topic = queue_of(lane)
    queue.jobs.advance(now_ms)
    seqs, _, _ = _leased(queue, None, command.seqs, command.leases)
    begun: Sequence[int] = ()
    dest = topic.config.dead_letter_of(topic.name)
    if seqs and dest is not None:
        begun = begin_move(state, lane, seqs, dest, CORRUPT.encode(), now_ms)
    state.finish(ticket, _told(lane, queue, begun, [seq for seq in command.seqs if seq not in begun]))


class _Settlement(Entry, eq=False, kw_only=True):
    """Jobs whose leases are about to end. `keys`: the number of each one's, if keys are bounded."""

    lane: Lane
    seqs: Sequence[int] = ()
    skipped: Sequence[int] = ()
    deadline: int | None = None
    keys: Sequence[int] = ()

    def hold(self, queue: QueueLane) -> None:
        queue.busy.update(self.seqs)
        queue.hold_keys(self.seqs, self.keys)

    def release(self) -> None:
        queue = self.lane.queue
        assert queue is not None
        queue.busy.difference_update(self.seqs)
        queue.let_go_keys(self.seqs, self.keys)

    def reply(self) -> JobsSettled:
        queue = self.lane.queue
        assert queue is not None
        return _told(self.lane, queue, self.seqs, self.skipped, self.deadline)


class _Nacking(_Settlement, eq=False, kw_only=True):
    """Jobs that are about to rest. `leaving`: those that nobody gets again; that they go to the dead letters is said
    behind this, and answered by this already.
    """

    leaving: Sequence[int] = ()

    def reply(self) -> JobsSettled:
        told = super().reply()
        assert self.lane.queue is not None
        self.lane.queue.nacked += len(self.seqs)
        if not self.leaving:
            return told
        assert self.lane.topic is not None
        leaving = sum(map(self.lane.topic.index.is_live, self.leaving))
        return msgspec.structs.replace(told, ready=told.ready - leaving, in_flight=told.in_flight + leaving)


class _Extension(_Settlement, eq=False, kw_only=True):
    """Jobs whose leases are about to last longer: until then nobody else may have them; their holder may say more."""

    def hold(self, queue: QueueLane) -> None:
        assert self.deadline is not None
        for seq in self.seqs:
            queue.extending.setdefault(seq, []).append(self.deadline)

    def release(self) -> None:
        queue = self.lane.queue
        assert queue is not None
        for seq in self.seqs:
            queue.extending[seq].pop(0)
            if not queue.extending[seq]:
                del queue.extending[seq]
        queue.jobs.due.add_all(0, self.seqs)  # whatever became of it: those that have run out by now end


class _Acknowledgement(_Settlement, eq=False, kw_only=True):
    """They go, and with them what they took. A few of several workers each go together; each has a frame of its own."""

    def absorb(self, other: Entry) -> bool:
        if not isinstance(other, _Acknowledgement) or len(self.seqs) + len(other.seqs) > TOGETHER_MIN:
            return False
        done, more = self.items[0], other.items[0]
        assert isinstance(done, Control)
        assert isinstance(more, Control)
        assert isinstance(done.payload, Acked)
        assert isinstance(more.payload, Acked)
        done.payload.seqs.extend(more.payload.seqs)
        done.payload.leases.extend(more.payload.leases)
        if done.ts != more.ts:  # when they were done changes nothing of what they leave
            self.items = [msgspec.structs.replace(done, ts=more.ts)]
        return True

    def news(self) -> News:
        return News.FLOORS

    def reply(self) -> JobsSettled:
        assert self.lane.queue is not None
        self.lane.queue.acked += len(self.seqs)
        return super().reply()


def _settled(
    state: EngineState, lane: Lane, command: Settle, now_ms: int
) -> tuple[QueueLane, list[int], list[int], list[int]]:
    """(the queue, seqs that count, the number of the lease of each, seqs that do not)."""
    queue, topic = queue_of(lane)
    state.check_writable(lane.shard, lane)
    queue.jobs.advance(now_ms)  # the counts of the answer are as of now
    fenced, seqs, leases = topic.config.require_lease_id, command.seqs, command.leases
    if len(seqs) == 1:
        lease = None if leases is None else leases[0]
        counter = _one_leased(queue, command.node, seqs[0], lease, fenced=fenced)
        return (queue, [], [], list(seqs)) if counter is None else (queue, list(seqs), [counter], [])
    return queue, *_leased(queue, command.node, seqs, leases, fenced=fenced)


def _one_leased(
    queue: QueueLane, node: bytes | None, seq: int, lease: Lease | None, *, fenced: bool
) -> int | None:
    """As `_leased`, of one: the number of its lease; None if it does not count."""
    rows, row = queue.jobs.rows, queue.jobs.row(seq)
    if seq in queue.busy or not queue.is_leased(seq, row):
        return None
    counter, nonce = rows.counters[row], _nonce(rows, rows.owners[row], node)
    if nonce is None or (fenced if lease is None else lease != (nonce, counter)):
        return None
    return counter


def _leased(
    queue: QueueLane, node: bytes | None, seqs: Sequence[int], leases: Sequence[Lease | None] | None, *,
    fenced: bool = False,
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """(seqs of which a live lease is meant, the number of each lease, the other seqs), as of the last `advance`."""
    rows, busy = queue.jobs.rows, queue.busy
    group = grouped(queue.jobs.rows_of(seqs))
    leased: Iterable[bool] = map(_IN_FLIGHT.__eq__, values_at(rows.state, group))
    if queue.extending:
        leased = map(queue.is_leased, seqs, group)
    counters, owners = values_at(rows.counters, group), values_at(rows.owners, group)
    nonces = {owner: nonce for owner in set(owners) if (nonce := _nonce(rows, owner, node)) is not None}
    unnamed = not fenced
    meant: Iterable[Lease | None] = repeat(None) if leases is None else leases
    count = [
        is_leased
        and owner in nonces
        and (unnamed if lease is None else lease == (nonces[owner], counter))
        and seq not in busy
        for seq, is_leased, owner, counter, lease in zip(seqs, leased, owners, counters, meant, strict=False)
    ]
    if len(set(seqs)) != len(seqs):  # the first that counts is the one
        taken = set[int]()
        for at, seq in enumerate(seqs):
            count[at] = count[at] and seq not in taken
            if count[at]:
                taken.add(seq)
    if all(count):
        return list(seqs), list(counters), []
    return (
        list(compress(seqs, count)),
        list(compress(counters, count)),
        list(compress(seqs, map(not_, count))),
    )


def _nonce(rows: Rows, owner: int, node: bytes | None) -> int | None:
    """Of the start that gave the leases of this owner; None if they are not the node's."""
    nonce, worker = rows.named(owner)
    return int.from_bytes(nonce, "big") if node is None or worker == node else None


def _rested(
    lane: Lane, queue: QueueLane, seqs: Sequence[int], delay_ms: int | None, now_ms: int
) -> tuple[array[int], list[int]]:
    """When each is ready again: one that has had all its deliveries at once, for it is moved then (queues 3). And which
    these are.
    """
    assert lane.topic is not None
    config, jobs = lane.topic.config, queue.jobs
    deliveries = values_at(jobs.rows.deliveries, grouped(jobs.rows_of(seqs)))
    if delay_ms is not None:
        ready_at = array("Q", (now_ms + delay_ms,)) * len(seqs)
    else:
        rests = [backoff_ms(config.retry_backoff, *of) for of in zip(deliveries, seqs, strict=True)]
        ready_at = array("Q", [now_ms + rest for rest in rests])
    leaving = []
    if deliveries_max := config.deliveries_max_of(lane.name):
        for i, times in enumerate(deliveries):
            if times >= deliveries_max:
                ready_at[i] = now_ms
                leaving.append(seqs[i])
    return ready_at, leaving


def _enqueue(
    state: EngineState, lane: Lane, queue: QueueLane, entry: _Settlement, seqs: Sequence[int], skipped: Sequence[int]
) -> None:  # fmt: skip
    assert lane.topic is not None
    index = lane.topic.index
    entry.seqs, entry.skipped = seqs, skipped
    if lane.topic.config.max_in_flight_per_key and index.key_ids is not None:
        entry.keys = values_at(index.key_ids, index.find_all(seqs))
    entry.hold(queue)
    state.enqueue(lane.shard, entry)


def _told(
    lane: Lane, queue: QueueLane, seqs: Sequence[int], skipped: Sequence[int], deadline: int | None = None
) -> JobsSettled:
    assert lane.topic is not None
    ready, in_flight, _ = queue.counts(lane.topic)
    return JobsSettled(
        topic=lane.name, seqs=seqs, skipped=skipped, ready=ready, in_flight=in_flight, deadline=deadline
    )
