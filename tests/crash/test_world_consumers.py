"""Whole runs of a simulated store with durable consumers: positions are part of what every crash is held against."""

from __future__ import annotations

from collections import Counter

import pytest

from topics.engine.commands import CommitConsumer, DeleteConsumer, PutConsumer
from topics.simulation.workload import NAMES, Workload
from topics.simulation.world import World

GATE_SEEDS = range(8)
MORE_SEEDS = range(3000, 3200)


class Readers(Workload):
    """Some of the wishes are those of readers that keep their place."""

    def __init__(self, rng):
        super().__init__(rng)
        self.counts = Counter()

    def command(self, heads):
        rng = self._random
        if rng.random() < 0.6:
            return super().command(heads)
        topic, consumer = rng.choice(NAMES), rng.choice("cd")
        seq = max(heads.get(topic, 0) - rng.choice((0, 0, 1, 3, 9)), 0)
        kind = rng.choices(("commit", "put", "delete"), (70, 25, 5))[0]
        if kind == "commit":
            return CommitConsumer(
                topic=topic, consumer=consumer, seq=seq, expected=rng.choice((None, None, seq))
            )
        if kind == "put":
            start = rng.choice(({}, {"tail": True}, {"from_seq": seq}, {"from_ts": 0}))
            return PutConsumer(topic=topic, consumer=consumer, **start)
        return DeleteConsumer(topic=topic, consumer=consumer)

    def answered(self, ticket):
        command, reply = ticket.command, ticket.result()
        if isinstance(command, CommitConsumer):
            self.counts["moved" if reply.moved else "stayed"] += 1
            assert reply.from_seq >= command.seq or not reply.moved
        elif isinstance(command, PutConsumer):
            self.counts["put"] += 1


def run(seed, **size):
    world = World(seed, asking=Readers, **size)
    world.run()
    return world.workload.counts


@pytest.mark.rule("H7.5", "H7.7")
@pytest.mark.invariant("I-07", "I-09", "I-10", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_readers_of_a_run_with_crashes_stand_where_they_were_told(seed):
    counts = run(seed)

    assert counts["moved"]
    assert counts["put"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_readers_of_more_runs_stand_where_they_were_told(seed):
    run(seed, rounds=10, steps=400)
