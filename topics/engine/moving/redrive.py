"""Putting dead letters back: the pair of a dead letter, the other way round (queues 4).

Any record of the source goes, whatever brought it there; of a queue, those that nobody has on lease. In the queue it is
a fresh job, and it keeps the provenance that it came with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topics.engine.commands import Redrive
from topics.engine.lane import Lane
from topics.engine.moving.moves import begin_move
from topics.engine.queue.claim import queue_of
from topics.engine.replies import Redriven
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import MOVES_INTO_TOPIC_MAX
from topics.log.index import LIVE
from topics.log.jobs.transitions import JobState
from topics.log.topic import REDRIVE, Topic


def check_redrive(_: EngineState, lane: Lane | None, ticket: Ticket) -> None:
    """What can be redriven nowhere and never."""
    command = ticket.command
    assert isinstance(command, Redrive)
    if command.queue == command.topic:
        raise invalid("source", f"must name another topic: {command.topic!r} is the queue itself")
    if command.seqs is not None and len(command.seqs) > MOVES_INTO_TOPIC_MAX:
        raise Rejected(
            Code.BATCH_TOO_LARGE,
            f"seqs: {len(command.seqs)} are more than the limit of {MOVES_INTO_TOPIC_MAX} a call",
            limit=MOVES_INTO_TOPIC_MAX,
        )
    if lane is None:
        raise no_topic(command.topic)


def propose_redrive(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Log the intent for those that may go now. It is answered when they are bound to arrive."""
    command, source = ticket.command, lane.topic
    assert isinstance(command, Redrive)
    assert source is not None
    queue_lane, queue = state.topic(command.queue)
    queue_of(queue_lane)
    if queue.config.durability is Durability.EPHEMERAL is not source.config.durability:
        raise invalid(
            "source",
            f"topic {source.name!r} is kept and queue {queue.name!r} is ephemeral: its records would be lost there",
        )
    state.check_writable(lane.shard, lane)
    free = _free(lane, source, command.seqs, now_ms)
    begun: Sequence[int] = ()
    wanted = [seq for seq, _ in zip(free, range(command.count_max), strict=False)]
    if wanted:
        begun = begin_move(state, lane, wanted, queue.name, REDRIVE, now_ms, ticket)
    if not begun:
        state.finish(ticket, Redriven(topic=queue.name, source=source.name, seqs=()))


def _free(lane: Lane, source: Topic, seqs: Sequence[int] | None, now_ms: int) -> Iterator[int]:
    """The records that nobody has and that stay where they are, in the order that was asked for, or by seq."""
    index, moving, jobs = source.index, source.moving(), source.jobs
    if jobs is not None:
        jobs.advance(now_ms)
    for seq in _live(source) if seqs is None else dict.fromkeys(seqs):
        if seq in moving or seq in lane.moving or not index.is_live(seq):
            continue
        is_busy = lane.queue is not None and seq in lane.queue.busy
        if jobs is None or (not is_busy and jobs.state(seq) in (JobState.READY, JobState.DELAYED)):
            yield seq


def _live(topic: Topic) -> Iterator[int]:
    index = topic.index
    return (index.seq_at(at) for at in range(index.start, index.stop) if index.flags[at] & LIVE)
