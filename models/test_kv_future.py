"""Three replicas whose clocks are hours or years ahead for a while; restarts, whole exports and deltas at any time.

What must hold at every moment: no state holds a stamp that its node's clock does not believe, its own included;
a restart changes neither what is read nor what waits; a merge tells of everything that begins to wait. In the end,
clocks corrected and everything exchanged, all states are the same bytes, long before those years are over; and when
they are over, each node has merged all that ever waited there and was not withdrawn, whatever it was sent since.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.kv_nodes import Node, everybody, exchange, state
from topics.codec.cell import encode_cell
from topics.kernel.errors import Code, Rejected
from topics.kv.entries.merge import join
from topics.kv.entries.wire import entry_to_cell
from topics.lattice.values.stamps import MAX_DRIFT_MS
from topics.testing.journal import MemoryJournal

pytestmark = [pytest.mark.rule("R1.3.2", "R9.6", "R9.25", "R13.2", "R3.6.2")]

COUNT = 3
NOW_MS = 1_700_000_000_000
AHEAD_MS = (MAX_DRIFT_MS + 50, 2 * MAX_DRIFT_MS, 10 * 365 * 24 * MAX_DRIFT_MS)
KEYS = ("k", "l")

nodes = st.integers(0, COUNT - 1)
keys = st.sampled_from(KEYS)

WRITES = {
    "set": lambda db, key, n: db.set(key, n),
    "delete": lambda db, key, n: db.delete(key),
    "hset": lambda db, key, n: db.hset(key, "fg"[n % 2], n),
    "hdel": lambda db, key, n: db.hdel(key, "fg"[n % 2]),
    "sadd": lambda db, key, n: db.sadd(key, n % 3),
    "srem": lambda db, key, n: db.srem(key, n % 3),
    "zadd": lambda db, key, n: db.zadd(key, n, n % 3),
    "zrem": lambda db, key, n: db.zrem(key, n % 3),
    "push": lambda db, key, n: db.rpush(key, n),
    "count": lambda db, key, n: db.incrby(key, n),
    "expire": lambda db, key, n: db.expire(key, 10**12),
}


def canon(entry):
    return encode_cell(entry_to_cell(entry))


class Glitches(RuleBasedStateMachine):
    """Three owners with a journal each."""

    @initialize()
    def begin(self):
        self.nodes = [Node(n + 1, now_ms=NOW_MS, journal=MemoryJournal()) for n in range(COUNT)]
        self.ahead_ms = [0] * COUNT
        self.now_ms = NOW_MS
        self.marks = {}
        self.owed = [[] for _ in range(COUNT)]  # what began to wait at each node
        self.number = 0

    def waiting(self, at):
        home = self.nodes[at].home
        home.settle("shared")
        return list(home._gates["shared"].deferred)

    @rule(at=nodes, key=keys, what=st.sampled_from(sorted(WRITES)))
    def write(self, at, key, what):
        self.number += 1
        before = self.nodes[at].db.snapshot()
        refused = None
        try:
            WRITES[what](self.nodes[at].db, key, self.number)
        except Rejected as error:
            refused = error
        if refused is not None:
            assert refused.code in (Code.WRONG_TYPE, Code.THROTTLED)
            assert self.nodes[at].db.snapshot() is before

    @rule(at=nodes, by_ms=st.sampled_from((0, *AHEAD_MS)))
    def glitch(self, at, by_ms):
        """The clock goes wrong, or is corrected."""
        self.ahead_ms[at] = by_ms
        self.set_clocks()
        if self.waiting(at):
            self.owed[at] += self.waiting(at)

    @rule(by_ms=st.sampled_from((1, 20, MAX_DRIFT_MS // 2, 2 * MAX_DRIFT_MS)))
    def time_passes(self, by_ms):
        self.now_ms += by_ms
        self.set_clocks()

    def set_clocks(self):
        for node, ahead_ms in zip(self.nodes, self.ahead_ms, strict=True):
            node.clock.set(self.now_ms + ahead_ms)

    @rule(reader=nodes, writer=nodes, whole=st.booleans())
    def meet(self, reader, writer, whole):
        if reader == writer:
            return
        source, target = self.nodes[writer].db, self.nodes[reader].db
        before = {(each.key, each.entry.newest) for each in self.waiting(reader)}
        if whole:
            report = target.merge_replicas(source.export_replica())
        else:
            changes = source.export_changes(self.marks.get((reader, writer), {}))
            report = target.merge_changes(changes)
        self.marks[reader, writer] = source.mark()
        assert report.accepted == (self.nodes[writer].keys.public,)
        assert report.refused == ()
        told = {(each.key, each.stamp) for each in report.deferred}
        waiting = self.waiting(reader)
        assert {(each.key, each.entry.newest) for each in waiting} - before <= told
        self.owed[reader] += [each for each in waiting if (each.key, each.entry.newest) in told]

    @rule(at=nodes)
    def restart(self, at):
        """What is read and what waits is there again; deltas go on from the marks there were."""
        node = self.nodes[at]
        before = state(node.db), node.db.future(), [node.db.read(key) for key in KEYS]
        node.restart()
        assert before == (state(node.db), node.db.future(), [node.db.read(key) for key in KEYS])

    @rule(at=nodes, key=keys, restamp=st.booleans())
    def withdraw(self, at, key, restamp):
        db = self.nodes[at].db
        waited = any(each.key == key for each in db.future())
        assert db.withdraw(key, restamp=restamp) == waited
        assert not any(each.key == key for each in db.future())
        self.owed[at] = [each for each in self.owed[at] if each.key != key]

    @invariant()
    def nothing_is_believed_that_nobody_else_would_believe(self):
        for node in getattr(self, "nodes", ()):
            node.home.settle("shared")
            store = node.db.snapshot()
            assert max(store.floor, store.newest) <= node.clock.now_ms() + MAX_DRIFT_MS

    def teardown(self):
        if not hasattr(self, "nodes"):
            return
        self.ahead_ms = [0] * COUNT
        self.set_clocks()
        for at in range(COUNT):
            self.owed[at] += self.waiting(at)
        exchange(*self.nodes, accept_floor=everybody)
        assert len({state(node.db) for node in self.nodes}) == 1
        for at in range(COUNT):
            self.restart(at)
        self.now_ms += 11 * 365 * 24 * MAX_DRIFT_MS
        self.set_clocks()
        for node, owed in zip(self.nodes, self.owed, strict=True):
            assert node.db.future() == ()
            for keyed in owed:
                entry = node.db.snapshot().get(keyed.key)
                assert canon(join(entry, keyed.entry)) == canon(entry)
        exchange(*self.nodes)
        assert len({state(node.db) for node in self.nodes}) == 1


TestGlitches = Glitches.TestCase
TestGlitches.settings = settings(
    max_examples=max(60, settings.default.max_examples // 4), stateful_step_count=30
)
