"""The vectors K1 to K24 and O9 of the page, each as the page writes it."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import LIMITS, Node, exchange, state
from topics.kernel.errors import Code, Rejected, WrongState
from topics.kv.database import Database
from topics.kv.entries.entry import ZERO, visible
from topics.kv.entries.merge import PLAIN_ZERO, join, merge_cad
from topics.kv.entries.wire import TYPE_NAMES, entry_from_cell, entry_to_cell

pytestmark = pytest.mark.rule("R10.2")


def entry(value, tag, utime, expire=None):
    found = entry_from_cell((value, tag, utime, expire), LIMITS)
    assert found is not None
    return found


def is_entry(cell):
    return entry_from_cell(cell, LIMITS) is not None


def both_ways(left, right):
    """The visible four slots of the join, which is the same both ways and what the literal rule gives."""
    plain = merge_cad(left, right, is_entry)
    assert plain == merge_cad(right, left, is_entry)
    joined = [join(entry(*left), entry(*right)), join(entry(*right), entry(*left))]
    cells = [entry_to_cell(found)[:4] for found in joined]
    assert cells[0] == cells[1] == plain
    return plain


def test_k1_a_value_expires_exactly_at_its_stamp():
    view = visible(entry("v", 0, 1000, 5000))
    assert view.is_live(4999)
    assert not view.is_live(5000)


def test_k2_without_expiry_it_never_does():
    assert visible(entry("v", 0, 1000)).is_live(2**62)


def test_k3_the_later_value_wins_both_ways():
    assert both_ways(("a", 0, 1000, None), ("b", 0, 2000, None)) == ("b", 0, 2000, None)


def test_k4_a_later_tombstone_wins():
    assert both_ways(("a", 0, 1000, None), (None, None, 2000, None)) == (None, None, 2000, None)


def test_k5_a_later_value_wins_over_a_tombstone():
    assert both_ways((None, None, 1000, None), ("a", 0, 2000, None)) == ("a", 0, 2000, None)


@pytest.mark.rule("R3.1.1", "R3.1.2")
def test_k6_a_tombstone_has_no_type():
    assert visible(entry(None, None, 1000)).tag is None
    assert visible(ZERO).tag is None
    assert entry_to_cell(ZERO) == PLAIN_ZERO == (None, None, 0, None)
    assert sorted(TYPE_NAMES.items()) == [
        (0, "value"), (1, "hash"), (2, "set"), (3, "zset"), (4, "list"), (5, "counter"),
    ]  # fmt: skip


def test_k7_the_second_delete_finds_nothing():
    db = Node().db
    db.set("k", 1)
    assert (db.delete("k"), db.delete("k")) == (True, False)
    assert db.type("k") is None


def test_k8_a_field_is_deleted_once():
    db = Node().db
    assert (db.hset("h", "f1", 1), db.hset("h", "f2", 2)) == (1, 1)
    assert db.hdel("h", "f1")
    assert db.hlen("h") == 1
    assert not db.hdel("h", "f1")


def test_k9_hset_on_a_value_is_refused():
    db = Node().db
    db.set("k", "v")
    with pytest.raises(Rejected) as refused:
        db.hset("k", "f", 1)
    assert refused.value.code is Code.WRONG_TYPE


def test_k10_sadd_counts_the_new_ones():
    db = Node().db
    assert (db.sadd("s", "a", "b"), db.sadd("s", "c", "a"), db.scard("s")) == (2, 1, 3)


def test_k11_srem_counts_the_removed_ones():
    db = Node().db
    db.sadd("s", "a", "b")
    assert db.srem("s", "a") == 1


def test_k12_a_rescore_is_no_new_member():
    db = Node().db
    assert [db.zadd("z", score, member) for score, member in ((1, "a"), (3, "c"), (2, "b"))] == [1, 1, 1]
    assert db.zadd("z", 1.5, "a") == 0
    assert (db.zcard("z"), db.zscore("z", "a")) == (3, 1.5)


def test_k13_zrange_by_rank_includes_both_ends():
    db = Node().db
    for score, member in ((1, "a"), (3, "c"), (2, "b")):
        db.zadd("z", score, member)
    assert db.zrange("z", 0, 2) == ["a", "b", "c"]
    assert len(db.zrange("z", 0, 1)) == 2


def test_k14_rpush_gives_the_length():
    db = Node().db
    assert [db.rpush("l", value) for value in "abc"] == [1, 2, 3]
    assert db.lrange("l", 0, -1) == ["a", "b", "c"]


def test_k15_lpush_puts_in_front():
    db = Node().db
    db.lpush("l", "a")
    db.lpush("l", "b")
    assert db.lrange("l", 0, 0) == ["b"]


def test_k16_pops_take_from_both_ends():
    db = Node().db
    db.rpush("l", "a", "b", "c")
    assert (db.lpop("l"), db.rpop("l"), db.llen("l")) == ("a", "c", 1)


def test_k17_a_counter_goes_up_and_down():
    db = Node().db
    assert [db.incr("c"), db.incr("c"), db.incrby("c", 3), db.decr("c"), db.decrby("c", 3)] == [1, 2, 5, 4, 1]


@pytest.mark.rule("R3.3.11")
def test_k19_forks_count_apart():
    db = Node().db
    first, second = db.fork(), db.fork()
    first.incrby("c", 5)
    second.incrby("c", 3)
    first.sync()
    second.sync()
    assert db.incrby("c", 0) == 8
    assert len({db.replica, first.replica, second.replica}) == 3


def test_k20_two_forks_add_a_member_each():
    node = Node()
    node.db.sadd("s", "initial")
    forks = [node.db.fork(), node.db.fork()]
    for name, fork in zip("ab", forks, strict=True):
        fork.sadd("s", name)
    for fork in forks:
        fork.sync()
    assert node.db.scard("s") == 3


def test_k21_gc_takes_the_deleted_key_only():
    node = Node()
    node.db.set("a", 1)
    node.db.set("b", 2)
    node.db.delete("a")
    node.later(10)
    assert node.db.gc(grace_ms=0).keys == 1
    assert (node.db.get("b"), len(node.db.snapshot())) == (2, 1)


def test_k22_ttl_codes():
    db = Node().db
    db.set("k", 1)
    assert (db.ttl("absent"), db.ttl("k")) == (-2, -1)


def test_k23_two_and_three_nodes_converge():
    a, b = Node(1), Node(2)
    a.db.set("from-a", 1)
    b.db.set("from-b", 2)
    a.db.sadd("s", "a")
    b.db.sadd("s", "b")
    a.pull(b)
    b.pull(a)
    assert a.db.keys() == b.db.keys() == ["from-a", "from-b", "s"]

    c = Node(3)
    c.db.sadd("s", "c")
    a.pull(b, c)
    b.pull(a)
    c.pull(b)
    assert a.db.smembers("s") == b.db.smembers("s") == c.db.smembers("s") == ["a", "b", "c"]
    assert state(a.db) == state(b.db) == state(c.db)


@pytest.mark.rule("R8.10", "R3.5.1")
def test_k24_early_gc_resurrects_and_grace_does_not():
    """8.10: the literal gc drops every tombstone, and a stale replica brings the key back."""
    for grace_ms, found in ((0, "old"), (None, None)):
        a, b = Node(1), Node(2)
        a.db.set("k", "old")
        b.pull(a)
        a.later(10).delete("k")
        a.later(10)
        collected = a.db.gc() if grace_ms is None else a.db.gc(grace_ms)
        assert collected.keys == (grace_ms == 0)
        a.pull(b)
        assert a.db.get("k") == found


@pytest.mark.rule("R10.3", "R3.6.4")
def test_o9_a_connected_database_exports_nothing():
    node = Node()
    connected = Database("shared", node.home.cursor("shared"), clock=node.clock, entropy=node.home.entropy)
    connected.set("k", 1)
    for call in (connected.export_replica, lambda: connected.merge_replicas({}), connected.mark):
        with pytest.raises(WrongState, match="connected"):
            call()
    assert node.db.get("k") == 1


def test_the_same_edits_end_in_the_same_bytes():
    nodes = [Node(n) for n in (1, 2, 3)]
    for i, node in enumerate(nodes):
        node.db.incrby("c", i + 1)
        node.db.hset("h", "f", i)
        node.db.zadd("z", i, "m")
        node.db.rpush("l", i)
    exchange(*nodes)
    assert len({state(node.db) for node in nodes}) == 1
    assert nodes[0].db.incrby("c", 0) == 6
