"""A store on a simulated disk, driven step by step: what the tests of recovery set up, break and open again."""

from __future__ import annotations

from topics.engine.commands import Append, DeleteRecords, DeleteTopic, PutMode, PutTopic, Sync
from topics.engine.moving.moves import begin_move
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.kernel.limits import KIB, Limits
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import parse_match
from topics.simulation.machine import open_simulated, peek, restarted
from topics.simulation.oracle import facts
from topics.store.inline import carry_out
from topics.store.opened import StoreOptions
from topics.store.orders import next_order
from topics.store.reading import read_page
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

SMALL = Limits(wal_file_first=2048, wal_file_max=8192, wal_reserve=256)
# One file holds what a test writes, as with the default limits, which have each opening copy megabytes of zeros.
USUAL = Limits(wal_file_first=64 * KIB, wal_reserve=16 * KIB)


class Scene:
    """One directory. Nothing is open until `open`."""

    def __init__(self, seed=0, *, disk=None, shards=None, limits=None, port=None, cold=None, **options):
        self.disk = disk if disk is not None else SimDisk(seed)
        self.port = port(self.disk) if port is not None else self.disk
        self.cold = cold(self.disk) if cold is not None else None  # the cold store of this machine
        self.clock = ManualClock()
        self.entropy = SeededEntropy(seed)
        self.options = StoreOptions(
            shards=shards, limits=limits or USUAL, checking=True, **{"min_free_bytes": 4096} | options
        )
        self.opened = None

    # Beginnings and ends.

    def open(self):
        self.opened = open_simulated(
            self.disk, self.clock, self.entropy, self.options, port=self.port, cold=self.cold
        )
        return self.opened

    def process_death(self):
        self.disk.process_death()
        self.opened = None
        return self

    def power_loss(self, shape=Shape.NOTHING, seed=None):
        self.disk.power_loss(shape, seed)
        self.opened = None
        return self

    def shut_down(self):
        """As a driver closes a store."""
        self.engine.log_exact_heads()
        self.drain()
        for writer in self.opened.writers:
            self.run(Sync(shard=writer.shard))
            writer.mark()
        return self.process_death()

    # Commands.

    @property
    def engine(self):
        return self.opened.engine

    def drain(self):
        for _ in range(4):  # a topic's creation on shard 0 wakes what waits on another
            for writer in self.opened.writers:
                writer.drain()
                if writer.failed is None:
                    writer.keep_reserve()

    def sync(self):
        """Everything written is durable."""
        for writer in self.opened.writers:
            self.run(Sync(shard=writer.shard))

    def checkpoint(self):
        """One whole round of a checkpoint."""
        carry_out(self.engine, self.opened.checkpointer.round(), self.drain)

    def reclaim(self):
        """Slices of rewriting until nothing is left to rewrite; says how many segments were."""
        checkpointer = self.opened.checkpointer
        before = checkpointer.reclaimer.rewrites
        while (steps := checkpointer.reclaimer.due(checkpointer.kept)) is not None:
            carry_out(self.engine, steps, self.drain)
        return checkpointer.reclaimer.rewrites - before

    def relocate(self):
        """Slices of relocation until nothing is left to move; says how many segments went to the cold tier."""
        relocator = self.opened.checkpointer.relocator
        before = relocator.counts.to_cold
        while (steps := relocator.due()) is not None:
            self.carry(steps)
        return relocator.counts.to_cold - before

    def carry(self, steps):
        """All steps of some background work."""
        carry_out(self.engine, steps, self.drain)

    def propose(self, command, *, sync=False):
        return self.engine.propose(command, sync=sync)

    def run(self, command, *, sync=False):
        """Propose and carry everything to its end; the reply, or the error raised."""
        ticket = self.propose(command, sync=sync)
        self.drain()
        return ticket.result()

    def create(self, topic, **config):
        return self.run(PutTopic(topic=topic, config=parse_config(config)))

    def put(self, topic, *datas, idempotency_key=None, sync=False, **columns):
        return self.run(append(topic, *datas, idempotency_key=idempotency_key, **columns), sync=sync)

    def delete(self, topic, *, before_seq=None, match=None):
        return self.run(deletion(topic, before_seq=before_seq, match=match))

    def drop(self, topic):
        return self.run(DeleteTopic(topic=topic))

    def begin_moves(self, source, seqs, dest, reason=b"gone wrong"):
        """Log the intent."""
        state = self.engine.state
        begun = begin_move(state, state.lanes_by_name[source], seqs, dest, reason, self.engine.now_ms())
        self.write()
        return list(begun)

    def move(self, ms=5):
        """For a while: what is due, what is written, what is ordered."""
        for _ in range(ms):
            self.write()
            while (steps := next_order(self.engine, self.opened.reader.read)) is not None:
                self.carry(steps)
                self.write()
            self.clock.advance(1)
            self.engine.tick()
        self.write()

    def write(self):
        """Whatever is to be written is."""
        self.drain()

    # Looking.

    def page(self, topic, from_seq=0, **query):
        """(plan, records) of one page."""
        asked = DiffQuery(topic=topic, from_seq=from_seq, **query)
        return read_page(asked, self.engine.plan_diff, self.opened.reader.read)

    def read(self, topic):
        """{seq: data} of everything delivered, page by page."""
        found, from_seq = {}, 0
        while True:
            plan, records = self.page(topic, from_seq)
            found.update((record.seq, record.data) for record in records)
            if plan.next_from_seq == from_seq:
                return found
            from_seq = plan.next_from_seq

    def lost(self, topic):
        """[(first, last, reason)] of its lost ranges."""
        ranges = self.engine.state.topic(topic)[1].index.lost
        return [(r.first, r.last, r.reason) for r in ranges]

    def state(self, topic):
        return self.engine.topic_state(topic)

    def facts(self):
        return facts(self.engine.state.catalog)

    def peek(self):
        return peek(self.disk)

    @property
    def restarted(self):
        return restarted(self.disk)

    def files(self, shard=0, generation=0):
        """Paths of a shard's WAL files, oldest first."""
        directory = f"wal/gen-{generation}/shard-{shard:02d}"
        return [f"{directory}/{name}" for name in self.disk.names(directory) if name.startswith("wal-")]

    def flip(self, path, offset, bit=0):
        self.disk.flip(path, offset * 8 + bit)


def append(topic, *datas, idempotency_key=None, create=True, **columns):
    records = RecordColumns([data if isinstance(data, bytes) else b"%d" % data for data in datas], **columns)
    return Append(topic=topic, records=records, idempotency_key=idempotency_key, create=create)


def deletion(topic, *, before_seq=None, match=None):
    parsed = None if match is None else parse_match(match, tag_bytes_max=256)
    return DeleteRecords(topic=topic, before_seq=before_seq, match=parsed)


def put_topic(topic, *, mode=PutMode.REPLACE, **config):
    return PutTopic(topic=topic, config=parse_config(config), mode=mode, given=frozenset(config))
