"""The tree is a map, its shape follows from its digests alone, and what is the same in two is not walked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.kv.entries.tree import (
    FAN,
    Branch,
    Leaf,
    changes,
    count,
    find,
    grow,
    items,
    leaves,
    put,
    sift,
    unite,
    without,
)

# Digests that meet in long prefixes, which BLAKE3 does not give.
digests = st.tuples(st.sampled_from([0, 1, 16, 255]), st.integers(0, 3)).map(
    lambda pair: bytes([7] * 3 + [pair[0], pair[1]] + [0] * 27)
)
few = settings(max_examples=50)
contents = st.dictionaries(digests, st.integers(0, 5), max_size=12)


def tree_of(pairs):
    tree = None
    for digest, item in pairs:
        tree = put(tree, Leaf(digest, item))
    return tree


def shape(tree):
    if tree is None or isinstance(tree, Leaf):
        return tree and (tree.digest, tree.item)
    assert tree.count == sum(map(count, tree.children)) > 1
    assert len(tree.children) == FAN
    return [shape(child) for child in tree.children]


@few
@given(contents, st.randoms(use_true_random=False))
def test_any_order_of_edits_gives_one_shape(pairs, rng):
    shuffled = list(pairs.items())
    rng.shuffle(shuffled)
    tree = tree_of(shuffled)
    assert shape(tree) == shape(tree_of(pairs.items()))
    assert shape(tree) == shape(grow(Leaf(*pair) for pair in shuffled))
    assert [leaf.digest for leaf in leaves(tree)] == sorted(pairs)
    assert (count(tree), list(items(tree))) == (len(pairs), [pairs[digest] for digest in sorted(pairs)])
    for digest in [*pairs, bytes(32)]:
        assert find(tree, digest) == pairs.get(digest)


@few
@given(contents, digests)
def test_taking_one_out_leaves_the_shape_of_the_rest(pairs, digest):
    tree = tree_of(pairs.items())
    left = without(tree, digest)
    assert shape(left) == shape(tree_of((key, item) for key, item in pairs.items() if key != digest))
    assert (left is tree) == (digest not in pairs)


@few
@given(contents, contents)
def test_a_union_asks_only_where_both_have_something_else(mine, theirs):
    asked = []

    def join(own, other):
        asked.append((own, other))
        return max(own, other)

    own, other = tree_of(mine.items()), tree_of(theirs.items())
    both = unite(own, other, join)
    expected = {key: max(mine.get(key, -1), theirs.get(key, -1)) for key in {*mine, *theirs}}
    assert shape(both) == shape(tree_of(expected.items()))
    assert len(asked) == len(mine.keys() & theirs.keys())
    if expected == mine:
        assert both is own or both is other
    asked.clear()
    assert unite(both, both, join) is both
    assert unite(both, own, join) is both
    assert unite(both, None, join) is unite(None, both, join) is both


@few
@given(contents, contents)
def test_changes_are_what_the_new_tree_has_and_the_old_has_not(before, changed):
    old = tree_of(before.items())
    new = unite(old, tree_of(changed.items()), lambda own, other: own if own == other else other)
    found = [(was, leaf.digest, leaf.item) for was, leaf in changes(old, new)]
    assert found == [
        (before.get(key), key, changed[key]) for key in sorted(changed) if before.get(key) != changed[key]
    ]
    assert list(changes(new, new)) == []


@few
@given(contents, contents)
def test_a_sift_sees_what_lies_beside(mine, theirs):
    def pick(item, beside):
        return None if item == beside else item + 10 if item == 5 else item

    own, other = tree_of(mine.items()), tree_of(theirs.items())
    left = sift(own, other, pick)
    picked = {key: pick(item, theirs.get(key)) for key, item in mine.items()}
    shared = {key for key in mine if find(own, key) is find(other, key)}  # small ints: the very same object
    expected = {key: mine[key] if key in shared else picked[key] for key in mine}
    assert shape(left) == shape(tree_of((key, item) for key, item in expected.items() if item is not None))
    assert sift(own, None, lambda item, _: item) is own


def test_one_edit_copies_the_branches_above_it_only():
    tree = None
    for i in range(256):
        tree = put(tree, Leaf(bytes([i]) * 32, i))
    edited = put(tree, Leaf(bytes([0x57]) * 32, -1))
    assert isinstance(tree, Branch)
    same = [a is b for a, b in zip(tree.children, edited.children, strict=True)]
    assert same.count(False) == 1
    assert not same[5]
    assert len(list(changes(tree, edited))) == 1


@pytest.mark.rule("R13.1")
def test_a_digest_has_32_bytes():
    with pytest.raises(AssertionError):
        Leaf(b"short", 1)
