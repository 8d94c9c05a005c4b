"""Whole runs of the simulated server, clients on the wire: whatever the seed, no promise is broken; and it can fail."""

from __future__ import annotations

import pytest

from tests.support.killed import Without
from topics.embed.aio.runtime import Runtime
from topics.engine.replies import Appended
from topics.simulation.served import ServedWorld
from topics.store.writer import NOTHING_TOOK

GATE_SEEDS = range(20)
MORE_SEEDS = range(2000, 2400)


@pytest.mark.rule("S2.1", "S2.2", "S2.5", "S2.6", "S2.16", "S2.23", "H1.12", "H1.13", "H4.7", "H4.8")
@pytest.mark.invariant("I-06", "I-07", "I-09", "I-10", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_served_run_with_crashes_keeps_every_promise(seed):
    report = ServedWorld(seed).run()

    assert report.counts["opened"] == 6
    assert report.counts["heard"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_served_runs_keep_every_promise(seed):
    ServedWorld(seed, rounds=8, visits=9).run()


@pytest.mark.parametrize("seed", [3, 4])  # connections are served by tasks, and where their bytes are told
def test_one_seed_gives_one_trace_byte_for_byte(seed):
    first, second = ServedWorld(seed).run(), ServedWorld(seed).run()

    assert first == second
    assert first.trace != ServedWorld(seed + 2).run().trace


class Hasty(Runtime):
    """Answers an append when it is proposed, before anything is written."""

    async def append(self, command):
        self.engine.propose(command)
        self._after_call(NOTHING_TOOK)
        seqs = range(1, len(command.records) + 1)
        reply = Appended(
            topic=command.topic, first_seq=1, last_seq=seqs[-1], seqs=seqs, head_seq=seqs[-1], durable_seq=0,
            count=len(seqs), duplicates=0, created=False, deduped=False,
        )  # fmt: skip
        return reply, NOTHING_TOOK


class Absent(Runtime):
    """Forgets to count down the requests under way."""

    async def submit(self, command, *, sync=False):
        reply = await super().submit(command, sync=sync)
        self._in_flight += 1
        return reply


def found(**planted):
    """What the first seed of the gate that sees it says."""
    for seed in GATE_SEEDS:
        try:
            ServedWorld(seed, **planted).run()
        except AssertionError as violation:
            print(f"seed {seed}: {violation}")
            return str(violation)
    return ""


def test_an_answer_before_the_write_turns_the_gate_red():
    assert "not acknowledged" in found(runtime=Hasty)


def test_a_removed_sync_turns_the_gate_red():
    assert "I-17" in found(port=lambda disk: Without(disk, "sync_data", ".log"))


def test_a_request_that_is_counted_for_ever_turns_the_gate_red():
    assert "requests in flight" in found(runtime=Absent)
