"""Model of moves: whatever comes between intent, append and end, a record is in one place, and once.

Three sources and two topics that records go to, one of them full now and then, or not there yet, on three shards.
Orders are carried out step by step, with writes, deletes, changes, time and restarts in between. A record that nobody
has deleted is where it was or where it was sent, and when all has come to rest it is there.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.driving import config
from tests.engine.moving.driving import Mover
from topics.engine.commands import PutTopic, Redrive
from topics.engine.verify import digest
from topics.kernel.errors import Rejected
from topics.kernel.limits import MOVE_RETRY_MAX_MS
from topics.simulation.background.checkpoint import WorkWalk
from topics.store.moving import moving

SOURCES = ("a", "b", "c")
DESTS = ("dlq", "queue")
sources, dests = st.sampled_from(SOURCES), st.sampled_from(DESTS)


class Moves(RuleBasedStateMachine):
    @initialize(
        classes=st.tuples(*[st.sampled_from(["memory", "disk", "fsync"])] * 3),
        dest=st.sampled_from(["missing", "small", "large"]),
    )
    def begin(self, classes, dest):
        self.mover = Mover(shards=3)
        for name, durability in zip(SOURCES, classes, strict=True):
            self.mover.put(name, durability=durability)
        self.mover.put("queue", type="queue")
        if dest != "missing":
            self.mover.put("dlq", cap_records=4 if dest == "small" else 1000, discard="reject")
        self.sent = 0
        self.deleted = set()
        self.walks = []

    @rule(source=sources, count=st.integers(1, 4))
    def write(self, source, count):
        self.mover.propose(self.mover.appending(*range(self.sent, self.sent + count), topic=source))
        self.sent += count

    @rule(source=sources, dest=dests, seqs=st.lists(st.integers(1, 12), max_size=4))
    def dead_letter(self, source, dest, seqs):
        reason = b"redrive" if dest == "queue" else b"failed"
        self.mover.begin_moves(source, seqs, dest, reason)

    @rule(source=st.sampled_from((*SOURCES, "dlq")), count=st.integers(1, 3))
    def redrive(self, source, count):
        try:
            self.mover.propose(Redrive(topic=source, queue="queue", count_max=count))
        except Rejected:
            assert source == "dlq"
            assert self.mover.topic("dlq") is None

    @rule(shard=st.integers(0, 2), stages=st.integers(1, 4))
    def work(self, shard, stages):
        for _ in range(stages):
            self.mover.step(shard)

    @rule(ms=st.sampled_from([0, 1, 1, 2, 150]))
    def pass_time(self, ms):
        self.mover.clock.advance(ms)
        self.mover.engine.tick()

    @rule()
    def take(self):
        order = self.mover.engine.moves.take()
        if order is not None:
            assert all(walk.done or one.dest != order.dest for one, walk in self.walks)  # one at a time
            steps = moving(self.mover.engine, self.mover.read_extent, order)
            self.walks.append((order, WorkWalk(steps, self.mover.propose)))

    @precondition(lambda self: any(not walk.done for _, walk in self.walks))
    @rule(data=st.data())
    def carry_out(self, data):
        open_walks = [walk for _, walk in self.walks if not walk.done]
        data.draw(st.sampled_from(open_walks)).advance()

    @rule(source=sources, before=st.integers(1, 12))
    def delete(self, source, before):
        """Everything is applied first, so that it is known what goes."""
        self.mover.run()
        self.deleted |= {int(data) for data in self._at(source)[: self._live_below(source, before)]}
        self.mover.delete(source, before_seq=before)

    @rule(room=st.booleans())
    def change(self, room):
        full = {"cap_records": 1000 if room else 4, "discard": "reject"}
        self.mover.propose(PutTopic(topic="dlq", config=config(**full)))

    @rule(machine_restarted=st.booleans())
    def restart(self, machine_restarted):
        self.mover.run()
        self.walks.clear()
        self.mover.restart(machine_restarted=machine_restarted)

    @invariant()
    def nothing_is_there_twice(self):
        if not hasattr(self, "mover"):
            return
        for dest in DESTS:
            found = self._at(dest)
            assert len(found) == len(set(found)), dest

    def teardown(self):
        if not hasattr(self, "mover"):
            return
        self._finish()
        every = [one for name in (*SOURCES, *DESTS) for one in self._at(name)]
        assert len(every) == len(set(every))
        assert set(every) | self.deleted == set(range(self.sent))
        assert digest(self.mover.replay()) == digest(self.mover.engine.catalog)

    def _finish(self):
        self.mover.run()
        self.mover.put("dlq", cap_records=1000)
        for _ in range(12):
            self.take()
            for _, walk in self.walks:
                while not walk.done:
                    walk.advance()
                    self.mover.run()
            self.mover.move(ms=4)
            self.mover.clock.advance(MOVE_RETRY_MAX_MS)
            self.mover.engine.tick()
        self.mover.run()
        assert not self.mover.engine.state.moves
        assert not any(topic.moving() for topic in self.mover.engine.catalog.topics.values())

    def _live_below(self, source, before):
        index = self.mover.topic(source).index
        return sum(index.is_live(seq) for seq in range(1, before))

    def _at(self, name):
        topic = self.mover.topic(name)
        if topic is None:
            return []
        found, from_seq = [], 0
        while from_seq < topic.head_seq:
            plan = self.mover.plan(name, from_seq=from_seq)
            found += [int(record.data) for record in self.mover.fetch(plan)]
            from_seq = plan.next_from_seq  # a page ends before what a crash took
        return found


Moves.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestMoves = Moves.TestCase
