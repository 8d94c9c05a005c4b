"""A database in an embedded store, struck at every disk call of edits, batches, merges, gc, compaction and opening.

What an edit has returned from is there afterwards, whichever end it was; the edit that was struck is there whole or
not at all; and opening once more finds the same bytes.
"""

from __future__ import annotations

import itertools
import random

import pytest

import topics
from tests.support.kv_nodes import Node, keys_of, state
from topics.embed.database import Databases
from topics.kernel.errors import TopicsError
from topics.lattice.values.stamps import MAX_DRIFT_MS
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

GATE_POINTS = 120
PROCESS = "process"
ENDS = (PROCESS, *Shape)
SMALL = topics.Limits(wal_file_first=4096, wal_file_max=16384, wal_reserve=512)


class Machine:
    """One directory, and the database in it while it is open."""

    def __init__(self):
        self.disk = SimDisk(seed=3)
        self.clock = ManualClock(1_700_000_000_000)
        self.peer = Node(9, now_ms=1_700_000_000_000)
        self.peer.db.sadd("s", "theirs")
        self.peer.db.hset("h", "f", "theirs")
        self.peer.db.incrby("c", 100)
        self.ahead = Node(8, now_ms=1_700_000_000_000 + 2 * MAX_DRIFT_MS)
        self.ahead.db.set("k", "two hours ahead")
        self.restarted = False

    def open(self):
        opened = open_store(
            self.disk, self.clock, SeededEntropy(1), where="sim", machine_restarted=self.restarted,
            confirm=lambda _: None,
            options=topics.StoreOptions(checking=True, min_free_bytes=4096, limits=SMALL),
        )  # fmt: skip
        assert not opened.read_only
        self.store = topics.Store(opened, self.disk, where="sim", housekeeping=False)
        self.databases = Databases(self.store, keys_of(1), clock=self.clock, entropy=SeededEntropy(2))
        self.db = self.databases.open("shared")

    def end(self, how, seed):
        self.restarted = how is not PROCESS
        if self.restarted:
            self.disk.power_loss(how, seed)
        else:
            self.disk.process_death()
        self.clock.advance(5)


def batch(machine):
    with machine.db.batch():
        machine.db.set("b1", 1)
        machine.db.lpush("b2", "x", "y")
        machine.db.incr("c")


def gc(machine):
    machine.clock.advance(10_000)
    machine.db.gc(grace_ms=1000)


EDITS = (
    lambda m: m.db.set("k", "v" * 300),
    lambda m: m.db.hset("h", "f", "ours"),
    lambda m: m.db.sadd("s", "a", "b"),
    lambda m: m.db.incrby("c", 5),
    batch,
    lambda m: m.db.merge_replicas(m.peer.db.export_replica()),
    lambda m: m.db.merge_replicas(m.ahead.db.export_replica()),
    lambda m: m.db.delete("c"),
    lambda m: m.db.delete("k"),
    lambda m: m.db.expire("h", 5),
    gc,
    lambda m: m.db.incr("c"),
    lambda m: m.databases.compact("shared"),
    lambda m: m.db.zadd("z", 1, "m"),
    lambda m: m.db.withdraw("k"),
)


def seen(db):
    """What is there, and what waits."""
    return state(db), db.future()


def run(machine, reached):
    """Open, then every edit; `reached` gets the state after each step that has returned."""
    machine.open()
    reached.append(seen(machine.db))
    for edit in EDITS:
        edit(machine)
        reached.append(seen(machine.db))


def states_of_a_quiet_run():
    reached, machine = [], Machine()
    run(machine, reached)
    return reached, machine.disk.mutations


def strike(call, landed, how, expected):
    machine, reached = Machine(), []
    machine.disk.crash_at(call, landed)
    with pytest.raises((SimCrash, TopicsError)):
        run(machine, reached)
    assert machine.disk.down
    assert reached == expected[: len(reached)]
    machine.end(how, call)

    machine.open()
    found = seen(machine.db)
    # What was struck is the next edit: whole, or not there. Of a database that was never opened nothing is there.
    possible = expected[max(len(reached) - 1, 0) : len(reached) + 1]
    assert found in possible

    machine.disk.drop_caches()
    machine.end(PROCESS, call)
    machine.open()
    assert found == seen(machine.db)
    before = machine.db.incrby("c", 0)
    assert machine.db.incr("c") == before + 1


def points(calls):
    return list(itertools.product(range(calls), Landed, ENDS))


def strike_all(chosen, expected):
    for point in chosen:
        try:
            strike(*point, expected)
        except AssertionError as error:
            error.add_note(f"crash at call {point[0]}, {point[1]}, end {point[2]}")
            raise


@pytest.mark.rule("R13.2")
def test_crash_points_of_a_database(record_property):
    expected, calls = states_of_a_quiet_run()
    every = points(calls)
    chosen = random.Random(5).sample(every, GATE_POINTS)
    strike_all(chosen, expected)

    record_property("crash points", len(chosen))
    print(f"kv journal: {calls} disk calls, {len(chosen)} of {len(every)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_crash_point_of_a_database(record_property):
    expected, calls = states_of_a_quiet_run()
    every = points(calls)
    strike_all(every, expected)

    record_property("crash points", len(every))
    print(f"kv journal: {calls} disk calls, all {len(every)} crash points")
