"""A Weaver in an embedded store, struck at every disk call of writes, ingests, cascades, pruning and opening (P36).

What a call has returned from is there afterwards, whichever end it was; the call that was struck is there whole or not
at all; nothing is applied twice: the state is what a replay of the log gives, byte for byte.
"""

from __future__ import annotations

import itertools
import random

import pytest

import topics
from tests.support.weaving import NOW, STORE, A, B, C, made
from topics.embed.weaver import Weavers
from topics.kernel.errors import TopicsError
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import Landed, SimCrash
from topics.testing.journal import MemoryJournal
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.state.prune import prune

pytestmark = pytest.mark.rule("R9.36", "R13.2", "R5.6.2", "R5.6.7", "R5.10.1")

GATE_POINTS = 250
PROCESS = "process"
ENDS = (PROCESS, *Shape)
SMALL = topics.Limits(wal_file_first=4096, wal_file_max=16384, wal_reserve=512)

ONE = made(B, NOW, ops=encode_ops({b"k": b"theirs"}))
TWO = made(B, NOW + 1, prev=ONE, ops=encode_ops({b"k": b"theirs again", b"l": b"x"}))
THREE = made(C, NOW + 2, after=[TWO], ops=encode_ops({b"l": None}))


class Machine:
    """One directory, and the Weaver in it while it is open."""

    def __init__(self):
        self.disk = SimDisk(seed=3)
        self.clock = ManualClock(NOW)
        self.restarted = False

    def open(self):
        opened = open_store(
            self.disk, self.clock, SeededEntropy(1), where="sim", machine_restarted=self.restarted,
            confirm=lambda _: None,
            options=topics.StoreOptions(checking=True, min_free_bytes=4096, limits=SMALL),
        )  # fmt: skip
        assert not opened.read_only
        self.store = topics.Store(opened, self.disk, where="sim", housekeeping=False)
        self.weavers = Weavers(self.store, A, clock=self.clock)
        self.weaver = self.weavers.open(STORE)

    def compact(self):
        """As opening does, by the one journal that writes the state: another one's write would be refused."""
        self.weaver.state._journal.replace(self.weaver.state.compacted())

    def rebuild(self):
        self.weavers.drop_state(STORE)
        self.weaver = self.weavers.open(STORE)

    def attest(self):
        """The other authors say that they have seen it all."""
        last = self.weaver.store.graph.order[-1].hash
        self.weaver.ingest(
            [made(B, NOW + 9, prev=TWO, after=[last]), made(C, NOW + 9, prev=THREE, after=[last])]
        )

    def prune(self):
        active = [key.public for key in (A, B, C)]
        assert prune(self.weaver.store, self.weaver.state, active) is not None

    def compact_log(self):
        self.weavers.compact_log(STORE)

    def facts(self):
        """Everything that must be there: witnessed, pruned, floating, state."""
        store = self.weaver.store
        order = [node.hash for node in store.graph.order]
        settled = [node.hash for node in store.graph.order if node.is_settled]
        floats = [each.accepted.hash for each in store.floating]
        return order, settled, store.frontier, store.log.last_hash, floats, self.weaver.state.snapshot()

    def end(self, how, seed):
        self.restarted = how is not PROCESS
        if self.restarted:
            self.disk.power_loss(how, seed)
        else:
            self.disk.process_death()


STEPS = (
    lambda m: m.weaver.put(b"k", b"ours" * 60),
    lambda m: m.weaver.ingest([THREE, TWO]),
    lambda m: m.weaver.ingest([ONE]),
    lambda m: m.weaver.batch({b"k": b"merged", b"l": b"back"}),
    Machine.compact,
    lambda m: m.weaver.delete(b"k"),
    Machine.rebuild,
    Machine.attest,
    Machine.prune,
    lambda m: m.weaver.put(b"l", b"on top"),
    Machine.compact_log,
    lambda m: m.weaver.put(b"m", b""),
)


def run(machine, reached):
    """Open, then every step; `reached` gets the facts after each that has returned."""
    machine.open()
    reached.append(machine.facts())
    for step in STEPS:
        step(machine)
        reached.append(machine.facts())


def quiet_run():
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
    found = machine.facts()
    # What was struck is the next step: whole, or not there. Before the first opening there is nothing.
    assert found in expected[max(len(reached) - 1, 0) : len(reached) + 1]
    replayed = open_state(machine.weaver.store, MemoryJournal())
    assert replayed.snapshot() == machine.weaver.state.snapshot()

    machine.disk.drop_caches()
    machine.end(PROCESS, call)
    machine.open()
    assert found == machine.facts()
    committed = machine.weaver.put(b"after", b"x")
    last = machine.weaver.store.node(committed.hash)
    assert all(last.hlc > node.hlc for node in machine.weaver.store.graph.order[:-1])


def points(calls):
    return list(itertools.product(range(calls), Landed, ENDS))


def strike_all(chosen, expected):
    for point in chosen:
        try:
            strike(*point, expected)
        except AssertionError as error:
            error.add_note(f"crash at call {point[0]}, {point[1]}, end {point[2]}")
            raise


def test_crash_points_of_a_weaver(record_property):
    """A sample of all crash points."""
    expected, calls = quiet_run()
    every = points(calls)
    chosen = random.Random(7).sample(every, GATE_POINTS)
    strike_all(chosen, expected)

    record_property("crash points", len(chosen))
    print(f"weaver: {calls} disk calls, {len(chosen)} of {len(every)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_crash_point_of_a_weaver(record_property):
    """All of them."""
    expected, calls = quiet_run()
    every = points(calls)
    strike_all(every, expected)

    record_property("crash points", len(every))
    print(f"weaver: {calls} disk calls, all {len(every)} crash points")
