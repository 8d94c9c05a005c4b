"""Replicas that write, fork, merge, lag, repeat and lie: their states keep the laws of a join (P1 to P7, P24).

Three nodes hold a map of owners to signed slots; two of them are admins of one account, so its slot has two signers.
Clocks collide and step back, messages arrive late, twice or out of order, forks nest and are synced when somebody feels
like it, a node comes back from a backup and signs numbers it has signed before, and a forger changes what it overhears.
The oracle is a dict: for each owner and key, the greatest write that was ever synced (a backup may have lost it).
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.lattice_owners import ALICE, BOB, CAROL, REGION, ROGUE, Accounts, written
from topics.codec.cell import decode_cell, encode_cell
from topics.kernel.errors import Corrupt
from topics.lattice.owners.authority import Authority
from topics.lattice.owners.owner import OwnerLattice, OwnSlot
from topics.lattice.values.algebra import LwwLattice, MapLattice, MaxLattice, SetLattice, TupleLattice
from topics.lattice.values.cursor import Root
from topics.lattice.values.laws import check_deliveries, check_garbage, check_laws, check_mutator
from topics.lattice.values.stamps import next_stamp
from topics.testing.clock import ManualClock

pytestmark = [
    pytest.mark.invariant("I-14"),
    pytest.mark.rule(
        "R1.1.1", "R1.1.2", "R1.3.1", "R1.4.1", "R1.4.2", "R4.1.1", "R4.3.2", "R9.1", "R9.2", "R9.3", "R9.4", "R9.5",
        "R9.6", "R9.7", "R9.24",
    ),
]  # fmt: skip

PAYLOADS = TupleLattice(MaxLattice(), MapLattice(LwwLattice()), SetLattice())
KEYS = ((ALICE, 42), (BOB, 42), (CAROL, 7))  # each node's key, and the owner it writes as
START = 1_000_000
MESSAGES_MAX = 60

nodes = st.integers(0, 2)
keys = st.sampled_from("ab")
words = st.sampled_from([None, True, 1, 1.0, "x", "y"])


class Payload:
    """Count of edits, registers, members: as a cell and back."""

    def to_cell(self, value):
        return value

    def from_cell(self, cell):
        try:
            count, registers, members = cell
            return count, dict(registers.items()), dict(members.items())
        except (TypeError, ValueError, AttributeError):
            raise Corrupt("no payload") from None


class Node:
    def __init__(self, key, owner):
        self.clock = ManualClock(START)
        rules = Authority(self.clock, addresses=Accounts(), answer_ttl_ms=0)
        self.lattice = OwnerLattice(PAYLOADS, Payload(), region=REGION, authority=rules, key=key)
        self.owner = owner
        self.root = Root(self.lattice)
        self.slot = self.root.at(OwnSlot(self.lattice, owner))
        self.forks = []  # the outermost first, each a fork of the one before; with the writes not yet synced
        self.pending = []

    def edit(self, cursor, key, word):
        """One write, stamped above its object; returns what was written."""
        made = {}

        def change(value):
            count, registers, members = value
            newest = max((stamp for _, stamp in registers.values()), default=0)
            made["stamp"] = next_stamp(self.clock.now_ms(), newest)
            edited = (
                count + 1,
                {**registers, key: (word, made["stamp"])},
                SetLattice().join(members, SetLattice().of(word)),
            )
            check_mutator(PAYLOADS, value, edited, same=same)
            return edited

        cursor.update(change)
        return key, word, made["stamp"]


class Replicas(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.nodes = [Node(key, owner) for key, owner in KEYS]
        self.plain = self.nodes[0].lattice
        self.before = [node.root.get() for node in self.nodes]
        self.overheard = []
        self.oracle = {42: {}, 7: {}}
        self.backups = [[node.root.get()] for node in self.nodes]
        self.is_lossy = False

    @rule(writes=st.lists(st.tuples(nodes, keys, words), min_size=1, max_size=5))
    def write(self, writes):
        for at, key, word in writes:
            node = self.nodes[at]
            self.remember(node.owner, node.edit(node.slot, key, word))

    @rule(at=nodes)
    def fork(self, at):
        node = self.nodes[at]
        if len(node.forks) < 3:
            node.forks.append((node.forks[-1] if node.forks else node.slot).fork())
            node.pending.append([])

    @precondition(lambda self: any(node.forks for node in self.nodes))
    @rule(at=nodes, key=keys, word=words, depth=st.integers(0, 2))
    def edit_fork(self, at, key, word, depth):
        """An edit of any fork, also of one that has a fork below it; nobody above sees it."""
        node = self.nodes[at]
        if node.forks:
            depth %= len(node.forks)
            above = [cursor.get() for cursor in (node.slot, *node.forks[:depth])]
            node.pending[depth].append(node.edit(node.forks[depth], key, word))
            assert all(
                cursor.get() is value for cursor, value in zip((node.slot, *node.forks), above, strict=False)
            )

    @precondition(lambda self: any(node.forks for node in self.nodes))
    @rule(at=nodes, keep=st.booleans())
    def sync_fork(self, at, keep):
        """The innermost fork brings its work one level up, and is kept or dropped."""
        node = self.nodes[at]
        if not node.forks:
            return
        fork, done = node.forks[-1], node.pending[-1]
        result = fork.sync()
        assert fork.get() is result
        assert same(fork.parent.get(), result)
        if len(node.forks) == 1:
            for edit in done:
                self.remember(node.owner, edit)
        else:
            node.pending[-2].extend(done)
        node.pending[-1] = []
        if not keep:
            node.forks.pop()
            node.pending.pop()

    @rule(at=nodes, depth=st.integers(0, 2), data=st.data())
    def merge_into_fork(self, at, depth, data):
        """A fork may merge too: another admin's payload, as own against it."""
        node = self.nodes[at]
        if node.forks:
            other = data.draw(st.sampled_from([peer for peer in self.nodes if peer.owner == node.owner]))
            node.forks[depth % len(node.forks)].merge(other.slot.get())

    @rule(ms=st.lists(st.sampled_from([-50, -1, 0, 1, 50]), min_size=3, max_size=3), collide=st.booleans())
    def move_clocks(self, ms, collide):
        latest = max(node.clock.now_ms() for node in self.nodes)
        for node, step in zip(self.nodes, ms, strict=True):
            node.clock.set(latest if collide else node.clock.now_ms() + step)

    @rule(at=nodes)
    def send(self, at):
        node = self.nodes[at]
        self.backups[at].append(node.root.get())
        self.overheard = [*self.overheard, encode_cell(node.lattice.to_cell(node.root.get()))][-MESSAGES_MAX:]

    @rule(calls=st.lists(st.tuples(nodes, nodes), min_size=1, max_size=4))
    def gossip(self, calls):
        """Straight from one node to another."""
        for one, other in calls:
            message = encode_cell(self.plain.to_cell(self.nodes[one].root.get()))
            self.nodes[other].root.merge(decode_cell(message))

    @precondition(lambda self: self.overheard)
    @rule(at=nodes, data=st.data())
    def deliver(self, at, data):
        """Any message ever sent, old ones and repetitions too."""
        message = data.draw(st.sampled_from(self.overheard))
        self.nodes[at].root.merge(decode_cell(message))

    @precondition(lambda self: any(len(states) > 2 for states in self.backups))
    @rule(at=nodes, data=st.data())
    def restore(self, at, data):
        """A disk is lost: the node goes on from an older state, and its forks are gone."""
        node = self.nodes[at]
        node.root.shrink(lambda _: data.draw(st.sampled_from(self.backups[at])))
        node.forks, node.pending = [], []
        self.before[at] = node.root.get()
        self.is_lossy = True

    @precondition(lambda self: self.overheard)
    @rule(at=nodes, data=st.data())
    def forge(self, at, data):
        """P24: an attacker's entries, alone or among good ones, are as if they had not been there."""
        node, message = self.nodes[at], decode_cell(data.draw(st.sampled_from(self.overheard)))
        payload = (999, {"a": ("forged", START * 2)}, {})
        lying = OwnerLattice(PAYLOADS, Payload(), region=REGION, authority=_Anybody(), key=ROGUE)
        entries = dict(message.items())
        for owner in (42, 7):
            mine = lying.slot(owner).sign(None, payload).to_cell()
            entries[owner] = tuple(sorted((*entries.get(owner, ()), *mine)))
        for owner, entry in message.items():  # good envelopes in places that are not theirs
            entries[ROGUE.public] = entries[f"#{owner}"] = entry
        kinds = data.draw(st.sampled_from(["all", "alone", "region"]))
        if kinds == "alone":
            entries = {owner: entry for owner, entry in entries.items() if owner not in message}
        elif kinds == "region":
            entries = written(CAROL, 7, {"a": ("forged", START * 2)}, region="queue")

        expected = node.lattice.join(
            node.root.get(), node.lattice.sift(node.root.get(), message if kinds == "all" else {})
        )
        assert self.bytes_of(node.root.merge(entries)) == self.bytes_of(expected)

    @invariant()
    def laws_hold_on_the_states_reached(self):
        """P1, P2, P3, P4 on what the nodes hold, and P5: no node ever moved down."""
        if not hasattr(self, "nodes"):
            return
        states = [node.root.get() for node in self.nodes]
        check_laws(self.plain, *states)
        for before, after in zip(self.before, states, strict=True):
            check_mutator(self.plain, before, after)
        if self.before != states:
            for one in self.nodes:
                values = [node.slot.get() for node in self.nodes if node.owner == one.owner]
                check_laws(PAYLOADS, *(values * 3)[:3], same=same)
        self.before = states

    def teardown(self):
        """P7: garbage changes nothing. P6: any order, repetition or grouping ends in equal bytes, the oracle's."""
        if not hasattr(self, "nodes"):
            return
        states = [node.root.get() for node in self.nodes]
        for garbage in (None, 3, "x", {42: 3}, {42: ()}, {True: ()}, ((), ())):
            check_garbage(self.plain, states[0], garbage)
        orders = [
            *itertools.permutations(states),
            [*states, *states],
            [self.plain.join(states[0], states[1]), states[2]],
        ]
        check_deliveries(self.plain, orders)
        for _ in range(3):  # the second round brings what a node has signed anew in the first one
            for node, other in itertools.permutations(self.nodes, 2):
                node.root.merge(decode_cell(encode_cell(self.plain.to_cell(other.root.get()))))
        assert len({self.bytes_of(node.root.get()) for node in self.nodes}) == 1
        for owner, registers in self.oracle.items() if not self.is_lossy else ():
            slot = states and self.nodes[0].root.get().get(owner)
            seen = slot.value[1] if slot else {}
            assert {key: encode_cell(value) for key, value in seen.items()} == registers

    def remember(self, owner, edit):
        key, word, stamp = edit
        known = self.oracle[owner].get(key)
        register = encode_cell((word, stamp))
        if known is None or (stamp, encode_cell(word)) > (
            decode_cell(known)[1],
            encode_cell(decode_cell(known)[0]),
        ):
            self.oracle[owner][key] = register

    def bytes_of(self, state):
        return encode_cell(self.plain.to_cell(state))


class _Anybody:
    def allows(self, owner, key):
        return True


def same(a, b):
    return encode_cell(a) == encode_cell(b)


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=settings.default.max_examples * 2, stateful_step_count=40)
