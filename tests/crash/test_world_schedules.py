"""Whole runs of a simulated store with schedules: what they fired is part of what every crash is held against."""

from __future__ import annotations

import functools
from collections import Counter

import msgspec
import pytest

from topics.codec.log.schedules import Schedule
from topics.engine.commands import DeleteSchedule, PutSchedule
from topics.log.reads.diff import DiffQuery
from topics.simulation.workload import NAMES, Workload
from topics.simulation.world import World
from topics.store.reading import read_page

GATE_SEEDS = range(6)
MORE_SEEDS = range(5000, 5200)


class Schedules(Workload):
    """Some of the wishes are for schedules, of a few names, in any topic."""

    def __init__(self, rng):
        super().__init__(rng)
        self.counts = Counter()

    def command(self, heads):
        rng = self._random
        if rng.random() < 0.85:
            return super().command(heads)
        topic, name = rng.choice(NAMES), rng.choice(("s1", "s2", "s3", "s4"))
        if rng.random() < 0.15:
            return DeleteSchedule(topic=topic, schedule=name)
        when = rng.choice(({"every_ms": 1000}, {"every_ms": 1000}, {"every_ms": 7000}, {"cron": "* * * * *"}))
        self._number += 1
        return PutSchedule(
            topic=topic,
            schedule=Schedule(
                id=0, name=name, catch_up=rng.choice(("all", "all", "last", "none")), data=b'{"n":%d}' % self._number,
                jitter_ms=rng.choice((0, 0, 300)), **when,
            ),
        )  # fmt: skip

    def answered(self, ticket):
        self.counts[type(ticket.command).__name__] += 1


def fired(world):
    """Of each life of a schedule the instants whose records are still there, in the order of their seqs."""
    found = {}
    for name in world.engine.names():
        from_seq = 0
        while True:
            plan, records = read_page(
                DiffQuery(topic=name, from_seq=from_seq), world.engine.plan_diff, world.opened.reader.read
            )
            for record in records:
                meta = msgspec.json.decode(record.meta) if record.meta else {}
                if "$schedule" in meta:
                    found.setdefault((name, meta["$schedule"], record.data), []).append(
                        int(meta["$schedule_instant"])
                    )
            if plan.next_from_seq == from_seq:
                break
            from_seq = plan.next_from_seq
    return found


@functools.cache
def run(seed, **size):
    world = World(seed, asking=Schedules, **size)
    world.run()
    found = fired(world)
    for life, instants in found.items():
        assert instants == sorted(set(instants)), f"{life} fired twice, or out of order"
    return world.workload.counts, sum(map(len, found.values()))


@pytest.mark.rule("Q4.18")
@pytest.mark.invariant("I-07", "I-09", "I-10", "I-17")
@pytest.mark.parametrize("seed", GATE_SEEDS)
def test_a_run_with_schedules_keeps_every_promise(seed):
    counts, _ = run(seed)

    assert counts["PutSchedule"] > 1


def test_the_runs_of_the_gate_have_records_of_schedules():
    assert sum(run(seed)[1] for seed in GATE_SEEDS) > 10


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_runs_with_schedules_keep_every_promise(seed):
    run(seed, rounds=10, steps=400)
