"""Weavers of three nodes against sets: writes, exchanges in any order, equivocation, skewed clocks, restarts.

The oracle knows, of each node, the set of intentions it was handed. What is witnessed is the largest part of that set
in which every parent is there; heads are the writers that no other writer descends from; the winner is the greatest by
(effective HLC, author, hash). It computes all of this anew from the definition, each time.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.weaving import NOW, Site, author, made, name_of
from topics.testing.journal import MemoryJournal
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, decode
from topics.weaver.state.ops import decode_ops, encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.store.report import Outcome
from topics.weaver.weaver import Weaver

pytestmark = [
    pytest.mark.rule(
        "R9.26", "R9.27", "R9.28", "R9.29", "R9.30", "R9.32", "R9.33", "R5.2.3", "R5.2.4", "R5.2.5", "R5.2.10",
        "R5.3.1", "R5.4.5", "R5.4.6", "R5.5.1", "R5.5.2", "R5.5.3", "R5.5.5", "R5.6.1",
    ),
]  # fmt: skip

KEYS = [b"x", b"y"]
NODES = 3
DRIFT = 3_600_000


class Oracle:
    """What a node must hold, from all it was handed."""

    def __init__(self):
        self.handed = {}

    def hand(self, *envelopes):
        self.handed.update((name_of(each), decode(each.body)) for each in envelopes)

    def witnessed(self):
        """In an order of causes."""
        found = {}
        grew = True
        while grew:
            grew = False
            for name, intention in self.handed.items():
                if name not in found and all(parent in found for parent in intention.parents):
                    found[name] = intention
                    grew = True
        return found

    def above(self, found):
        ancestors = {}
        for name, intention in found.items():
            ancestors[name] = {name}.union(*(ancestors[parent] for parent in intention.parents))
        return ancestors

    def effs(self, found, now_ms):
        result = {}
        for name, intention in found.items():
            greatest = max((result[parent] for parent in intention.parents), default=HLC(0, 0))
            future = intention.hlc.wall > now_ms + DRIFT
            result[name] = HLC(greatest.wall, greatest.counter + 1) if future else intention.hlc
        return result

    def heads(self, found, ancestors, key):
        writers = [name for name, each in found.items() if any(op.key == key for op in decode_ops(each.ops))]
        return {
            name
            for name in writers
            if not any(name in ancestors[other] for other in writers if other != name)
        }


class Node(Site):
    """A site with its state and oracle."""

    def __init__(self, number):
        self.state_journal = MemoryJournal()
        self.number = number
        self.oracle = Oracle()
        super().__init__(node=author(200 + number))

    def open(self, **options):
        super().open(**options)
        self.reopen_state()

    def reopen_state(self):
        self.state = open_state(self.store, self.state_journal)
        self.weaver = Weaver(self.store, self.state, author(1 + self.number))


class Weavers(RuleBasedStateMachine):
    """Three nodes, each with its author; a fourth author equivocates and stamps as it likes."""

    @initialize()
    def begin(self):
        self.nodes = [Node(number) for number in range(NODES)]
        self.envelopes = {}
        self.wild = []

    nodes_st = st.integers(0, NODES - 1)

    def published(self, envelopes):
        self.envelopes.update((name_of(each), each) for each in envelopes)

    # What happens.

    @rule(
        at=nodes_st,
        ops=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v"]), min_size=1),
    )
    def write(self, at, ops):
        """P30, P32: one head a key afterwards, above all it cites."""
        node = self.nodes[at]
        committed = node.weaver.batch(ops)
        node.oracle.hand(*committed.envelopes)
        self.published(committed.envelopes)
        written = node.store.node(committed.hash)
        for key, value in ops.items():
            found = node.weaver.inspect(key)
            assert (found.value, found.conflicted, len(found.heads)) == (value, False, 1)
        effs = node.oracle.effs(node.oracle.witnessed(), node.store.effective.now_ms)
        assert all(written.hlc > effs[parent.hash] for parent in written.parents)
        # Signed stamps rise, too, unless the clock was corrected since the last one; then that carries nothing off.
        now, last = node.clock.now_ms(), written.prev
        assert last is None or written.hlc > last.hlc or last.hlc.wall > now + DRIFT
        assert written.hlc.wall <= now + 2 * DRIFT  # as far as T is ahead of it, and a stamp of T

    @rule(at=nodes_st, to=nodes_st, key=st.sampled_from(KEYS))
    def write_and_hand_over_the_last(self, at, to, key):
        """Two writes, of which another node gets the second: it floats there unless the first comes."""
        self.write(at, {key: b"first"})
        self.write(at, {key: b"second"})
        self.hand_over(to, [list(self.envelopes)[-1]])

    @rule(data=st.data(), at=nodes_st)
    def ingest(self, data, at):
        """Some of what there is, newest first, with repetitions: much of it comes before its parents."""
        if not self.envelopes:
            return
        node = self.nodes[at]
        lacking = [name for name in reversed(self.envelopes) if name not in node.store]
        names = st.sampled_from(lacking or list(self.envelopes))
        self.hand_over(at, data.draw(st.lists(names, min_size=1, max_size=3)))

    def hand_over(self, to, names):
        node = self.nodes[to]
        chosen = [self.envelopes[name] for name in names]
        report = node.weaver.ingest(chosen)
        node.oracle.hand(*chosen)
        assert all(result.outcome is not Outcome.REFUSED for result in report.results)
        assert [result.hash for result in report.results] == names

    @rule(
        data=st.data(),
        at=nodes_st,
        wall=st.sampled_from([NOW, NOW + 5, NOW + DRIFT + 1, NOW + 2 * DRIFT, NOW + 2 * DRIFT + 1]),
        key=st.sampled_from(KEYS),
    )
    def write_wildly(self, data, at, wall, key):
        """An author that follows any of its own, cites anything a node has, and stamps what it wants."""
        node = self.nodes[at]
        here = [each for each in self.wild if name_of(each) in node.store]
        prev = data.draw(st.sampled_from([ZERO_HASH, *here]))
        after = data.draw(st.lists(st.sampled_from(node.order), max_size=2)) if node.order else []
        number = len(self.envelopes)
        ops = encode_ops({key: b"wild%d" % number})
        each = made(author(9), wall, prev=prev, after=after, counter=number % 3, ops=ops)
        self.wild.append(each)
        self.published([each])
        node.weaver.ingest([each])
        node.oracle.hand(each)

    @rule(at=nodes_st, to=nodes_st, start=st.integers(0, 9))
    def exchange(self, at, to, start):
        """What was witnessed from some record on goes over."""
        source, target = self.nodes[at], self.nodes[to]
        envelopes = [each.envelope for each in source.store.graph.order[start:]]
        target.weaver.ingest(envelopes)
        target.oracle.hand(*envelopes)

    @rule(data=st.data())
    def two_new_nodes_are_handed_one_batch(self, data):
        """In whatever order it comes, the smallest (HLC, author, hash) that can be is witnessed first: one log."""
        batch = list(self.envelopes.values())[:12]
        orders = []
        for envelopes in (batch, data.draw(st.permutations(batch))):
            site = Site()
            site.ingest(*envelopes)
            orders.append(site.order)
        assert orders[0] == orders[1]

    @rule(at=nodes_st, ms=st.sampled_from([-DRIFT - 1, -DRIFT, -1, 1, 1000, DRIFT, DRIFT + 1]))
    def clock_moves(self, at, ms):
        clock = self.nodes[at].clock
        clock.set(clock.now_ms() + ms)

    @rule(at=nodes_st)
    def restart(self, at):
        node = self.nodes[at]
        before, order = node.state.snapshot(), node.order
        node.open()
        assert node.order == order
        assert node.state.snapshot() == before

    @rule(at=nodes_st)
    def lose_state(self, at):
        """P29."""
        node = self.nodes[at]
        before = node.state.snapshot()
        node.state_journal = MemoryJournal()
        node.reopen_state()
        assert node.state.snapshot() == before

    # What holds.

    @invariant()
    def nodes_hold_what_the_oracle_says(self):
        for node in getattr(self, "nodes", ()):
            found = node.oracle.witnessed()
            assert set(node.order) == set(found)
            assert len(node.store.floating) == len(node.oracle.handed) - len(found)
            fingerprint = 0
            for name in found:
                fingerprint ^= int.from_bytes(name)
            assert node.store.fingerprint == fingerprint.to_bytes(32)
            self.compare_order(node, found)
            self.compare_heads(node, found)

    def compare_order(self, node, found):
        """P27."""
        seen = {ZERO_HASH}
        for name in node.order:
            assert set(found[name].parents) <= seen
            seen.add(name)

    def compare_heads(self, node, found):
        """P26, P28, P33: heads and winner by the definition, at this node's time."""
        ancestors = node.oracle.above(found)
        for key in KEYS:
            reading = node.weaver.inspect(key)
            expected = node.oracle.heads(found, ancestors, key)
            assert {head.hash for head in reading.heads} == expected
            if expected:
                effs = node.oracle.effs(found, node.store.effective.now_ms)
                best = max(expected, key=lambda name: (effs[name], found[name].author, name))
                assert reading.heads[0].hash == best

    def teardown(self):
        """P26, P33: after an exchange of all with all, and when clocks have passed every stamp, nothing differs."""
        if not hasattr(self, "nodes"):
            return
        for node in self.nodes * NODES:  # what floated at one may be what another waits for
            for other in self.nodes:
                envelopes = [each.envelope for each in other.store.graph.order]
                node.weaver.ingest(envelopes)
                node.oracle.hand(*envelopes)
        latest = max(node.clock.now_ms() for node in self.nodes) + 10 * DRIFT
        for node in self.nodes:
            node.clock.set(latest)
        first, *others = self.nodes
        for node in others:
            assert node.store.fingerprint == first.store.fingerprint
            assert node.state.digest() == first.state.digest()
            for key in KEYS:
                assert node.weaver.inspect(key) == first.weaver.inspect(key)


TestWeavers = Weavers.TestCase
TestWeavers.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.rule("R9.32")
def test_a_write_behind_a_corrected_clock_comes_after_the_stamps_that_are_believed():
    """Its own last stamp is from the future then, as everybody sees it: it carries nobody off, nor its author."""
    weavers = Weavers()
    weavers.begin()
    weavers.write(at=0, ops={b"x": b"v"})
    weavers.clock_moves(at=0, ms=-10 * DRIFT)
    weavers.write(at=0, ops={b"x": None})
    weavers.nodes_hold_what_the_oracle_says()
    weavers.teardown()
