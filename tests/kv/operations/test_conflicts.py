"""A read shows every value that a concurrent write has hidden, and none that a writer has seen."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import Node, exchange, state
from topics.kv.entries.wire import entry_to_cell
from topics.kv.operations.keys import Conflict, KeyReading

pytestmark = pytest.mark.rule("R11.21")


@pytest.fixture
def nodes():
    """Three whose clocks differ, so that it is known who wins: the third."""
    return [Node(n, now_ms=1000 + n) for n in (1, 2, 3)]


def readings(nodes, key="k"):
    """What all read after an exchange, which must be one."""
    exchange(*nodes)
    found = [node.db.read(key) for node in nodes]
    assert found[0] == found[1] == found[2]
    assert len({state(node.db) for node in nodes}) == 1
    return found[0]


def test_concurrent_values_are_all_shown(nodes):
    for node, value in zip(nodes, "abc", strict=True):
        node.db.set("k", value)
    conflicts = (Conflict("value", "b", 1002, None), Conflict("value", "a", 1001, None))
    assert readings(nodes) == KeyReading("k", "value", "c", None, conflicts)


def test_a_tie_shows_its_loser():
    left, right = Node(1), Node(2)
    left.db.set("k", "p")
    right.db.set("k", "q")
    exchange(left, right)
    for node in (left, right):
        assert node.db.read("k") == KeyReading("k", "value", "q", None, (Conflict("value", "p", 1000, None),))


def test_equal_values_are_no_conflict(nodes):
    for node in nodes:
        node.db.set("k", "same")
    assert readings(nodes) == KeyReading("k", "value", "same", None, ())


@pytest.mark.parametrize("resolve", [lambda db: db.set("k", "r"), lambda db: db.delete("k")])
def test_a_write_that_has_seen_them_ends_the_conflict(nodes, resolve):
    for node, value in zip(nodes, "abc", strict=True):
        node.db.set("k", value)
    exchange(*nodes)
    resolve(nodes[0].db)
    found = readings(nodes)
    assert found is None or found.conflicts == ()


def test_an_old_replica_does_not_bring_a_seen_value_back(nodes):
    a, b, c = nodes
    a.db.set("k", "a")
    stale = a.db.export_replica()
    b.pull(a)
    b.later(10).set("k", "b")
    c.pull(b)
    assert len(c.db.merge_replicas(stale).accepted) == 1
    assert c.db.read("k") == KeyReading("k", "value", "b", None, ())


def test_a_delete_and_a_write_that_did_not_know_of_each_other(nodes):
    a, b, c = nodes
    a.db.set("k", "first")
    b.pull(a)
    c.pull(a)
    b.later(100).set("k", "kept")
    c.later(50).delete("k")
    found = readings(nodes)
    assert (found.value, [conflict.type for conflict in found.conflicts]) == ("kept", [None])

    c.db.set("other", 1)
    a.later(500).delete("k")
    assert readings(nodes) is None


def test_a_later_delete_shows_what_it_did_not_know_of(nodes):
    a, b, c = nodes
    a.db.sadd("k", "x")
    c.pull(a)
    b.pull(a)
    b.db.sadd("k", "unseen")
    c.later(100).delete("k")
    found = readings(nodes)
    assert (found.type, found.value) == (None, None)
    assert [(conflict.type, conflict.value) for conflict in found.conflicts] == [("set", ("unseen",))]
    assert a.db.get("k") is None
    assert a.db.sadd("k", "y") == 1
    assert readings(nodes).value == ("unseen", "y")


def test_types_that_met_are_both_shown(nodes):
    a, b, c = nodes
    a.db.hset("k", "f", 1)
    b.db.incrby("k", 5)
    c.db.set("k", "v")
    found = readings(nodes)
    assert (found.type, found.value) == ("value", "v")
    assert [(conflict.type, conflict.value) for conflict in found.conflicts] == [
        ("counter", 5),
        ("hash", {"f": 1}),
    ]

    c.later(10).set("k", "w")
    assert readings(nodes) == KeyReading("k", "value", "w", None, ())


def test_concurrent_pushes_keep_one_list_and_show_the_other(nodes):
    a, b, c = nodes
    a.db.rpush("k", "base")
    exchange(*nodes)
    b.later(10).rpush("k", "b")
    c.later(20).rpush("k", "c")
    found = readings(nodes)
    assert found.value == ("base", "c")
    assert [(conflict.type, conflict.value) for conflict in found.conflicts] == [("list", ("base", "b"))]

    a.later(50).rpush("k", "d")  # made from what is visible: the other list is still nobody's
    found = readings(nodes)
    assert found.value == ("base", "c", "d")
    assert [conflict.value for conflict in found.conflicts] == [("base", "b")]


def test_expiring_one_of_two_values_leaves_the_other_to_be_seen(nodes):
    a, b, c = nodes
    b.db.set("k", "b")
    c.db.set("k", "c")
    exchange(*nodes)
    a.later(10).expire("k", 1000)
    found = readings(nodes)
    assert (found.value, found.expires_at) == ("c", 2011)
    assert [conflict.value for conflict in found.conflicts] == ["b"]


def test_fields_and_scores_keep_no_loser(nodes):
    """What the later write of a field or a score hides is not kept, and so not shown."""
    for node in nodes:
        node.db.hset("k", "f", node.clock.now_ms())
        node.db.zadd("z", node.clock.now_ms(), "m")
    assert readings(nodes) == KeyReading("k", "hash", {"f": 1003}, None, ())
    assert readings(nodes, "z") == KeyReading("z", "zset", (("m", 1003.0),), None, ())


def test_an_expired_conflict_is_not_shown(nodes):
    a, _, c = nodes
    a.db.set("k", "a", ttl_ms=10)
    c.db.set("k", "c")
    exchange(*nodes)
    assert len(c.db.read("k").conflicts) == 1
    c.later(100)
    assert c.db.read("k").conflicts == ()


def test_a_plain_peer_sees_the_winner_in_the_first_four_slots(nodes):
    for node, value in zip(nodes, "abc", strict=True):
        node.db.set("k", value)
    exchange(*nodes)
    assert entry_to_cell(nodes[0].db.snapshot().get("k"))[:4] == ("c", 0, 1003, None)
