"""Whole runs of a simulated store with queues and workers: what was said of jobs holds over every crash."""

from __future__ import annotations

import pytest

from topics.simulation.queues.job_workload import JobWorkload
from topics.simulation.world import World

GATE_SEEDS = range(8)
MORE_SEEDS = range(2000, 2200)


def run(seed, **size):
    world = World(seed, asking=JobWorkload, **size)
    world.run()
    return world.workload.counts


@pytest.mark.rule("Q1.6", "Q1.7", "Q2.4", "Q2.5", "Q2.6", "Q2.7", "Q4.7", "Q4.15", "Q4.16", "Q5.1")
@pytest.mark.invariant("I-07", "I-09", "I-10", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_workers_of_a_run_with_crashes_are_told_what_holds(seed):
    assert run(seed)["claimed"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_workers_of_more_runs_are_told_what_holds(seed):
    run(seed, rounds=10, steps=400)


def test_one_seed_with_workers_gives_one_trace_byte_for_byte():
    assert World(7, asking=JobWorkload).run() == World(7, asking=JobWorkload).run()
