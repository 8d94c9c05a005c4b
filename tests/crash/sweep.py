"""The crash sweep (reliability 2): an operation's disk calls are counted, and at each of them the world ends.

What is found afterwards is held against the oracle of `topics.simulation`: per shard any prefix of the writes that is
not shorter than the synced one. Then the store is opened, read through, ended and opened again.
"""

from __future__ import annotations

import itertools

from tests.support.scene import SMALL, Scene
from topics.engine.commands import DeleteRecords
from topics.log.reads.diff import DiffQuery
from topics.simulation.background.checkpoint import WorkWalk
from topics.simulation.ledger import Ledger
from topics.simulation.shard_stepper import BatchStage, ShardStepper, WatchedWriter
from topics.store.reading import read_page
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

PROCESS = "process"
ENDS = (PROCESS, *Shape)


class Watched(Scene):
    """A scene under the ledger's eyes, driven stage by stage."""

    def __init__(self, disk, *, limits=SMALL, **options):
        super().__init__(disk=disk, limits=limits, **options)
        self.ledger = Ledger(disk)

    def begin(self):
        """What is on the disk now is where the oracle starts."""
        self.ledger.crashed([], power=False)

    def open(self):
        self.disk.monitor = self.ledger.watch.observe
        machine_restarted = self.ledger.opening()
        super().open()
        assert not self.opened.damages
        self.ledger.opened(self.engine, machine_restarted=machine_restarted)
        self.pens = [ShardStepper(WatchedWriter(writer, self.ledger)) for writer in self.opened.writers]
        return self.opened

    def do(self, *commands, sync=False):
        """Propose all of them at once, then carry them to their end. Returns the replies."""
        asked = {}
        tickets = []
        for command in commands:
            self.ledger.asking_of_jobs(self.engine, command)
            before = self.ledger.asking(self.engine, command) if isinstance(command, DeleteRecords) else []
            ticket = self.engine.propose(command, sync=sync)
            asked[id(ticket)] = (ticket, before)
            tickets.append(ticket)
        self.answer(asked)
        busy = True
        while busy:
            busy = sum(self.advance(pen, asked) for pen in self.pens) > 0
        assert not asked
        return [ticket.result() for ticket in tickets]

    def checkpoint(self):
        """One whole round."""
        self.carry(self.opened.checkpointer.round())

    def carry(self, steps):
        walk = WorkWalk(steps, self._ask)
        while not walk.done:
            walk.advance()

    def write(self):
        busy = True
        while busy:
            busy = sum(self.advance(pen, {}) for pen in self.pens) > 0

    def _ask(self, command, *, sync=False):
        ticket = self.engine.propose(command, sync=sync)
        asked = {id(ticket): (ticket, [])}
        self.answer(asked)
        busy = True
        while busy:
            busy = sum(self.advance(pen, asked) for pen in self.pens) > 0
        return ticket

    def advance(self, pen, asked):
        """One stage. False if the shard has nothing to do."""
        before = pen.stage
        pen.advance(self.engine)
        if pen.stage is before:
            return False
        self.answer(asked)
        if pen.stage is BatchStage.IDLE and pen.writer.failed is None:
            pen.writer.keep_reserve()
        return True

    def answer(self, asked):
        self.ledger.looked(self.engine)
        for ticket in self.engine.take_effects().finished:
            _, before = asked.pop(id(ticket))
            self.ledger.answered(self.engine, ticket, before, asked_ms=self.engine.now_ms())

    def end(self, how, seed):
        power = how is not PROCESS
        at_least = self.ledger.crashing(power=power)
        if power:
            self.disk.power_loss(how, seed)
        else:
            self.disk.process_death()
        self.ledger.crashed(at_least, power=power)

    def read_everything(self):
        for name in self.engine.names():
            from_seq = 0
            while from_seq < self.state(name).head_seq:
                query = DiffQuery(topic=name, from_seq=from_seq)
                plan, records = read_page(query, self.engine.plan_diff, self.opened.reader.read)
                self.ledger.read(self.engine, query, plan, records, self.state(name))
                from_seq = plan.next_from_seq


class Operation:
    """`setup(scene)` runs once; `act(scene)` is what the crash strikes. `unopened`: the act opens the store itself.
    `prelude(scene)` runs in the process that is struck, before; what it did is done again behind the second recovery.
    `mounts`: folders on a disk of their own.
    """

    def __init__(self, name, setup, act, *, unopened=False, prelude=None, mounts=(), **options):
        self.name, self.act, self.unopened, self.options = name, act, unopened, options
        self.prelude = prelude
        scene = Watched(SimDisk(1, mounts=mounts), **options)
        scene.begin()
        scene.open()
        setup(scene)
        if not unopened:
            scene.end(PROCESS, 0)
        self.snapshot = scene.disk.snapshot()
        self.clock_ms = scene.clock.now_ms()
        self.calls = self._count()

    def points(self):
        """Every (call, how much of it took effect, end) there is."""
        for call in range(self.calls + 1):
            parts = list(Landed) if call < self.calls else [Landed.NONE]
            yield from itertools.product([call], parts, ENDS)

    def strike(self, call, landed, how):
        """One crash point, from the snapshot to the second recovery. Returns the scene behind it."""
        scene = self._begun()
        scene.disk.crash_at(call, landed)
        try:
            self.act(scene)
        except SimCrash:
            assert call < self.calls
        scene.end(how, call)
        scene.open()
        scene.read_everything()
        before = scene.facts()
        scene.disk.drop_caches()
        scene.end(PROCESS, call)
        scene.open()
        assert before == scene.facts()  # I-10
        if self.prelude is not None:
            self.prelude(scene)
            self.act(scene)
            scene.read_everything()
        return scene

    def _begun(self):
        scene = self._scene()
        if not self.unopened:
            scene.open()
        if self.prelude is not None:
            self.prelude(scene)
        return scene

    def _scene(self):
        disk = SimDisk(1)
        disk.restore(self.snapshot)
        scene = Watched(disk, **self.options)
        scene.clock.set(self.clock_ms + 10)
        scene.begin()
        return scene

    def _count(self):
        scene = self._begun()
        before = scene.disk.mutations
        self.act(scene)
        return scene.disk.mutations - before
