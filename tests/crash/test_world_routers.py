"""Whole runs of a simulated store with routers: copies and cursors are part of what every crash is held against."""

from __future__ import annotations

from collections import Counter

import pytest

from topics.engine.commands import DeleteRouter, PutRouter
from topics.engine.replies import BroughtOver
from topics.log.reads.match import Match, Operator
from topics.simulation.workload import NAMES, Workload
from topics.simulation.world import World

GATE_SEEDS = range(6)
MORE_SEEDS = range(4000, 4200)


class Routers(Workload):
    """Some of the wishes are for routers, of a few names, between any two topics, in cycles, too."""

    def __init__(self, rng):
        super().__init__(rng)
        self.counts = Counter()

    def command(self, heads):
        rng = self._random
        if rng.random() < 0.85:
            return super().command(heads)
        name = rng.choice(("r1", "r2", "r3", "r4", "r5", "r6"))
        if rng.random() < 0.15:
            return DeleteRouter(router=name)
        source, dest = rng.sample(NAMES, 2)
        match = rng.choice((None, None, Match(Operator.EQ, b"red")))
        guarantee = rng.choice(("at_least_once", "at_least_once", "exactly_once"))
        return PutRouter(
            router=name, source=source, dest=dest, filter=match, guarantee=guarantee,
            allow_cycle=rng.random() < 0.5, preserve_node=rng.random() < 0.7,
        )  # fmt: skip

    def answered(self, ticket):
        self.counts[type(ticket.command).__name__] += 1
        if isinstance(ticket.result(), BroughtOver):
            self.counts["late"] += 1


@pytest.mark.invariant("I-21")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_run_with_routers_keeps_every_promise(seed):
    world = World(seed, asking=Routers)
    world.run()

    assert world.workload.counts["PutRouter"] > 1


def test_the_runs_of_the_gate_have_routers_that_are_late():
    found = Counter()
    for seed in GATE_SEEDS:
        world = World(seed, asking=Routers)
        world.run()
        found += world.workload.counts

    assert found["late"] > 5


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_runs_with_routers_keep_every_promise(seed):
    World(seed, rounds=10, steps=400, asking=Routers).run()
