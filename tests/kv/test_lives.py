"""A key that has expired is over: its next life has its own expiry and its own members, whoever has collected what."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import Node, exchange, state
from topics.codec.cell import encode_cell
from topics.kv.bounds import DAY_MS
from topics.kv.entries.store import store_to_cell
from topics.kv.garbage import Collected

WRITES = {
    "hash": (lambda db: db.hset("k", "role", "admin"), lambda db: db.hset("k", "name", "Ada"), {"name": "Ada"}),
    "set": (lambda db: db.sadd("k", "admin"), lambda db: db.sadd("k", "user"), ("user",)),
    "zset": (lambda db: db.zadd("k", 1, "admin"), lambda db: db.zadd("k", 2, "user"), (("user", 2.0),)),
    "counter": (lambda db: db.incrby("k", 100), lambda db: db.incr("k"), 1),
}  # fmt: skip
UNSEEN = {
    "hash": lambda db: db.hset("k", "unseen", 1),
    "set": lambda db: db.sadd("k", "unseen"),
    "zset": lambda db: db.zadd("k", 1, "unseen"),
    "counter": lambda db: db.incrby("k", 7),
}
kinds = pytest.mark.parametrize("kind", WRITES)


def two(kind, ttl_ms=1000):
    """Two connected nodes with one key each of that kind, which expires."""
    a, b = Node(1), Node(2)
    WRITES[kind][0](a.db)
    a.db.expire("k", ttl_ms)
    b.pull(a)
    return a, b


def later(ms, *nodes):
    for node in nodes:
        node.later(ms)


def agree(*nodes):
    """What all of them read once they have exchanged everything."""
    exchange(*nodes)
    assert len({state(node.db) for node in nodes}) == 1
    found = [node.db.read("k") for node in nodes]
    assert all(reading == found[0] for reading in found)
    return found[0]


@pytest.mark.rule("R3.5.3")
@kinds
def test_a_write_after_gc_outlives_the_expiry_that_a_peer_still_has(kind):
    a, b = two(kind)
    later(2 * DAY_MS, a, b)
    a.db.gc()
    WRITES[kind][1](a.db)
    found = agree(a, b)
    assert (found.type, found.value, found.expires_at, found.conflicts) == (kind, WRITES[kind][2], None, ())


@kinds
def test_a_new_life_with_an_expiry_of_its_own_has_no_member_of_the_old_one(kind):
    a, b = two(kind)
    later(2 * DAY_MS, a, b)
    a.db.gc()
    WRITES[kind][1](a.db)
    a.db.expire("k", 5000)
    found = agree(a, b)
    assert (found.type, found.value, found.conflicts) == (kind, WRITES[kind][2], ())
    assert found.expires_at == a.clock.now_ms() + 5000


@kinds
@pytest.mark.parametrize("begun", [False, True])
def test_what_gc_has_made_of_an_expired_key_waits_a_grace_of_its_own(kind, begun):
    """Although it is stamped with an expiry of long ago: whoever hears of it within a grace keeps nothing."""
    a, b = two(kind)
    later(2 * DAY_MS, a, b)
    assert a.db.gc() == Collected(0, 0, 0, expired=1)
    if begun:
        WRITES[kind][1](a.db)
    for hours in (0, 1, 22):
        later(hours * 3_600_000, a)
        assert a.db.gc() == Collected(0, 0, 0)
    if not begun:
        WRITES[kind][1](a.db)
    b.clock.set(a.clock.now_ms())
    assert agree(a, b).value == WRITES[kind][2]


def test_a_delete_made_of_an_expired_key_goes_a_grace_later():
    a, _ = two("hash")
    a.later(1000 + DAY_MS - 1)
    assert a.db.gc() == Collected(0, 0, 0)
    a.later(1)
    assert a.db.gc() == Collected(0, 0, 0, expired=1)
    a.later(DAY_MS)
    assert a.db.gc() == Collected(1, 0, 0)
    assert len(a.db.snapshot()) == 0


def test_a_key_that_a_peer_keeps_alive_is_not_collected_where_its_old_expiry_has_passed():
    """Grace is for this as well: within it a longer expiry is heard of."""
    a, b = two("hash")
    b.later(10).expire("k", 3 * DAY_MS)
    later(DAY_MS, a, b)
    assert a.db.gc() == Collected(0, 0, 0)
    assert agree(a, b).value == {"role": "admin"}


@pytest.mark.rule("R3.5.4")
@kinds
def test_a_write_states_its_expiry_though_it_sees_none(kind):
    """A node that writes on and has not heard of the expiry: what it wrote after it stays."""
    a, b = Node(1), Node(2)
    WRITES[kind][0](a.db)
    b.pull(a)
    a.later(10).expire("k", 1000)
    b.later(5000)
    WRITES[kind][1](b.db)
    a.clock.set(b.clock.now_ms())
    found = agree(a, b)
    assert (found.type, found.expires_at) == (kind, None)


@kinds
def test_a_later_write_keeps_the_expiry_it_sees(kind):
    a, b = two(kind)
    b.later(500)
    WRITES[kind][1](b.db)
    assert agree(a, b).expires_at == 2000


@pytest.mark.rule("R3.5.5")
@kinds
@pytest.mark.parametrize("collected", [False, True])
def test_what_an_expired_delete_hides_is_gone_with_it(kind, collected):
    a, b = two(kind)
    b.later(10)
    UNSEEN[kind](b.db)
    a.later(20).delete("k")
    hidden = agree(a, b)
    assert [conflict.type for conflict in hidden.conflicts] == [kind]
    later(2 * DAY_MS, a, b)
    assert a.db.read("k") is None
    if collected:
        assert a.db.gc() == Collected(0, 0, 0, expired=1)
    WRITES[kind][1](a.db)
    assert agree(a, b).value == WRITES[kind][2]


def test_incr_after_an_expired_delete_gives_the_new_total():
    a, b = two("counter")
    b.later(10).incrby("k", 7)
    a.later(20).delete("k")
    a.pull(b)
    a.later(5000)
    assert a.db.incr("k") == 1
    assert a.db.incrby("k", 0) == 1


@pytest.mark.parametrize("write", [lambda db: db.set("k", "new"), lambda db: db.hset("k", "f", 1),
                                   lambda db: db.rpush("k", 1)])  # fmt: skip
def test_an_old_delete_by_another_replica_is_no_conflict_after_gc(write):
    a, b = Node(1), Node(2)
    a.db.set("k", 1)
    b.pull(a)
    b.later(10).delete("k")
    a.pull(b)
    later(2 * DAY_MS, a, b)
    assert a.db.gc().keys == 1
    write(a.db)
    assert agree(a, b).conflicts == ()


@pytest.mark.parametrize("end", [lambda db: db.set("k", "old"), lambda db: db.delete("k")])
def test_what_a_write_has_seen_stays_seen_after_gc(end):
    a, b = Node(1), Node(2)
    a.db.set("k", 1)
    b.pull(a)
    end(b.later(10))
    a.pull(b)
    later(2 * DAY_MS, a, b)
    a.db.set("k", "new")
    a.db.gc()
    assert agree(a, b).conflicts == ()
    later(DAY_MS, a)
    a.db.gc()
    assert len(encode_cell(store_to_cell(a.db.snapshot()))) < len(state(b.db))  # in the end it goes


def test_a_delete_of_a_value_that_was_overwritten_meanwhile_stays_a_conflict_after_gc():
    a, b = Node(1), Node(2)
    a.db.set("k", 1)
    b.pull(a)
    b.later(10).delete("k")
    a.later(20).set("k", "kept")
    assert [conflict.type for conflict in agree(a, b).conflicts] == [None]
    later(2 * DAY_MS, a, b)
    a.db.gc()
    assert [conflict.type for conflict in agree(a, b).conflicts] == [None]
