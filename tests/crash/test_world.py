"""Whole runs of the simulated store: whatever the seed, no promise is broken; and the checkers can fail."""

from __future__ import annotations

import pytest

from tests.support.killed import Without
from topics.simulation.world import World

GATE_SEEDS = range(20)
CANARY_SEEDS = range(20, 90)
MORE_SEEDS = range(1000, 1400)


@pytest.mark.rule(
    "S2.1", "S2.2", "S2.4", "S2.5", "S2.6", "S2.7", "S2.11", "S2.12", "S2.13", "S2.15", "S2.16", "S2.20", "S2.21",
    "S2.22", "S2.23", "S2.24", "T3.17", "T4.2", "T4.27", "T4.28", "T4.31",
)  # fmt: skip
@pytest.mark.invariant("I-06", "I-07", "I-08", "I-09", "I-10", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_run_with_crashes_keeps_every_promise(seed):
    report = World(seed).run()

    assert report.counts["opened"] == 7
    assert report.counts["answers"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_runs_keep_every_promise(seed):
    World(seed, rounds=10, steps=400).run()


def test_one_seed_gives_one_trace_byte_for_byte():
    first, second = World(7).run(), World(7).run()

    assert first == second
    assert first.trace != World(8).run().trace


@pytest.mark.parametrize(
    ("op", "where"),
    [("sync_data", ".log"), ("sync_data", "next.tmp"), ("sync_dir", "wal/gen-")],
    ids=["fdatasync of the log", "fdatasync of a header", "directory sync"],
)
def test_a_removed_sync_turns_the_gate_red(op, where):
    found = ""
    for seed in CANARY_SEEDS:
        try:
            World(seed, port=lambda disk: Without(disk, op, where)).run()
        except AssertionError as violation:
            found = f"{seed}: {violation}"
            break

    print(f"{op} on {where}: the first seed that finds it is {found:.200}")
    assert found
