"""Replicated queues on three replicas with forks, late and repeated messages, and clocks that collide and step back.

`Honest`: one replica appends, so every state is an interval of one log, and the oracle is that log and two numbers a
replica (P8 to P14). `Wild`: everybody appends, which breaks the promise of one leader; what is left are the laws of the
join on whatever states come about (P1 to P6), the floors, and that every difference is told.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from topics.codec.cell import decode_cell, encode_cell
from topics.lattice.queues.consumer import Consumer, OffsetGap
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.queue_state import QUEUES, queue_from_cell
from topics.lattice.values.laws import check_laws, check_mutator
from topics.testing.clock import ManualClock

pytestmark = [pytest.mark.invariant("I-14")]

REPLICAS = 3
KEYS = ["name", 1, True]

replicas = st.integers(0, REPLICAS - 1)


def same(a, b):
    return encode_cell(a.to_cell()) == encode_cell(b.to_cell())


def overlap_differs(own, other):
    """The slow way to see a divergence: offset by offset."""
    shared = range(max(own.start, other.start), min(own.stop, other.stop))
    return [n for n in shared if own.entries.at(n).digest != other.entries.at(n).digest]


class Replicas(RuleBasedStateMachine):
    """What both machines do; each says who may offer, and what it expects of it."""

    def __init__(self):
        super().__init__()
        self.clocks = [ManualClock(100) for _ in range(REPLICAS)]
        self.queues = [LatticeQueue(clock=clock) for clock in self.clocks]
        self.consumers = [Consumer() for _ in range(REPLICAS)]
        self.covered = [[] for _ in range(REPLICAS)]
        self.floors = [(0, 0)] * REPLICAS
        self.metas = [{} for _ in range(REPLICAS)]  # canonical key -> (stamp, canonical value)
        self.mail = []  # states that were sent, with their metadata: any may arrive, any time, again
        self.forks = []  # (replica, fork)
        self.serial = 0

    def edit(self, who, change):
        """An edit of a replica moves it up (P5)."""
        before = self.queues[who].state
        result = change(self.queues[who])
        check_mutator(QUEUES, before, self.queues[who].state, same=same)
        return result

    @rule(who=replicas, to=st.integers(95, 105))
    def set_clock(self, who, to):
        self.clocks[who].set(to)

    @rule(who=replicas, at=st.integers(-1, 30))
    def truncate(self, who, at):
        before = self.queues[who].state
        dropped = self.edit(who, lambda queue: queue.truncate(at))
        after = self.queues[who].state

        assert dropped == len([n for n in range(before.start, before.stop) if n < at])
        assert (after is before) == (at <= before.start)
        self.truncated(who, at)

    @rule(who=replicas, key=st.sampled_from(KEYS), value=st.sampled_from([None, 1, 1.0, "x"]))
    def set_meta(self, who, key, value):
        newest = max([stamp for stamp, _ in self.metas[who].values()], default=0)
        self.edit(who, lambda queue: queue.set_meta(key, value))
        stamp = self.queues[who].state.timestamp

        assert stamp >= max(self.clocks[who].now_ms(), newest + 1)
        self.metas[who][encode_cell(key)] = (stamp, encode_cell(value))

    @rule(who=replicas, wire=st.booleans())
    def send(self, who, wire):
        state = self.queues[who].state
        sent = queue_from_cell(decode_cell(encode_cell(state.to_cell()))) if wire else state

        assert same(sent, state)
        self.mail.append((who, sent, dict(self.metas[who])))

    @rule(who=replicas, data=st.data())
    def receive(self, who, data):
        if not self.mail:
            return
        sender, state, meta = data.draw(st.sampled_from(self.mail))
        own = self.queues[who].state
        differing = overlap_differs(own, state)
        self.queues[who].merge(state)

        told = self.queues[who].take_divergences()
        assert [d.first_offset for d in told] == differing[:1]
        self.merged(who, sender, state)
        for key, stamped in meta.items():
            self.metas[who][key] = max(stamped, self.metas[who].get(key, stamped))

    @rule(who=replicas)
    def fork(self, who):
        if len(self.forks) < 4:
            self.forks.append((who, self.queues[who].fork()))

    @rule(data=st.data(), at=st.integers(0, 30))
    def truncate_a_fork_and_sync(self, data, at):
        if not self.forks:
            return
        who, fork = data.draw(st.sampled_from(self.forks))
        before, own = self.queues[who].state, fork.state
        fork.truncate(at)
        local = fork.state
        fork.sync()
        after = self.queues[who].state

        assert same(after, local.join(before))
        assert same(fork.state, after)
        assert same(after.join(own), after)
        self.queues[who].take_divergences()
        self.merged(who, who, local)

    @rule(who=replicas, limit=st.integers(1, 9))
    def consume(self, who, limit):
        for item in self.consumers[who].poll(self.queues[who].state, limit):
            if isinstance(item, OffsetGap):
                self.covered[who] += range(item.gap_from, item.gap_to + 1)
            else:
                self.covered[who].append(item.offset)
                self.delivered(who, item)

    def truncated(self, who, at):
        pass

    def merged(self, who, sender, state):
        pass

    def delivered(self, who, item):
        pass

    @invariant()
    def floors_never_fall_and_sizes_add_up(self):
        """P8, P9, P13."""
        for who, queue in enumerate(self.queues):
            start, stop = queue.start_offset(), queue.end_offset()

            assert start >= self.floors[who][0]
            assert stop >= self.floors[who][1]
            assert queue.size() == stop - start == len(list(queue.range(start, stop)))
            assert all(queue.peek(n) is not None for n in range(start, stop))
            assert queue.peek(start - 1) is queue.peek(stop) is None
            self.floors[who] = (start, stop)

    @invariant()
    def metadata_is_the_latest(self):
        """A key has its latest stamp and, at one stamp, the larger value."""
        for queue, meta in zip(self.queues, self.metas, strict=True):
            found = {
                encode_cell(entry.key): (entry.stamp, encode_cell(entry.value))
                for entry in queue.state.metadata
            }

            assert found == meta

    @invariant()
    def consumers_cover_every_offset_once(self):
        """P14."""
        for consumer, covered in zip(self.consumers, self.covered, strict=True):
            assert covered == list(range(consumer.offset))

    def teardown(self):
        """P1 to P4 on states that were reached; P6: whoever hears of everything ends with the same bytes."""
        states = [queue.state for queue in self.queues]
        sent = [state for _, state, _ in self.mail][-2:]
        check_laws(QUEUES, *(states + sent)[-3:], same=same)
        check_laws(QUEUES, *states, same=same)
        forwards, backwards = states[0], states[-1]
        for state in states + sent:
            forwards = forwards.join(state)
        for state in (states + sent)[::-1]:
            backwards = backwards.join(state)
        assert same(forwards, backwards)


class Honest(Replicas):
    """Replica 0 leads, under a lease that it extends; the log is a dict."""

    def __init__(self):
        super().__init__()
        self.log = {}
        self.intervals = [(0, 0)] * REPLICAS
        self.queues[0].acquire("leader", ttl_ms=1000)

    @rule(count=st.integers(1, 5), on_fork=st.booleans())
    def offer(self, count, on_fork):
        queue = self.queues[0].fork() if on_fork else self.queues[0]
        start, stop = self.intervals[0]
        for _ in range(count):
            self.serial += 1
            offset = queue.offer(self.serial)

            assert offset == stop
            self.log[offset] = self.serial
            stop += 1
        if on_fork:
            queue.sync()
        self.intervals[0] = (start, stop)

    def truncated(self, who, at):
        start, stop = self.intervals[who]
        self.intervals[who] = (max(start, at), max(stop, at))

    @rule(who=replicas, at=st.integers(0, 30), data=st.data())
    def truncation_commutes_with_merge(self, who, at, data):
        """P12, on states that were reached."""
        other = data.draw(st.sampled_from(self.queues)).state
        own = self.queues[who].state
        late = max(own.timestamp, other.timestamp)

        assert same(
            own.join(other).truncate(at, late)[0], own.truncate(at, late)[0].join(other.truncate(at, late)[0])
        )

    def merged(self, who, sender, state):
        """P11: the join of intervals."""
        mine = self.intervals[who]
        self.intervals[who] = (max(mine[0], state.start), max(mine[1], state.stop))

    def delivered(self, who, item):
        assert item.value == self.log[item.offset]

    @invariant()
    def every_replica_is_an_interval_of_the_log(self):
        """P10, P11, and nobody else could have appended: a truncation of another replica past the end burns offsets."""
        for queue, (start, stop) in zip(self.queues, self.intervals, strict=True):
            state = queue.state

            assert (state.start, state.stop) == (start, stop)
            for n, record in enumerate(state.entries.between(start, stop), start=start):
                assert record.value == self.log[n]


class Wild(Replicas):
    """Everybody appends."""

    @rule(who=replicas, key=st.sampled_from(["k", None]), count=st.integers(1, 3))
    def offer(self, who, key, count):
        before = self.queues[who].end_offset()
        self.serial += 1
        rows = [(key, self.serial % 4 + 1, None)] * count

        assert self.edit(who, lambda queue: queue.offer_all(rows)) == range(before, before + count)

    @rule(data=st.data())
    def offer_on_a_fork(self, data):
        if not self.forks:
            return
        _, fork = data.draw(st.sampled_from(self.forks))
        self.serial += 1
        fork.offer(self.serial % 4 + 1)

    @rule(who=replicas, other=replicas, third=replicas)
    def the_laws_hold(self, who, other, third):
        """P1 to P4."""
        check_laws(QUEUES, *(self.queues[n].state for n in (who, other, third)), same=same)


TestHonest = pytest.mark.rule(
    "R1.1.1", "R2.3.2", "R2.3.3", "R2.3.4", "R9.1", "R9.2", "R9.3", "R9.4", "R9.5", "R9.6", "R9.8", "R9.9", "R9.10",
    "R9.11", "R9.12", "R9.13", "R9.14", "R11.7", "R11.8", "R11.9",
)(Honest.TestCase)  # fmt: skip
TestWild = pytest.mark.rule(
    "R1.1.1", "R1.4.2", "R2.4.1", "R2.5.1", "R8.1", "R9.1", "R9.2", "R9.3", "R9.4", "R9.5", "R9.6", "R9.8", "R9.9",
    "R9.13", "R9.14",
)(Wild.TestCase)  # fmt: skip
TestHonest.settings = TestWild.settings = settings(stateful_step_count=40)
