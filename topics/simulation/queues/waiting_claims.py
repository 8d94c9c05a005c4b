"""Nobody waits for what is there: a claim that waits, and a job that may be claimed now, are no state of rest."""

from __future__ import annotations

from collections.abc import Iterable

from topics.engine.commands import Claim
from topics.engine.engine import Engine
from topics.engine.tickets import Stage, Ticket
from topics.log.jobs.transitions import JobState
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
        ready = [] if queue is None or queue.paused else engine.peek(command.topic, JobState.READY, 1)
        if ready:
            raise PromiseBroken(f"{command!r:.200} waits, and there is {ready[0]}")
