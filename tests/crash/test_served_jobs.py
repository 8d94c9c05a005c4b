"""Whole runs of the simulated server with queues: workers on HTTP and on WebSockets that freeze, die, answer late."""

from __future__ import annotations

import msgspec
import pytest

from topics.embed.aio.hands import Hands
from topics.embed.aio.jobs import JobDesk
from topics.embed.aio.runtime import Runtime
from topics.engine.commands import Ack
from topics.simulation.queues.job_workload import JobWorkload
from topics.simulation.served import ServedWorld

GATE_SEEDS = range(4)
CANARY_SEEDS = range(14, 34)
MORE_SEEDS = range(2000, 2100)


def run(seed, **options):
    world = ServedWorld(seed, asking=JobWorkload, **options)
    return world.run(), world.workload.counts


@pytest.mark.rule(
    "Q1.6", "Q1.7", "Q2.4", "Q2.5", "Q2.6", "Q2.7", "Q4.2", "Q4.4", "Q4.5", "Q4.6", "Q4.7", "Q5.1", "Q5.2"
)
@pytest.mark.invariant("I-07", "I-09", "I-10", "I-11", "I-12", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_workers_of_a_served_run_with_crashes_are_told_what_holds(seed):
    report, counts = run(seed, rounds=4)

    assert counts["claimed"]
    assert report.counts["heard"] > 10
    assert any(report.counts.get(f"sockets: {manner}") for manner in ("closes", "drops", "breaks off"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_workers_of_more_served_runs_are_told_what_holds(seed):
    report, counts = run(seed, rounds=8, visits=9)

    assert counts["claimed"]
    assert report.counts["heard"] > 10


def test_one_seed_with_workers_gives_one_trace_byte_for_byte():
    assert run(5, rounds=2) == run(5, rounds=2)


class Keeping(JobDesk):
    """Gives nothing back."""

    def release(self, topic, jobs, *, was_sent): ...


def parts(runtime):
    return runtime.engine, runtime._fetcher, runtime, runtime.claims, runtime._log


class SocketsKeep(Runtime):
    """A socket that closes keeps what it was pushed."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.hands = Hands(self.engine, Keeping(*parts(self)))


class ClaimsKeep(Runtime):
    """A claim whose client has hung up keeps its jobs."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.jobs = Keeping(*parts(self))
        give_back = self.claims._give_back  # of who left with jobs on their way
        self.claims._give_back = lambda ticket: ticket.command.told_end and give_back(ticket)


class Trusting(Runtime):
    """An ack counts whatever lease it names."""

    async def submit(self, command, *, sync=False):
        return await super().submit(trusted(command), sync=sync)

    async def begin(self, command, ended):
        await super().begin(trusted(command), ended)


def trusted(command):
    return msgspec.structs.replace(command, leases=None) if isinstance(command, Ack) else command


class Twice(JobDesk):
    """Answers a claim with what the last one had."""

    last = None

    def at_hand(self, reply, room):
        claimed = super().at_hand(reply, room)
        self.last = claimed if claimed is not None and claimed.jobs else self.last
        return (claimed and self.last) or claimed


class TellsTwice(Runtime):
    """A job is told to two workers."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.jobs = Twice(*parts(self))


@pytest.mark.parametrize(
    ("planted", "said", "seeds"),
    [
        (SocketsKeep, "which it was pushed", CANARY_SEEDS),
        (ClaimsKeep, "which was never sent", CANARY_SEEDS),
        (Trusting, "has not answered", CANARY_SEEDS),
        (
            TellsTwice,
            "was told twice",
            [58],
        ),  # in most it is told to another worker first, who has no such lease
    ],
)
def test_a_planted_bug_turns_the_gate_red(planted, said, seeds):
    found = ""
    for seed in seeds:
        try:
            run(seed, runtime=planted)
        except AssertionError as violation:
            found = f"{seed}: {violation}"
            break

    print(f"{planted.__name__}: the first seed that finds it is {found:.300}")
    assert said in found
