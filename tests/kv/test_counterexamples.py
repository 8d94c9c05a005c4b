"""The counterexamples of the page (8.3 to 8.6, 8.9, 8.10): the literal rule fails, the repair does not."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.kv_nodes import LIMITS, Node, exchange, state
from topics.codec.cell import digest_of, encode_cell
from topics.kv.database import Database
from topics.kv.entries.merge import join, merge_cad
from topics.kv.entries.wire import entry_from_cell, entry_to_cell

X, Y = digest_of("x"), digest_of("y")


def normal(plain):
    entry = entry_from_cell(plain, LIMITS)
    assert entry is not None
    return entry


def cad(a, b):
    return merge_cad(a, b, lambda cell: entry_from_cell(cell, LIMITS) is not None)


def joined(*plains):
    """The bytes of the join, which are the same in every order and grouping."""
    found = set()
    for order in permutations(map(normal, plains)):
        left = order[0]
        for entry in order[1:]:
            left = join(left, entry)
        right = order[-1]
        for entry in reversed(order[:-1]):
            right = join(entry, right)
        found |= {encode_cell(entry_to_cell(left)), encode_cell(entry_to_cell(right))}
    assert len(found) == 1
    entry = normal(plains[0])
    for plain in plains[1:]:
        entry = join(entry, normal(plain))
    return entry_to_cell(entry)


@pytest.mark.rule("R8.3", "R7.3", "R3.2.1")
@pytest.mark.parametrize(
    ("a", "b", "winner"),
    [
        (("p", 0, 5, None), ("q", 0, 5, None), "q"),
        ((None, None, 5, None), ("q", 0, 5, None), None),
        (("p", 0, 5, 9), ("p", 0, 5, None), "p"),
    ],
)
def test_a_tie_of_values_is_decided_by_the_values(a, b, winner):
    assert (cad(a, b), cad(b, a)) == (a, b)  # each keeps its own for ever

    assert joined(a, b)[0] == winner
    assert joined(a, b)[3] is None  # of one value the expiry that never comes


@pytest.mark.rule("R8.4", "R7.3", "R3.4.1", "R3.4.2")
@pytest.mark.parametrize(
    ("a", "b", "c", "grouped"),
    [
        (({X: ("x", 1, 0)}, 2, 4, None), ({X: ("x", 1, 2)}, 2, 1, None), ("q", 0, 3, None), ((1, 2), (1, 0))),
        (({X: ("x", 1, 0)}, 2, 4, None), ({X: ("x", 1, 2)}, 2, 1, None), (None, None, 3, None), ((1, 2), (1, 0))),
    ],
)  # fmt: skip
def test_a_structure_that_a_value_has_hidden_still_counts(a, b, c, grouped):
    left, right = cad(cad(a, b), c), cad(a, cad(b, c))
    assert (left[0][X][1:], right[0][X][1:]) == grouped  # removed, or there, by who met whom first

    assert joined(a, b, c)[0][X] == ("x", 1, 2)


@pytest.mark.rule("R8.4")
def test_a_set_before_a_delete_and_one_after_it():
    a, b, c = ({X: ("x", 1, 0)}, 2, 1, None), (None, None, 2, None), ({Y: ("y", 3, 0)}, 2, 3, None)
    assert cad(cad(a, b), c)[0].keys() == {Y}
    assert cad(a, cad(b, c))[0].keys() == {X, Y}

    assert set(joined(a, b, c)[0]) == {X, Y}


@pytest.mark.rule("R8.5", "R3.4.3", "R3.2.4", "R3.2.2")
def test_ties_of_a_score_and_of_a_field_go_to_the_larger():
    one, two = ({X: ("x", 1.0, 7, 0)}, 3, 7, None), ({X: ("x", 2.0, 7, 0)}, 3, 7, None)
    assert cad(one, two)[0] != cad(two, one)[0]
    assert joined(one, two)[0] == {X: ("x", 2.0, 7, 0)}

    p, q, gone = (({"f": (value, 7)}, 1, 7, None) for value in ("p", "q", None))
    assert cad(p, q)[0] != cad(q, p)[0]
    assert joined(p, q)[0] == {"f": ("q", 7)}
    assert joined(p, q, gone)[0] == {"f": (None, 7)}


@pytest.mark.rule("R8.6", "R3.4.7", "R3.2.6")
def test_an_expiry_that_bumps_no_stamp_drifts():
    old, expiring = ("v", 0, 10, None), ("v", 0, 10, 99)
    assert (cad(old, expiring), cad(expiring, old)) == (old, expiring)  # each keeps its own for ever

    a, b = Node(1), Node(2)
    a.db.set("k", "v")
    a.db.sadd("s", "x")
    b.pull(a)
    stamps = [entry_to_cell(b.db.snapshot().get(key))[2] for key in "ks"]
    assert (b.db.expire("k", 99), b.db.expire("s", 99)) == (1, 1)
    value = entry_to_cell(b.db.snapshot().get("k"))
    assert value[2] > stamps[0]
    assert b.db.snapshot().get("s").expiry.etime > stamps[1]
    exchange(a, b)
    assert state(a.db) == state(b.db)
    assert (a.db.ttl("k"), a.db.ttl("s")) == (99, 99)


@pytest.mark.rule("R8.9", "R7.19")
def test_nodes_that_share_a_replica_id_lose_increments():
    for ids, total in ((("default", "default"), 1), ((None, None), 2)):
        nodes = [Node(1), Node(2)]
        for node, replica in zip(nodes, ids, strict=True):
            node.db = Database.of(node.home, "shared", replica=replica)
            node.db.incr("c")
        exchange(*nodes)
        assert [node.db.incrby("c", 0) for node in nodes] == [total, total]


@pytest.mark.rule("R8.10", "R7.6", "R3.5.2")
def test_a_floor_keeps_what_was_collected_away():
    """8.10: gc at once and a stale replica resurrect; with a floor known to be stable nothing comes back."""
    for stable, found in ((False, "old"), (True, None)):
        a, b = Node(1), Node(2)
        a.db.set("k", "old")
        a.db.sadd("s", "x", "y")
        exchange(a, b)
        a.later(10).delete("k")
        a.db.srem("s", "x")
        a.later(10)
        a.db.gc(grace_ms=0, stable_ms=a.clock.now_ms() if stable else 0)
        assert len(a.db.snapshot()) == 1
        b.later(100).set("new", 1)
        a.pull(b)
        assert a.db.get("k") == found
        assert a.db.get("new") == 1
        assert a.db.sismember("s", "x") != stable
        exchange(a, b)
        assert state(a.db) == state(b.db)
