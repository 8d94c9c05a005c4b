"""Entries as cells: what comes back, what plain peers see, and that garbage is nothing (P7)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.kv_nodes import LIMITS, Node, exchange, state
from topics.codec.cell import decode_cell, digest_of, encode_cell
from topics.kv.entries.entry import ZERO
from topics.kv.entries.merge import PLAIN_ZERO, join, merge_cad
from topics.kv.entries.store import (
    FLOOR_KEY,
    KeyedEntry,
    KvStore,
    StoreLattice,
    join_stores,
    store_from_cell,
    store_to_cell,
)
from topics.kv.entries.tree import Leaf
from topics.kv.entries.wire import entry_from_cell, entry_to_cell, name_digest
from topics.lattice.values.laws import check_garbage

X, Y = digest_of("x"), digest_of("y")
stamps = st.integers(1, 6)
cells = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=5).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


def elements(*parts):
    return st.fixed_dictionaries({}, optional={name: st.tuples(*columns) for name, columns in parts})


values = {
    0: st.sampled_from(["p", "q", None, 1, 1.0, True]),
    1: elements(("f", (st.sampled_from([None, 1, 2]), stamps)), ("g", (st.sampled_from([None, 1]), stamps))),
    2: elements((X, (st.just("x"), stamps, stamps)), (Y, (st.just("y"), stamps, stamps))),
    3: elements((X, (st.just("x"), st.floats(0, 3), stamps, stamps))),
    4: st.lists(st.integers(0, 2), max_size=2).map(tuple),
    5: elements(("r", (stamps, stamps)), ("q", (stamps, stamps))),
}
plains = st.sampled_from([None, 0, 1, 2, 3, 4, 5]).flatmap(
    lambda tag: st.tuples(
        st.none() if tag is None else values[tag],
        st.just(tag),
        stamps,
        st.none() if tag is None else st.none() | st.integers(1, 9),
    )
)


def normal(plain):
    return entry_from_cell(plain, LIMITS)


@pytest.mark.rule("R3.4.2", "R9.19", "R3.2.2", "R3.2.3", "R3.2.5", "R1.1.3")
@given(plains, plains)
def test_where_no_stamps_tie_the_visible_entry_is_that_of_the_literal_rule(a, b):
    """P19: value, type and utime; the expiry of structures is another rule (7.18)."""
    if a[2] == b[2]:
        return
    expected = merge_cad(a, b, lambda _: True)
    found = entry_to_cell(join(normal(a), normal(b)))
    if tied(a, b):
        return
    assert encode_cell(found[:3]) == encode_cell(expected[:3])
    if expected[1] in (0, 4, None):
        assert found[3] == expected[3]  # the winner's expiry travels with it


def tied(a, b):
    """Whether two fields or scores were written at one stamp."""
    if a[1] != b[1] or a[1] not in (1, 3):
        return False
    at = 1 if a[1] == 1 else 2
    return any(a[0][name][at] == b[0][name][at] for name in a[0].keys() & b[0].keys())


@pytest.mark.rule("R3.4.1", "R1.1.1", "R7.3")
@given(plains, plains, plains)
def test_plain_entries_join_in_any_order_and_grouping(a, b, c):
    a, b, c = map(normal, (a, b, c))
    results = {
        encode_cell(entry_to_cell(found))
        for found in (
            join(join(a, b), c), join(a, join(b, c)), join(join(c, a), b), join(join(b, a), join(b, c)),
        )
    }  # fmt: skip
    assert len(results) == 1
    assert join(a, a) is a
    assert encode_cell(entry_to_cell(join(a, ZERO))) == encode_cell(entry_to_cell(a))


@pytest.mark.rule("R3.4.6")
@given(plains, plains, plains)
def test_an_entry_comes_back_from_its_cell(a, b, c):
    entry = join(join(normal(a), normal(b)), normal(c))
    cell = entry_to_cell(entry)
    again = entry_from_cell(decode_cell(encode_cell(cell)), LIMITS)
    assert encode_cell(entry_to_cell(again)) == encode_cell(cell)
    assert again.newest == entry.newest
    assert len(cell) in (4, 5)


@pytest.mark.rule("R3.4.6")
def test_the_fifth_slot_holds_what_the_first_four_do_not_say():
    node = Node()
    node.db.sadd("k", "x")
    node.db.set("k", "v")
    value, tag, utime, expire, hidden = entry_to_cell(node.db.snapshot().get("k"))
    assert (value, tag, utime, expire) == ("v", 0, 1001, None)
    assert hidden == {
        "set": (1000, {X: ("x", 1000, 1001)}),
        "exp": (1000, None),
        "seen": {node.db.replica: (1001, True)},
        "absent": 1000,
    }
    assert entry_to_cell(normal(("v", 0, 5, None))) == ("v", 0, 5, None)
    extended = entry_from_cell(("v", 0, 5, None, "someone else's extension", 7), LIMITS)
    assert entry_to_cell(extended) == ("v", 0, 5, None)


def test_a_plain_peer_that_drops_the_fifth_slot_loses_only_what_is_hidden():
    node, plain = Node(1), Node(2)
    node.db.hset("h", "f", 1)
    node.db.incrby("c", 5)
    node.db.set("v", 1, ttl_ms=100)
    cell = {key: part[:4] for key, part in store_to_cell(node.db.snapshot()).items()}
    store = store_from_cell(cell, LIMITS)
    plain.db._cursor.merge(store)
    assert (plain.db.hget("h", "f"), plain.db.incrby("c", 0), plain.db.ttl("v")) == (1, 5, 100)
    exchange(node, plain)
    assert state(node.db) == state(plain.db)


GARBAGE = [
    None, True, 0, "text", b"bytes", (), (1,), (None, None, 1), ("v", 0, None, None), ("v", 0, -1, None),
    ("v", 0, True, None), ("v", 6, 1, None), ("v", -1, 1, None), ("v", "0", 1, None), ("v", 0, 1, -1),
    ("v", 0, 1, 1.5), ("v", None, 1, None), (None, 1, 1, None), ({"f": 1}, 1, 1, None), ({"f": (1,)}, 1, 1, None),
    ({"f": (1, -1)}, 1, 1, None), ({1: (1, 1)}, 1, 1, None), ({"": (1, 1)}, 1, 1, None),
    ({"x": ("x", 1, 0)}, 2, 1, None),
    ({Y: ("x", 1, 0)}, 2, 1, None), ({X: ("x", 1)}, 2, 1, None), ({X: ("x", True, 1, 0)}, 3, 1, None),
    ({X: ("x", "1", 1, 0)}, 3, 1, None), ("text", 4, 1, None), ({"r": (1, -1)}, 5, 1, None), ({"r": (1,)}, 5, 1, None),
    ({"reset:r": (0, 1)}, 5, 1, None), ({"r": (1, 0), "reset:r": (0, 2)}, 5, 1, None),
    ({"r" * 200: (1, 0)}, 5, 1, None), ({"r" * 129: (1, 0)}, 5, 1, None),
    ({"r": (0, 5), "reset:r": (5, 0), "reset:reset:r": (0, 5)}, 5, 1, None),
    ("v", 0, 2**70, None), (object(), 0, 1, None), (["list"], 0, 1, None), (float("nan"), 0, 1, None),
    ("v", 0, 1, None, {"lww": 1}), ("v", 0, 1, None, {"set": (1,)}), ("v", 0, 1, None, {"exp": (1,)}),
    ("v", 0, 1, None, {"seen": 1}), ("v", 0, 1, None, {"seen": {"r": (9, True)}}),
    ("v", 0, 1, None, {"seen": {"": (1, None)}}),
    ("v", 0, 1, None, {"seen": {"r": (1, ("v", 9, None))}}), ({}, 2, 5, None, {"set": (1, {})}),
    ("v", 0, 0, None), ({}, 1, 0, None), ((), 4, 0, None), (None, None, 1, None, {"set": (0, {})}),
    (None, None, 1, None, {"lww": ("v", 0, 0, None)}), (None, None, 1, None, {"exp": (0, 5)}),
    ("v", 0, 1, None, {"absent": 0}), ({}, 1, 1, None, -1), ("v", 0, 1, None, {"seen": {"r": (1, -1)}}),
    ("v", 0, 1, None, {"seen": {"r": (0, None)}}), ("x" * (2**20 + 1), 0, 1, None),
]  # fmt: skip


@pytest.mark.rule("R9.7", "R3.2.1", "R1.1.2")
@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_garbage_is_no_entry(number):
    """P7."""
    garbage = GARBAGE[number]
    assert entry_from_cell(garbage, LIMITS) is None
    if garbage is not None:
        assert merge_cad(None, garbage, lambda cell: entry_from_cell(cell, LIMITS) is not None) == PLAIN_ZERO
    store = store_from_cell({"k": garbage, "good": ("v", 0, 1, None)}, LIMITS)
    assert [store.get(key) is ZERO for key in ("k", "good")] == [True, False]


any_stamps = st.sampled_from([0, 1, 2, 3, 9])
expires = st.sampled_from([None, 0, 3, 2000])
plain_events = st.tuples(st.sampled_from(["p", None]), st.sampled_from([None, 0]), any_stamps, expires)
columns = st.dictionaries(
    st.sampled_from(["r", "reset:r", "reset:", "reset:reset:r", "r" * 128, "r" * 129, "reset:" + "r" * 128]),
    st.tuples(st.sampled_from([0, 1, 2**63 - 1]), st.sampled_from([0, 1, 5])),
    max_size=3,
)
structures = {
    "hash": st.dictionaries(
        st.sampled_from("fg"), st.tuples(st.sampled_from([None, 1]), any_stamps), max_size=2
    ),
    "set": st.dictionaries(st.just(X), st.tuples(st.just("x"), any_stamps, any_stamps), max_size=1),
    "zset": st.dictionaries(
        st.just(X), st.tuples(st.just("x"), st.floats(-1, 1), any_stamps, any_stamps), max_size=1
    ),
    "counter": columns,
}
hidden = st.fixed_dictionaries({}, optional={
    **{name: st.tuples(any_stamps, structure) for name, structure in structures.items()},
    "lww": plain_events,
    "exp": st.tuples(any_stamps, expires),
    "seen": st.dictionaries(
        st.sampled_from(["r", "q"]),
        st.tuples(any_stamps, st.sampled_from([None, True, 0, 3, 2000, ("p", 0, None), (None, None, None)])),
        max_size=2,
    ),
    "absent": any_stamps,
})  # fmt: skip
visibles = plain_events | st.sampled_from(list(zip((1, 2, 3, 5), structures.values(), strict=True))).flatmap(
    lambda kind: st.tuples(kind[1], st.just(kind[0]), any_stamps, expires)
)
strangers = st.tuples(visibles, hidden | st.sampled_from([0, 2, 9, True])).map(
    lambda parts: (*parts[0], parts[1])
)


@pytest.mark.rule("R9.7", "R9.1", "R9.2")
@given(strangers, strangers, strangers)
@example(({"r" * 129: (1, 0)}, 5, 1, None), None, None)
@example(({"r": (0, 5), "reset:r": (5, 0), "reset:reset:r": (0, 5)}, 5, 1, None), None, None)
def test_what_is_taken_from_a_stranger_can_be_written_and_read_again(a, b, c):
    """Also joined, deleted and written again here: or a peer could make this node's own journal unreadable."""
    found = [entry for entry in map(normal, (a, b, c)) if entry is not None]
    joined = ZERO
    for entry in found:
        joined = join(joined, entry)
    node = Node(now_ms=5)
    node.home.cursor("shared").merge(KvStore(Leaf(name_digest("k"), KeyedEntry("k", joined))))
    entries = [*found, joined]
    for write in (lambda: node.db.delete("k"), lambda: node.db.incr("k"), lambda: node.db.delete("k")):
        write() if node.db.type("k") in (None, "counter") else node.db.delete("k")
        entries.append(node.db.snapshot().get("k"))
    for entry in entries:
        again = normal(entry_to_cell(entry))
        assert again is not None
        assert encode_cell(entry_to_cell(again)) == encode_cell(entry_to_cell(entry))
    assert node.db.incrby("k", 0) == 0
    backwards = ZERO
    for entry in reversed(found):
        backwards = join(entry, backwards)
    assert encode_cell(entry_to_cell(backwards)) == encode_cell(entry_to_cell(joined))


@pytest.mark.rule("R9.7")
@given(cells)
@example(None)
@example({1: ("v", 0, 1, None), "k" * 2000: ("v", 0, 1, None), "": ("v", 0, 5, None)})
def test_whatever_is_not_a_store_changes_nothing(garbage):
    node = Node()
    node.db.set("k", 1)
    check_garbage(StoreLattice(LIMITS), node.db.snapshot(), garbage)
    entry_from_cell(garbage, LIMITS)
    before = state(node.db)
    assert len(node.db.merge_replicas(garbage).accepted) == 0
    assert before == state(node.db)
    store = store_from_cell(garbage, LIMITS)
    assert store is None or isinstance(store, KvStore)


@pytest.mark.rule("R1.1.2")
def test_nil_is_the_identity_of_the_literal_rule():
    good = ("v", 0, 5, None)
    assert merge_cad(good, None, lambda _: False) is good
    assert merge_cad(None, None, lambda _: True) is None
    assert merge_cad(None, good, lambda _: True) is good
    same = ("v", 0, 5, None)
    assert merge_cad(good, same, lambda _: True) is good


@pytest.mark.rule("R1.1.3", "R3.2.1", "R3.2.4")
def test_the_literal_rule_merges_stores_key_by_key():
    a, b = (store_from_cell({"k": plain, "z": other}, LIMITS) for plain, other in (
        (("a", 0, 5, None), ({X: ("x", 1.0, 3, 0)}, 3, 3, 50)),
        (("b", 0, 5, None), ({X: ("x", 2.0, 4, 9)}, 3, 4, None)),
    ))  # fmt: skip
    lattice = StoreLattice(LIMITS)
    assert lattice.merge_cad(a, b).get("k").lww.value == "a"
    assert lattice.merge_cad(b, a).get("k").lww.value == "b"
    assert store_to_cell(lattice.merge_cad(a, b))["z"] == ({X: ("x", 2.0, 4, 9)}, 3, 4, None)


@pytest.mark.rule("R3.5.2")
def test_the_floor_travels_as_an_entry_that_plain_peers_keep_the_newest_of():
    store = KvStore(None, 77)
    cell = store_to_cell(store)
    assert cell == {FLOOR_KEY: (None, 0, 77, None)}
    assert store_from_cell(cell, LIMITS).floor == 77
    older, newer = cell[FLOOR_KEY], (None, 0, 80, None)
    assert merge_cad(older, newer, lambda _: True) == merge_cad(newer, older, lambda _: True) == newer
    assert join_stores(store, KvStore(None, 80)).floor == 80
