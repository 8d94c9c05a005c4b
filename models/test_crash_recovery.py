"""Whatever is written, synced and struck, what comes back is a state the oracle allows (I-07, I-08, I-10)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.oracle_crash import CrashOracle
from tests.support.scene import SMALL, Scene, append
from topics.engine.commands import CommitConsumer, PutConsumer, Sync
from topics.engine.consumers import consumer_states
from topics.kernel.errors import Fatal
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.survival import Shape

CLASSES = {"m": "memory", "d": "disk", "f": "fsync"}
TOPICS = st.sampled_from(sorted(CLASSES))
CONSUMERS = st.sampled_from(["c", "d"])
ROOM_MAX = 256  # so many records at once may go up to the ceiling


class CrashRecovery(RuleBasedStateMachine):
    """A store of one shard with a topic of each logged class."""

    @initialize(seed=st.integers(0, 1000), small=st.booleans())
    def begin(self, seed, small):
        self.oracle = CrashOracle()
        self.scene = Scene(seed, limits=SMALL if small else None)
        self.small = small  # files that are full soon, and too small for large writes
        self.number = 0
        self.seen = {}  # (topic, seq) -> data: what a reader has seen
        self.failed = False
        self.scene.open()
        for topic, durability in CLASSES.items():
            self.scene.create(topic, durability=durability)
            self.oracle.create(topic)

    def datas(self, count, size):
        self.number += count
        return [b'"%d %s"' % (n, b"x" * size) for n in range(self.number - count, self.number)]

    def room(self, topic):
        """How many records may be seen before anything is synced; not too many of them."""
        lane = self.scene.engine.state.lanes_by_name[topic]
        return max(1, min(lane.ceiling - lane.next_seq + 1, ROOM_MAX))

    # Steps.

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS, count=st.integers(1, 5), size=st.sampled_from([0, 50, 300, 3000]), sync=st.booleans())
    def put(self, topic, count, size, sync):
        datas = self.datas(count, min(size, 300) if self.small else size)
        reply = self.scene.put(topic, *datas, sync=sync)
        seqs = self.oracle.append(topic, datas, synced=sync or topic == "f")
        assert seqs == list(reply.seqs)

    @precondition(lambda self: not (self.failed or self.small))
    @rule(topic=TOPICS, more=st.integers(1, 3))
    def put_beyond_the_ceiling(self, topic, more):
        """One batch of two writes: with the first a higher ceiling is asked for, the second needs it."""
        batch = [self.datas(count, 0) for count in (self.room(topic), more)]
        tickets = [self.scene.propose(append(topic, *datas)) for datas in batch]
        self.scene.drain()
        for datas, ticket in zip(batch, tickets, strict=True):
            assert self.oracle.append(topic, datas, synced=topic == "f") == list(ticket.result().seqs)

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS, before_seq=st.integers(0, 40))
    def delete(self, topic, before_seq):
        self.scene.delete(topic, before_seq=before_seq)
        self.oracle.delete(topic, before_seq, synced=topic == "f")

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS, name=CONSUMERS, back=st.integers(0, 5))
    def put_consumer(self, topic, name, back):
        head, _, positions = self.oracle.state()[topic]
        seq = max(0, head - back)
        put = self.scene.run(PutConsumer(topic=topic, consumer=name, from_seq=seq))
        assert (put.created, put.from_seq, put.lag) == (name not in positions, seq, head - seq)
        if positions.get(name) != seq:
            self.oracle.put_consumer(topic, name, seq, synced=topic == "f")

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS, name=CONSUMERS, back=st.integers(0, 5), sync=st.booleans())
    def commit(self, topic, name, back, sync):
        head, _, positions = self.oracle.state()[topic]
        if name in positions:
            seq = max(0, head - back)
            done = self.scene.run(CommitConsumer(topic=topic, consumer=name, seq=seq), sync=sync)
            moves = self.oracle.commit(topic, name, seq, synced=topic == "f" or sync)
            assert (done.moved, done.from_seq) == (moves, max(seq, positions[name]))

    @precondition(lambda self: not self.failed)
    @rule(
        topic=TOPICS,
        name=CONSUMERS,
        calls=st.integers(0, 6),
        landed=st.sampled_from(list(Landed)),
        shape=st.none() | st.sampled_from(list(Shape)),
    )
    def crash_in_a_commit(self, topic, name, calls, landed, shape):
        head, _, positions = self.oracle.state()[topic]
        if positions.get(name, head) == head:
            return
        self.scene.disk.crash_at(calls, landed)
        acknowledged = False
        try:
            self.scene.run(CommitConsumer(topic=topic, consumer=name, seq=head))
            acknowledged = True
            self.scene.drain()
            self.scene.opened.writers[0].mark()
        except SimCrash:
            pass
        handed_over = len(self.oracle.writes)
        self.oracle.commit(topic, name, head, synced=acknowledged and topic == "f")
        self.end(shape, calls, at_least=len(self.oracle.writes) if acknowledged else handed_over)

    @precondition(lambda self: not self.failed)
    @rule()
    def sync(self):
        self.scene.run(Sync(shard=0))
        self.oracle.sync()

    @precondition(lambda self: not self.failed)
    @rule(ms=st.sampled_from([10, 1500, -500]))
    def rest(self, ms):
        self.scene.clock.set(self.scene.clock.now_ms() + ms)
        self.scene.engine.tick()
        self.scene.drain()
        self.scene.opened.writers[0].mark()

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS, kind=st.sampled_from([FaultKind.EIO, FaultKind.DROPS_PAGES]))
    def fail_a_sync(self, topic, kind):
        """The write, up to the last seq that may be seen so, is there and not durable; the shard takes no more."""
        datas = self.datas(2 if self.small else self.room(topic), 10)
        self.scene.disk.inject("sync_data", kind)
        ticket = self.scene.propose(append(topic, *datas), sync=True)
        self.scene.drain()
        self.scene.disk.heal()
        assert isinstance(ticket.error, Fatal)
        synced = self.oracle.synced
        self.oracle.append(topic, datas, synced=False)
        self.oracle.synced = synced
        self.failed = True

    # Ends.

    @precondition(lambda self: not self.failed)
    @rule(topic=TOPICS)
    def crash_behind_all_that_may_be_seen(self, topic):
        self.fail_a_sync(topic, FaultKind.EIO)
        self.reads_are_the_oracle()
        self.end(Shape.NOTHING, 0)

    @rule(shape=st.none() | st.sampled_from(list(Shape)), seed=st.integers(0, 1000))
    def crash(self, shape, seed):
        self.end(shape, seed)

    @precondition(lambda self: not self.failed)
    @rule(
        topic=TOPICS,
        calls=st.integers(0, 8),
        landed=st.sampled_from(list(Landed)),
        shape=st.none() | st.sampled_from(list(Shape)),
    )
    def crash_in_a_write(self, topic, calls, landed, shape):
        datas = self.datas(3, 200)
        self.scene.disk.crash_at(calls, landed)
        acknowledged = False
        try:
            self.scene.put(topic, *datas)
            acknowledged = True
            self.scene.drain()
            self.scene.opened.writers[0].mark()
        except SimCrash:
            pass
        handed_over = len(self.oracle.writes)
        self.oracle.append(topic, datas, synced=acknowledged and topic == "f")
        at_least = len(self.oracle.writes) if acknowledged else handed_over
        self.end(shape, calls, at_least=at_least)

    @precondition(lambda self: not self.failed)
    @rule(shape=st.none() | st.sampled_from(list(Shape)))
    def shut_down(self, shape):
        self.scene.shut_down()
        self.oracle.sync()
        self.end(shape, 0)
        assert not any(
            first > self.oracle.base[topic][0] for topic in CLASSES for first, _ in self.lost_now(topic)
        )

    def end(self, shape, seed, at_least=None):
        """The end, recovery, and what it found, held against the oracle."""
        power = shape is not None
        careful = power or self.failed  # a start behind a failed sync is one behind a restart (storage 4)
        allowed = self.oracle.allowed(power=power)
        durable = dict.fromkeys(CLASSES, 0)
        if self.scene.opened is not None:  # what was told survives; of a clean end that is all
            durable = {topic: self.scene.state(topic).durable_seq for topic in CLASSES}
        if not power and at_least is not None:
            allowed = [self.oracle.state(n) for n in range(at_least, len(self.oracle.writes) + 1)]
        if power:
            self.scene.power_loss(shape, seed)
        else:
            self.scene.process_death()
        self.scene.open()
        assert not self.scene.opened.read_only
        found = self.found()
        heads = {topic: self.scene.state(topic).head_seq for topic in CLASSES}
        positions = self.positions()
        matching = [
            state
            for state in allowed
            if ({t: s[1] for t, s in state.items()}, {t: s[2] for t, s in state.items()})
            == (found, positions)
        ]
        matching = [
            s for s in matching if all(self.head_is_right(t, s[t][0], heads[t], careful) for t in CLASSES)
        ]
        matching = [s for s in matching if all(s[t][0] >= durable[t] for t in CLASSES)]
        assert matching, (found, heads, durable, allowed)
        assert all(seq <= heads[topic] for topic, seq in self.seen)  # I-08: none of them is given out again
        self.oracle.settle(matching[-1], heads)
        self.failed = False
        once = self.scene.facts()
        self.scene.process_death()
        self.scene.open()
        assert once == self.scene.facts()  # I-10

    def head_is_right(self, topic, kept, head, careful):
        return head == kept if topic == "f" or not careful else head >= kept

    # What must hold.

    def found(self):
        return {topic: self.scene.read(topic) for topic in CLASSES}

    def positions(self):
        catalog = self.scene.engine.catalog
        return {
            topic: {state.consumer: state.from_seq for state in consumer_states(catalog, topic)}
            for topic in CLASSES
        }

    def lost_now(self, topic):
        return [(first, last) for first, last, _ in self.scene.lost(topic)]

    @invariant()
    def reads_are_the_oracle(self):
        state = self.oracle.state()
        for topic, live in self.found().items():
            if not self.failed:
                assert live == state[topic][1]
            for seq, data in live.items():
                assert self.seen.setdefault((topic, seq), data) == data  # I-08
        if not self.failed:
            assert self.positions() == {topic: state[topic][2] for topic in CLASSES}

    @invariant()
    def losses_are_told(self):
        for topic in CLASSES:
            merged = []
            for first, last in self.oracle.lost.get(topic, []):
                if merged and merged[-1][1] + 1 == first:
                    merged[-1] = (merged[-1][0], last)
                else:
                    merged.append((first, last))
            assert merged == self.lost_now(topic)


CrashRecovery.TestCase.settings = settings(stateful_step_count=25)


@pytest.mark.rule("S2.1", "S2.5", "S2.6", "S2.7", "S2.12", "S2.20", "S2.22", "S2.23", "T4.27", "T4.28")
@pytest.mark.invariant("I-07", "I-08", "I-10")
class TestCrashRecovery(CrashRecovery.TestCase):
    pass
