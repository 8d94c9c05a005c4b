"""Whole runs of the simulated server with routers, put and looked at over HTTP: in the end each dest is what its source
says, whatever was killed, restarted, drained and checkpointed meanwhile.
"""

from __future__ import annotations

import pytest

from topics.simulation.routers.router_workload import StandingRouters
from topics.simulation.served import ServedWorld

GATE_SEEDS = range(3)
MORE_SEEDS = range(5000, 5030)


def run(seed, **options):
    world = ServedWorld(seed, asking=StandingRouters, **options)
    return world.run(), world.workload.counts


@pytest.mark.rule("S8.1", "S8.11")
@pytest.mark.invariant("I-21")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_served_run_leaves_in_each_dest_what_a_run_without_a_crash_would_have(seed):
    report, counts = run(seed)

    assert report.counts["heard"] > 10
    assert counts["copies"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_served_runs_do_too(seed):
    run(seed, rounds=8, visits=9)
