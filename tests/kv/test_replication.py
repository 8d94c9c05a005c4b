"""What leaves a node and what enters it: envelopes, verification, selection, chains, connected databases."""

from __future__ import annotations

import random

import pytest

from tests.support.kv_nodes import LIMITS, START_MS, Node, accepted, exchange, keys_of, state
from topics.codec.cell import CellMap, decode_cell, encode_cell
from topics.crypto.did import did_of_key
from topics.kernel.errors import Corrupt, Rejected, WrongState
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.entries.store import StoreLattice
from topics.kv.future.report import MergeReport, Refused
from topics.kv.replica import REGION, PayloadCodec, Replica
from topics.lattice.owners.authority import Authority, OwnerKeys
from topics.lattice.owners.owner import OwnerLattice, OwnSlot
from topics.lattice.values.algebra import MapLattice
from topics.lattice.values.cursor import EntryStep, Root
from topics.lattice.values.stamps import MAX_DRIFT_MS
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy


def filled(number=1):
    node = Node(number)
    node.db.set(f"from-{number}", number)
    node.db.sadd("s", number)
    node.db.incr("c")
    return node


def over_the_wire(cell):
    return decode_cell(encode_cell(cell))


@pytest.mark.rule("R3.1.1", "R3.6.1", "R11.22", "R11.23")
def test_an_export_is_one_envelope_with_all_databases_of_the_owner():
    node = filled()
    other = Database.of(node.home, "other")
    other.set("k", "of the other")
    exported = over_the_wire(node.db.export_replica())
    assert list(exported) == [node.keys.public]
    assert len(exported[node.keys.public]) == 1
    assert exported == over_the_wire(other.export_replica())
    signer, _, payload, _ = exported[node.keys.public][0]
    assert signer == node.keys.public
    databases = decode_cell(payload)
    assert {name: sorted(keys) for name, keys in databases.items()} == {
        "other": ["k"],
        "shared": ["c", "from-1", "s"],
    }
    assert databases["other"]["k"][:4] == ("of the other", 0, START_MS, None)

    reader = Node(2)
    theirs = Database.of(reader.home, "other")
    assert len(theirs.merge_replicas(exported).accepted) == 1
    assert (theirs.get("k"), reader.db.keys()) == ("of the other", [])
    assert len(reader.db.merge_replicas(exported).accepted) == 1
    assert reader.db.keys() == ["c", "from-1", "s"]


@pytest.mark.rule("R3.6.2")
def test_the_count_is_of_accepted_foreign_replicas_of_this_database():
    a, b = filled(1), filled(2)
    unrelated = Node(3, name="elsewhere")
    maps = [node.db.export_replica() for node in (a, b, unrelated)]
    everything = CellMap([pair for exported in maps for pair in exported.items()])
    assert len(a.db.merge_replicas(everything).accepted) == 1  # not itself, and not who has no such database
    assert len(Node(4).db.merge_replicas(everything).accepted) == 2
    assert len(a.db.merge_replicas(everything).accepted) == 1  # nothing new is still accepted
    assert a.db.merge_replicas({}) == MergeReport()
    for garbage in (None, b""):
        assert a.db.merge_replicas(garbage) == MergeReport(
            refused=(Refused(None, "it is no map of at most 100000 owners"),)
        )


@pytest.mark.rule("R3.6.3", "R9.25")
def test_a_chain_converges_without_direct_contact():
    """P25."""
    a, b, c = filled(1), filled(2), filled(3)
    for _ in range(2):
        b.pull(a)
        c.pull(b)
        b.pull(c)
        a.pull(b)
    assert state(a.db) == state(b.db) == state(c.db)
    assert a.db.smembers("s") == [1, 2, 3]
    assert c.db.incrby("c", 0) == 3


@pytest.mark.rule("R3.6.5", "R11.23")
def test_a_predicate_filters_who_is_absorbed():
    a, b, c = filled(1), filled(2), filled(3)
    blocked = b.keys.public
    maps = CellMap([*b.db.export_replica().items(), *c.db.export_replica().items()])
    asked = []

    def accept(owner):
        asked.append(owner)
        return owner != blocked

    assert len(a.db.merge_replicas(maps, accept).accepted) == 1
    assert a.db.keys() == ["c", "from-1", "from-3", "s"]
    assert sorted(asked) == sorted([b.keys.public, c.keys.public])

    c.pull(b)  # and now an accepted one brings along what it has absorbed
    assert len(a.db.merge_replicas(c.db.export_replica(), accept).accepted) == 1
    assert a.db.exists("from-2")


@pytest.mark.rule("R9.24", "R11.25", "R4.1.1", "R4.3.3")
def test_what_is_forged_or_misattributed_is_as_if_it_were_not_there():
    """P24: every single change of a good map, and every way to claim what is somebody else's."""
    good, victim = filled(1), filled(2)
    owner = good.keys.public
    (signer, seq, payload, signature) = over_the_wire(good.db.export_replica())[owner][0]
    attacker = keys_of(66)
    altered = payload[:-6] + bytes([payload[-6] ^ 1]) + payload[-5:]
    forged = [
        {victim.keys.public: ((signer, seq, payload, signature),)},
        {owner: ((signer, seq, altered, signature),)},
        {owner: ((signer, seq + 1, payload, signature),)},
        {owner: ((attacker.public, seq, payload, signature),)},
        {owner: ((signer, seq, payload, signature[:-1] + bytes([signature[-1] ^ 1])),)},
        {owner: ((attacker.public, seq, payload, attacker.sign(payload)),)},
        {owner: ((signer, seq, payload, bytes(64)),)},
        {owner: (signer, seq, payload, signature)},
        {owner: ((signer, seq, payload),)},
        {owner: (), owner[:-1]: ((signer, seq, payload, signature),)},
        {"did:web:nobody.example": ((signer, seq, payload, signature),)},
        {1337: ((signer, seq, payload, signature),)},
        {owner: None}, {None: None}, {True: ((signer, seq, payload, signature),)},
    ]  # fmt: skip
    reader = filled(3)
    before, at = state(reader.db), reader.db.snapshot()
    for replicas in forged:
        assert len(reader.db.merge_replicas(replicas).accepted) == 0, replicas
    assert before == state(reader.db)
    assert reader.db.snapshot() is at

    mixed = {
        owner: ((signer, seq, payload, signature),),
        victim.keys.public: ((signer, seq, payload, signature),),
    }
    clean = filled(3)
    assert reader.db.merge_replicas(mixed).accepted == (owner,)
    assert clean.db.merge_replicas(good.db.export_replica()).accepted == (owner,)
    assert state(clean.db) == state(reader.db)


@pytest.mark.rule("R4.3.3", "R11.25")
def test_an_envelope_of_another_region_or_kind_is_refused():
    node, reader = filled(1), Node(2)
    assert len(reader.db.merge_changes(node.db.export_replica()).accepted) == 0
    assert len(reader.db.merge_replicas(node.db.export_changes({})).accepted) == 0
    assert reader.db.keys() == []


@pytest.mark.rule("R11.25")
def test_replaying_an_old_envelope_changes_nothing():
    a, b = filled(1), Node(2)
    old = a.db.export_replica()
    a.later(10).delete("from-1")
    a.db.srem("s", 1)
    b.pull(a)
    before = state(b.db)
    assert len(b.db.merge_replicas(old).accepted) == 1
    assert before == state(b.db)
    assert len(a.db.merge_replicas(old).accepted) == 0
    assert b.db.get("from-1") is None


@pytest.mark.rule("R9.24")
def test_flipped_bits_are_harmless():
    node, clean = filled(1), filled(2)
    data = encode_cell(node.db.export_replica())
    before = state(clean.db)
    draw = random.Random(1)
    for _ in range(150):
        bit = draw.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            cell = decode_cell(bytes(flipped))
        except Corrupt:
            continue
        assert len(clean.db.merge_replicas(cell).accepted) == 0
    assert before == state(clean.db)


class Accounts:
    """Account 5 has the keys of nodes 1 and 2."""

    def keys_of(self, address):
        return OwnerKeys([keys_of(1).public, keys_of(2).public]) if address == 5 else None


@pytest.mark.rule("R11.24")
def test_two_keys_of_one_account_share_its_databases_and_a_rogue_does_not():
    def authority(clock):
        return Authority(clock, addresses=Accounts())

    first, second = (Node(n, owner=5, authority=authority) for n in (1, 2))
    rogue = Node(3, owner=5, authority=authority)
    first.db.set("a", 1)
    second.db.set("b", 2)
    with pytest.raises(WrongState, match="may not sign"):
        rogue.db.export_replica()
    assert accepted(second.pull(first)) == [1]
    assert accepted(first.pull(second)) == [1]
    assert first.db.keys() == second.db.keys() == ["a", "b"]

    key_only = Node(4)
    assert accepted(key_only.pull(first)) == [0]  # nobody here knows account 5
    informed = Node(4, authority=authority)
    assert accepted(informed.pull(first, second)) == [1, 1]
    assert informed.db.keys() == ["a", "b"]


@pytest.mark.rule("R11.24")
def test_a_did_key_signs_for_itself():
    node = Node(1, owner=did_of_key(keys_of(1).public))
    node.db.set("k", 1)
    reader = Node(2)
    assert accepted(reader.pull(node)) == [1]
    assert reader.db.get("k") == 1


@pytest.mark.rule("R1.3.2")
def test_a_stamp_from_the_future_waits_and_is_neither_changed_nor_lost():
    ahead, node = Node(1), Node(2)
    ahead.db.set("near", "now")
    ahead.later(MAX_DRIFT_MS + 5000).set("far", "future")
    node.db.set("far", "mine")
    assert accepted(node.pull(ahead)) == [1]
    assert (node.db.get("far"), node.db.get("near"), len(node.db.future())) == ("mine", "now", 1)
    assert accepted(node.pull(ahead)) == [1]
    assert len(node.db.future()) == 1  # the same envelope waits once
    node.later(4999)
    assert node.db.get("far") == "mine"
    node.later(1)
    assert node.db.get("far") == "future"
    assert (len(node.db.future()), node.db.keys()) == (0, ["far", "near"])
    exchange(node, ahead)
    assert state(node.db) == state(ahead.db)


@pytest.mark.rule("R1.3.2")
def test_exactly_the_drift_is_believed():
    ahead, node = Node(1, now_ms=START_MS + MAX_DRIFT_MS), Node(2)
    ahead.db.set("k", 1)
    node.pull(ahead)
    assert node.db.get("k") == 1


@pytest.mark.rule("R11.26", "R3.6.4")
def test_a_connected_database_writes_into_its_parents_slot_and_signs_once_a_sync():
    clock, keys = ManualClock(START_MS), keys_of(1)
    lattice = OwnerLattice(
        MapLattice(StoreLattice(LIMITS)),
        PayloadCodec(LIMITS),
        region=REGION,
        authority=Authority(clock),
        key=keys,
    )
    root = Root(lattice)
    place = root.at(OwnSlot(lattice, keys.public)).at(EntryStep("shared", StoreLattice(LIMITS)))
    connected = Database("shared", place, clock=clock, entropy=SeededEntropy(1))
    connected.set("k", 1)
    assert root.get()[keys.public].envelopes[0].seq == 1

    fork = connected.fork()
    for i in range(5):
        fork.incrby("c", i)
    assert connected.incrby("c", 0) == 0
    fork.sync()
    assert connected.incrby("c", 0) == 10
    assert root.get()[keys.public].envelopes[0].seq == 2

    reader = Node(2)
    assert len(reader.db.merge_replicas(lattice.to_cell(root.get())).accepted) == 1
    assert (reader.db.get("k"), reader.db.incrby("c", 0)) == (1, 10)
    with pytest.raises(WrongState, match="no fork"):
        connected.sync()


@pytest.mark.rule("R1.4.1", "R1.4.2", "R11.26")
def test_a_fork_sees_nothing_and_shows_nothing_until_it_syncs():
    db = Node().db
    db.set("k", "base")
    fork = db.fork()
    inner = fork.fork()
    inner.set("inner", 1)
    db.set("parent", 1)
    assert (fork.keys(), inner.keys(), db.keys()) == (["k"], ["inner", "k"], ["k", "parent"])
    inner.sync()
    assert (fork.keys(), db.keys()) == (["inner", "k"], ["k", "parent"])
    fork.sync()
    assert fork.keys() == db.keys() == ["inner", "k", "parent"]
    fork.incr("again")
    fork.sync()
    assert db.incrby("again", 0) == 1


@pytest.mark.rule("R1.4.7")
def test_gc_is_refused_on_a_fork():
    db = Node().db
    fork = db.fork()
    with pytest.raises(WrongState, match="fork"):
        fork.gc(grace_ms=0)


def test_changes_bring_a_reader_that_has_the_rest_to_the_same_state():
    a, b = filled(1), Node(2)
    for i in range(200):
        a.db.sadd("many", i)
        a.db.set(f"k{i}", i)
    a.db.incr("deleted")
    b.pull(a)
    mark = a.db.mark()
    a.later(5).sadd("many", "new")
    a.db.delete("k7")
    a.db.delete("deleted")  # a column that takes back travels with the column it takes back
    a.db.decr("c")
    a.db.expire("s", 1000)
    changes = a.db.export_changes(mark)
    whole = a.db.export_replica()
    assert len(encode_cell(changes)) * 10 < len(encode_cell(whole))
    assert len(b.db.merge_changes(changes).accepted) == 1
    assert state(a.db) == state(b.db)
    assert len(b.db.merge_changes(a.db.export_changes(a.db.mark())).accepted) == 1
    assert state(a.db) == state(b.db)


def test_an_unchanged_state_is_signed_once():
    node = filled()
    first = node.db.export_replica()
    assert first == node.db.export_replica()
    node.db.set("k", 1)
    (before,), (after,) = (
        (slots[0][1],) for slots in (first[node.keys.public], node.db.export_replica()[node.keys.public])
    )
    assert after > before


def test_a_life_that_forgot_its_numbers_goes_on_above_them():
    """Its clock stepped back, so peers would take its envelopes for old ones; they bring back what it has signed."""
    first, peer = Node(1, now_ms=50_000), Node(2)
    first.db.set("k", "first life")
    first.db.incr("c")
    old = first.db.export_replica()
    peer.clock.set(50_000)
    peer.pull(first)

    again = Node(1, now_ms=100)
    again.db.merge_replicas(old)
    assert again.db.get("k") == "first life"
    fresh = again.db.export_replica()
    assert fresh[again.keys.public][0][1] > old[again.keys.public][0][1]


def test_a_replica_too_large_for_the_limit_is_refused_whole():
    big = Node(1)
    for i in range(9):
        big.db.set(f"k{i}", i)
    small = Node(2, limits=KvLimits(keys=4))
    with pytest.raises(Rejected, match="twice its limit"):
        small.pull(big)
    assert small.db.keys() == []


def test_a_replica_too_large_does_not_keep_the_others_out():
    big, fair = Node(1), [Node(3), Node(4)]
    for i in range(9):
        big.db.set(f"k{i}", i)
    for node in fair:
        node.db.set(f"of {node.keys.public[0]}", 1)
    small = Node(2, limits=KvLimits(keys=4))
    given = {}
    for node in (fair[0], big, fair[1]):
        given |= node.db.export_replica()
    with pytest.raises(Rejected, match="twice its limit"):
        small.db.merge_replicas(given)
    assert len(small.db.keys()) == len(fair)


def test_names_of_databases_are_checked_and_bounded():
    home = Replica(
        keys_of(1), clock=ManualClock(), entropy=SeededEntropy(1), limits=KvLimits(databases=2)
    )  # fmt: skip
    for bad in ("", "x" * 201, None):
        with pytest.raises(Rejected, match="database"):
            Database.of(home, bad)
    Database.of(home, "a")
    Database.of(home, "b")
    with pytest.raises(Rejected, match="at most 2 databases"):
        Database.of(home, "c")
    with pytest.raises(WrongState, match="open already"):
        home.adopt("a", home.cursor("b"))


@pytest.mark.parametrize("replica", ["", "r" * 129, "reset:r"])
def test_an_id_that_no_peer_could_read_is_refused(replica):
    node = Node()
    with pytest.raises(Rejected, match="replica"):
        Database(
            "other", node.home.cursor("other"), clock=node.clock, entropy=node.home.entropy, replica=replica
        )


def test_create_makes_a_database_that_stands_alone():
    made = Database.create("mydb", keys_of(1), clock=ManualClock(START_MS), entropy=SeededEntropy(1))
    made.set("k", 1)
    assert made.owner == keys_of(1).public
    reader = Node(2, name="mydb")
    assert len(reader.db.merge_replicas(made.export_replica()).accepted) == 1
    assert reader.db.get("k") == 1
