"""Nobody waits for what is there: a claim that waits, and a job that may be claimed now, are no state of rest."""

from __future__ import annotations

from collections.abc import Iterable

from topics.engine.commands import Claim
from topics.engine.engine import Engine
from topics.engine.tickets import Stage, Ticket
from topics.kernel.limits import READ_LIMIT_DEFAULT
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic
from topics.simulation.oracle import PromiseBroken


def check_waiting(engine: Engine, tickets: Iterable[Ticket]) -> None:
    """While nothing is on its way and nothing is due. Bounds of a whole queue may be what is waited for."""
    due_ms = engine.next_deadline_ms()
    if due_ms is not None and due_ms <= engine.now_ms():
        return
    if not all(engine.rested(shard, 0) for shard in range(engine.shards)):
        return
    for ticket in tickets:
        command = ticket.command
        if not isinstance(command, Claim) or ticket.stage is not Stage.WAITING:
            continue
        config = engine.topic_config(command.topic)
        if config is None or config.max_in_flight or config.rate_limit or config.claim_jitter_ms:
            continue
        queue = engine.topic_state(command.topic).queue
        topic = engine.catalog.find(command.topic)
        if topic is None or queue is None or queue.paused:
            continue
        for job in engine.peek(command.topic, JobState.READY, READ_LIMIT_DEFAULT):
            if _has_room(topic, job.seq):
                raise PromiseBroken(f"{command!r:.200} waits, and there is {job}")


def _has_room(topic: Topic, seq: int) -> bool:
    """Whether the job's key lets one more of its jobs go, be it this one or one before it."""
    cap, key_ids, jobs = topic.config.max_in_flight_per_key, topic.index.key_ids, topic.jobs
    key = key_ids[topic.index.find(seq)] if cap and key_ids is not None else 0
    if not key:
        return True
    assert jobs is not None
    return jobs.key_leases.get(key, 0) + (jobs.key_rests.get(key, 0) if cap == 1 else 0) < cap
