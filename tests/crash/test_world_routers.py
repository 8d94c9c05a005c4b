"""Whole runs of a simulated store with routers: copies and cursors are part of what every crash is held against."""

from __future__ import annotations

from collections import Counter

import pytest

from topics.simulation.routers.router_workload import RouterWorkload, StandingRouters
from topics.simulation.world import World

GATE_SEEDS = range(6)
MORE_SEEDS = range(4000, 4200)


@pytest.mark.invariant("I-21")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_run_with_routers_keeps_every_promise(seed):
    world = World(seed, asking=RouterWorkload)
    world.run()

    assert world.workload.counts["PutRouter"] > 1


def test_the_runs_of_the_gate_have_routers_that_are_late():
    found = Counter()
    for seed in GATE_SEEDS:
        world = World(seed, asking=RouterWorkload)
        world.run()
        found += world.workload.counts

    assert found["late"] > 5


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_runs_with_routers_keep_every_promise(seed):
    World(seed, rounds=10, steps=400, asking=RouterWorkload).run()


@pytest.mark.rule("S8.1")
@pytest.mark.parametrize("seed", GATE_SEEDS[:3])
def test_what_stands_has_in_the_end_what_a_run_without_a_crash_would_have(seed):
    world = World(seed, asking=StandingRouters)
    world.run()

    assert world.workload.counts["copies"] > 0
