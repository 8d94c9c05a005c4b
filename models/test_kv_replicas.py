"""Three replicas of one database under every operation, fork, delta and exchange, clocks colliding and stepping back.

The oracle keeps, for each replica, which increments and adds it has seen and which of them a delete has seen: sets of
ids that are united where replicas merge. What the stamps make of it must agree: counters are the sum of what no delete
has seen (P17), and an element all of whose adds a delete has seen is gone (P20). It keeps as well what the last write
of a structure said about its expiry, which is when it expires, and which values and deletes a later write has seen,
which are no conflicts any more. Graces pass, everybody having heard of everything, and one node collects what is dead;
lives that begin on any of them after that have nothing of the former ones. At every state the laws of the join
hold (P1 to P6), nothing expired is visible (P21), an operation of a wrong type changes nothing (P22) and collecting
changes no read (P23). In the end a chain of exchanges makes all states the same bytes (P6, P25).
"""

from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.kv_nodes import LIMITS, Node, accepted, everybody, state
from topics.codec.cell import encode_cell
from topics.kernel.errors import Code, Rejected
from topics.kv.database import Database
from topics.kv.entries.entry import LANE_OF, Column, Tag, is_alive, total_of, visible
from topics.kv.entries.store import EMPTY, KvStore, StoreLattice, join_stores, store_from_cell, store_to_cell
from topics.kv.entries.tree import items
from topics.kv.entries.wire import LANE_NAMES, TYPE_NAMES
from topics.kv.garbage import Collected, collect
from topics.kv.journaled import DatabaseHeader, Journaled, replay
from topics.kv.operations.keys import members_of, ranked_of
from topics.lattice.values.cursor import Root
from topics.lattice.values.laws import check_deliveries, check_laws, check_mutator
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal

pytestmark = [
    pytest.mark.rule(
        "R1.1.1", "R1.3.1", "R3.4.1", "R3.4.4", "R3.4.5", "R7.3", "R7.4", "R9.1", "R9.2", "R9.3", "R9.4", "R9.5",
        "R9.6", "R13.2", "R3.5.2", "R9.17", "R9.18", "R9.20", "R9.21", "R9.22", "R9.23", "R9.25", "R3.6.3",
    ),
]  # fmt: skip

COUNT = 3
GRACE_MS = 1000
NEVER = float("inf")
KEYS = ("k", "l")
MEMBERS = ("x", "y", 1, True)
LATTICE = StoreLattice(LIMITS)

nodes = st.integers(0, COUNT - 1)
keys = st.sampled_from(KEYS)
members = st.sampled_from(MEMBERS)


def canon(store):
    return encode_cell(store_to_cell(store))


def same(left, right):
    return canon(left) == canon(right)


def alive_in(lane):
    """Whether a structure holds something that was not removed."""
    return total_of(lane.tree) != 0 or any(
        is_alive(element) for element in items(lane.tree) if not isinstance(element, Column)
    )


class Known:
    """What one replica has seen: ids of adds and increments by (key, element), and which of them a delete has seen;
    for each key what was said last of the expiry of its structures; the values, lists and deletes that were written,
    and which of them a later write has seen.

    What an expired key held is nobody's to erase until somebody writes it or gc makes a delete of it.
    """

    def __init__(self):
        self.seen = {}
        self.erased = set()
        self.said = dict.fromkeys(KEYS, (0, NEVER))
        self.events = {key: set() for key in KEYS}
        self.settled = set()

    def copy(self):
        return deepcopy(self)

    def add(self, what, number):
        self.seen.setdefault(what, set()).add(number)

    def erase(self, key, kinds=("hash", "set", "zset", "counter"), element=None):
        for (kind, held, name), ids in self.seen.items():
            if held == key and kind in kinds and element in (None, name):
                self.erased |= ids

    def settle(self, key):
        """A write has seen every value and delete there is."""
        self.settled |= {number for number, _ in self.events[key]}

    def unite(self, other):
        for what, ids in other.seen.items():
            self.seen.setdefault(what, set()).update(ids)
        self.erased |= other.erased
        self.settled |= other.settled
        for key in KEYS:
            self.said[key] = max(self.said[key], other.said[key])
            self.events[key] |= other.events[key]

    def has_expired(self, key, now_ms):
        return now_ms >= self.said[key][1]

    def may_be_shown(self, key, conflict):
        """Whether somebody wrote it and no later write has seen it."""
        what = encode_cell((conflict.type, conflict.value))
        return any(found == what and number not in self.settled for number, found in self.events[key])


class Tight(MemoryJournal):
    """A journal that is refused room when it is told so."""

    full = False

    def append(self, items):
        if self.full:
            raise Rejected(Code.DISK_LOW, "no space")
        super().append(items)


class Replicas(RuleBasedStateMachine):
    """Three owners, and one fork of each at most."""

    @initialize()
    def begin(self):
        self.nodes = [Node(n + 1, now_ms=1000, name="unused") for n in range(COUNT)]
        for node in self.nodes:
            self.persist(node)
        self.base_ms = 1000
        self.known = [Known() for _ in range(COUNT)]
        self.marks = {}
        self.forks = {}
        self.numbers = 0
        self.amounts = {}

    def persist(self, node):
        """Give the node a database with a journal."""
        node.journal = Tight()
        header = DatabaseHeader("shared", node.keys.public, node.home.new_replica_id())
        cursor = Journaled(node.journal, LIMITS, EMPTY, header)
        cursor.begin(header)
        node.home.adopt("shared", cursor)
        node.db = Database.of(node.home, "shared", replica=header.replica)

    # Operations. Each goes through `edit`, which checks what holds of all of them.

    def edit(self, at, key, call, told=lambda known, number: None, *, ttl_ms=None):
        """Run an operation on a replica, and tell the oracle of it if it was not refused."""
        database, known = self.place(at)
        before, was = database.snapshot(), database.read(key)
        refused = None
        try:
            call(database)
        except Rejected as error:
            refused = error
        if refused is not None:
            assert refused.code is Code.WRONG_TYPE
            assert database.snapshot() is before  # P22
            return
        check_mutator(LATTICE, before, database.snapshot(), same=same)  # P5
        self.numbers += 1
        told(known, self.numbers)
        if database.snapshot() is not before:
            self.tell(at, key, was if was is not None and was.type is not None else None, ttl_ms)
        self.compare(database, known)

    def tell(self, at, key, was, ttl_ms):
        """What a write that found `was` has said of the expiry, and what it has seen."""
        database, known = self.place(at)
        entry = database.snapshot().get(key)
        view = visible(entry)
        now_ms = self.nodes[at[0]].clock.now_ms()
        expire = None if was is None else was.expires_at
        if ttl_ms is not None:
            expire = now_ms + ttl_ms
        if view.tag in LANE_OF:
            known.said[key] = (entry.newest, NEVER if expire is None else expire)
        if was is None:
            known.settle(key)
        if view.tag not in LANE_OF:
            kind = None if view.tag is None else TYPE_NAMES[view.tag]
            known.events[key].add((self.numbers, encode_cell((kind, view.value))))

    def place(self, at):
        """A replica, or its fork if it has one and `at` says so."""
        number, forked = at
        if forked and number in self.forks:
            return self.forks[number]
        return self.nodes[number].db, self.known[number]

    places = st.tuples(nodes, st.booleans())

    def expired(self, at, key):
        """Whether there is nothing to read and an expiry that has passed, of what was visible or a delete hides."""
        database, known = self.place(at)
        view = visible(database.snapshot().get(key))
        now_ms = self.nodes[at[0]].clock.now_ms()
        return not view.is_live(now_ms) and (view.tag is not None or known.has_expired(key, now_ms))

    def write_structure(self, at, key, call, told):
        """A structure on an expired key starts empty: what was there has been seen and is erased."""
        was_expired = self.expired(at, key)

        def tell(known, number):
            if was_expired:
                known.erase(key)
            told(known, number)

        self.edit(at, key, call, tell)

    @rule(at=places, key=keys, amount=st.integers(-3, 5).filter(bool))
    def count(self, at, key, amount):
        def told(known, number):
            self.amounts[number] = amount
            known.add(("counter", key, None), number)

        self.write_structure(at, key, lambda db: db.incrby(key, amount), told)

    @rule(at=places, key=keys, member=members)
    def sadd(self, at, key, member):
        name = encode_cell(member)
        self.write_structure(
            at, key, lambda db: db.sadd(key, member), lambda known, n: known.add(("set", key, name), n)
        )

    @rule(at=places, key=keys, member=members)
    def srem(self, at, key, member):
        name = encode_cell(member)

        def told(known, _):
            if removed:
                known.erase(key, ("set",), name)

        removed = []
        self.edit(at, key, lambda db: removed.extend([1] * db.srem(key, member)), told)

    @rule(at=places, key=keys, member=members, score=st.integers(0, 3))
    def zadd(self, at, key, member, score):
        name = encode_cell(member)
        self.write_structure(
            at,
            key,
            lambda db: db.zadd(key, score, member),
            lambda known, n: known.add(("zset", key, name), n),
        )

    @rule(at=places, key=keys, field=st.sampled_from("fg"), value=st.integers(0, 2))
    def hset(self, at, key, field, value):
        self.write_structure(
            at,
            key,
            lambda db: db.hset(key, field, value),
            lambda known, n: known.add(("hash", key, field), n),
        )

    @rule(at=places, key=keys, field=st.sampled_from("fg"))
    def hdel(self, at, key, field):
        gone = []
        self.edit(
            at,
            key,
            lambda db: gone.append(db.hdel(key, field)),
            lambda known, _: known.erase(key, ("hash",), field) if gone[0] else None,
        )

    @rule(at=places, key=keys, value=st.integers(0, 2), ttl_ms=st.none() | st.integers(1, 5))
    def set(self, at, key, value, ttl_ms):
        def told(known, _):
            known.erase(key)
            known.settle(key)

        self.edit(at, key, lambda db: db.set(key, value, ttl_ms), told)

    @rule(at=places, key=keys, value=st.integers(0, 2))
    def push(self, at, key, value):
        was_absent = not self.place(at)[0].exists(key)
        self.edit(
            at,
            key,
            lambda db: db.lpush(key, value),
            lambda known, _: known.erase(key) if was_absent else None,
        )

    @rule(at=places, key=keys)
    def delete(self, at, key):
        gone = []

        def told(known, _):
            if gone[0]:
                known.erase(key)
                known.settle(key)

        self.edit(at, key, lambda db: gone.append(db.delete(key)), told)

    @rule(at=places, key=keys, ttl_ms=st.integers(0, 5))
    def expire(self, at, key, ttl_ms):
        self.edit(at, key, lambda db: db.expire(key, ttl_ms), ttl_ms=ttl_ms)

    @rule(at=nodes, key=keys)
    def set_on_a_full_disk(self, at, key):
        """What could not be written is not there to be read either."""
        node = self.nodes[at]
        before = node.db.snapshot()
        node.journal.full = True
        try:
            node.db.set(key, "unwritten")
        except Rejected as error:
            refused = error
        node.journal.full = False

        assert refused.code is Code.DISK_LOW
        assert node.db.snapshot() is before

    # Time: forwards, backwards, and three clocks at the same millisecond.

    @rule(at=nodes, by_ms=st.integers(-10, 15))
    def set_clock(self, at, by_ms):
        self.nodes[at].clock.set(self.base_ms + by_ms)

    @rule(by_ms=st.integers(-5, 10))
    def collide(self, by_ms):
        for node in self.nodes:
            node.clock.set(self.base_ms + by_ms)

    # Meeting.

    @rule(reader=nodes, writer=nodes)
    def exchange(self, reader, writer):
        if reader != writer:
            assert accepted(self.nodes[reader].pull(self.nodes[writer], accept_floor=everybody)) == [1]
            mine, theirs = (self.nodes[n].db.snapshot() for n in (reader, writer))
            assert mine.floor != theirs.floor or same(join_stores(mine, theirs), mine)
            self.met(reader, writer)

    @rule(reader=nodes, writer=nodes)
    def exchange_changes(self, reader, writer):
        """Only what changed since the two last met this way; the first time, everything."""
        if reader != writer:
            changes = self.nodes[writer].db.export_changes(self.marks.get((reader, writer), {}))
            self.marks[reader, writer] = self.nodes[writer].db.mark()
            mine, theirs = (self.nodes[n].db.snapshot() for n in (reader, writer))
            assert len(self.nodes[reader].db.merge_changes(changes).accepted) == 1
            after = self.nodes[reader].db.snapshot()
            assert same(
                join_stores(after, theirs), join_stores(mine, theirs)
            )  # nothing lost by the shorter way
            # Changes do not say what the writer has forgotten below its floor, so that stays: they are held against a
            # store without one.
            assert after.floor != theirs.floor or same(join_stores(after, KvStore(theirs.keys)), after)
            self.met(reader, writer)

    def met(self, reader, writer):
        self.known[reader].unite(self.known[writer])
        self.compare(self.nodes[reader].db, self.known[reader])

    @rule(at=nodes)
    def fork(self, at):
        self.forks.setdefault(at, (self.nodes[at].db.fork(), self.known[at].copy()))

    @rule(at=nodes)
    def sync(self, at):
        if at in self.forks:
            fork, known = self.forks.pop(at)
            fork.sync()
            assert fork.snapshot() is self.nodes[at].db.snapshot()
            self.known[at].unite(known)
            self.compare(fork, self.known[at])

    # What holds.

    def compare(self, database, known):
        now_ms = database._clock.now_ms()
        for key in KEYS:
            entry = database.snapshot().get(key)
            lanes = entry.lanes
            counted = known.seen.get(("counter", key, None), set()) - known.erased
            assert total_of(lanes[LANE_OF[Tag.COUNTER]].tree) == sum(self.amounts[n] for n in counted)  # P17
            present = {
                "set": {encode_cell(m) for m in members_of(lanes[LANE_OF[Tag.SET]].tree)},
                "zset": {encode_cell(r.value) for r in ranked_of(lanes[LANE_OF[Tag.ZSET]].tree)},
                "hash": {f.name for f in items(lanes[LANE_OF[Tag.HASH]].tree) if f.value is not None},
            }
            for (kind, held, name), ids in known.seen.items():
                if held == key and kind != "counter" and ids <= known.erased:
                    assert name not in present[kind]  # P20
            for member in items(lanes[LANE_OF[Tag.SET]].tree):
                assert (encode_cell(member.value) in present["set"]) == (member.add > member.rem)  # P18
            view = visible(entry)
            if view.tag in LANE_OF:
                assert (NEVER if view.expire is None else view.expire) == known.said[key][1]
            if view.expire is not None and now_ms >= view.expire:
                assert not database.exists(key)  # P21
                assert database.type(key) is None
            found = database.read(key)
            for conflict in () if found is None else found.conflicts:
                assert conflict.type in LANE_NAMES.values() or known.may_be_shown(key, conflict)

    @rule(at=nodes)
    def settle_and_collect(self, at):
        """Everybody has everything, so what is stamped so far is stable; one node collects, and no read changes.

        From here on clocks step back to this moment at most.
        """
        self.meet_all()
        for reader in range(COUNT):
            for writer in range(COUNT):
                self.marks[reader, writer] = self.nodes[writer].db.mark()
        stable_ms = self.newest_ms()
        self.base_ms = max(stable_ms, *(node.clock.now_ms() for node in self.nodes)) + 40
        self.collide(0)
        self.collect(at, stable_ms, stable_ms=stable_ms)

    def newest_ms(self):
        """The highest stamp that any node has."""
        stores = [node.db.snapshot() for node in self.nodes]
        return max(max(store.floor, store.newest) for store in stores)

    @rule()
    def a_grace_passes(self):
        """Everybody has everything, and then it is old."""
        self.meet_all()
        self.base_ms = self.newest_ms() + GRACE_MS + 100
        self.collide(0)

    @rule(at=nodes)
    def collect_what_is_old(self, at):
        """What is older than the grace is from before it passed, so everybody has heard of it; one node collects."""
        self.collect(at, self.nodes[at].clock.now_ms() - GRACE_MS, grace_ms=GRACE_MS)

    def collect(self, at, cut_ms, **options):
        """gc on one node: no read changes, and what had expired by the cut is deleted."""
        database, known = self.nodes[at].db, self.known[at]
        before = {key: (database.read(key), database.snapshot().get(key)) for key in KEYS}
        collected = database.gc(**options)
        expired = 0
        for key, (read, entry) in before.items():
            assert database.read(key) == read  # P23
            view = visible(entry)
            ends = [view.expire] * (view.tag is not None) + [known.said[key][1]] * any(
                map(alive_in, entry.lanes)
            )
            if read is None and entry.newest <= cut_ms and ends and max(ends) <= cut_ms:
                known.erase(key)
                known.settle(key)
                expired += 1
        assert collected.expired == expired
        assert database.gc(**options) == Collected(0, 0, 0)  # what was made of them waits
        self.nodes[at].home._known.clear()  # as a restart does: or it would not look at what peers still have
        self.compare(database, known)

    @rule()
    def journals(self):
        """What a restart would find is what is there."""
        for node in self.nodes:
            store, header, *_ = replay(node.journal)
            assert same(store, node.db.snapshot())
            assert header.replica == node.db.replica

    @rule()
    def laws(self):
        """P1 to P6 on what the replicas hold, and the wire form brings each of them back."""
        if len({node.db.snapshot().floor for node in self.nodes}) > 1:
            return  # what a floor has dropped is gone: laws are of states that know the same floor
        states = [node.db.snapshot() for node in self.nodes]
        check_laws(LATTICE, *states, same=same)
        a, b, c = states
        check_deliveries(LATTICE, [(a, b, c), (c, b, a), (b, c, a, b, c), (join_stores(a, c), b)], same=same)
        for store in states:
            again = store_from_cell(store_to_cell(store), LIMITS)
            assert same(again, store)
            assert all(again.get(key).newest == store.get(key).newest for key in KEYS)

    @rule(at=nodes, grace_ms=st.integers(0, 8), floor=st.integers(0, 1012))
    def collecting_changes_no_read(self, at, grace_ms, floor):
        """P23, with and without a floor, on a copy."""
        node = self.nodes[at]
        store = node.db.snapshot()
        left, collected = collect(store, now_ms=node.clock.now_ms(), grace_ms=grace_ms, floor=floor)
        assert collected.keys == len(store) - len(left)
        before, after = (
            Database("copy", Root(LATTICE, held), clock=node.clock, entropy=SeededEntropy(1))
            for held in (store, left)
        )
        for key in KEYS:
            assert before.read(key) == after.read(key)
            assert before.ttl(key) == after.ttl(key)

    def teardown(self):
        """P25: along the chain and back, everybody has everything."""
        if not hasattr(self, "base_ms"):
            return
        self.meet_all()
        self.journals()

    def meet_all(self):
        for at in list(self.forks):
            self.sync(at)
        for reader, writer in ((1, 0), (2, 1), (1, 2), (0, 1)):
            self.exchange(reader, writer)
        assert len({state(node.db) for node in self.nodes}) == 1
        assert self.known[0].seen == self.known[1].seen == self.known[2].seen


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(
    max_examples=max(80, settings.default.max_examples // 4), stateful_step_count=40
)


class Lives(Replicas):
    """The same with fewer rules, so that keys often expire, are collected by one node, and live again on several."""

    fork = sync = set_on_a_full_disk = set_clock = srem = zadd = hdel = push = laws = None
    settle_and_collect = collecting_changes_no_read = None


TestLives = Lives.TestCase
TestLives.settings = settings(TestReplicas.settings, max_examples=2 * TestReplicas.settings.max_examples)
