"""An immutable map from a 32-byte digest to an item, in which versions share what they have in common.

A tree is nothing, a leaf, or a branch of sixteen trees chosen by the next four bits of the digest. Changing one item
copies the branches above it. Two trees are united, compared or sifted by walking both; what is the very same object in
both is not walked, so the work is linear in what differs. The shape depends on the digests alone, not on the order of
edits: a branch always holds two leaves or more.

Digests are BLAKE3, so two names never meet, and the depth is that of the longest prefix two digests share. Functions
here recurse, at most `DEPTH_MAX` deep whatever a peer sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

FAN: Final = 16
DIGEST_SIZE: Final = 32
DEPTH_MAX: Final = DIGEST_SIZE * 2


class Leaf(Generic[T]):
    """One item under its digest."""

    __slots__ = ("digest", "item")

    def __init__(self, digest: bytes, item: T) -> None:
        assert len(digest) == DIGEST_SIZE
        self.digest = digest
        self.item = item


class Branch(Generic[T]):
    """Sixteen trees; `count` leaves below."""

    __slots__ = ("children", "count")

    def __init__(self, children: tuple[Tree[T], ...], count: int) -> None:
        assert len(children) == FAN
        self.children = children
        self.count = count


Tree: TypeAlias = "Leaf[T] | Branch[T] | None"


def count(tree: Tree[T]) -> int:
    """How many items there are."""
    if tree is None:
        return 0
    return tree.count if isinstance(tree, Branch) else 1


def find(tree: Tree[T], digest: bytes) -> T | None:
    """The item under the digest."""
    assert len(digest) == DIGEST_SIZE
    depth = 0
    while tree is not None:
        if isinstance(tree, Leaf):
            return tree.item if tree.digest == digest else None
        tree = tree.children[_nibble(digest, depth)]
        depth += 1
    return None


def leaves(tree: Tree[T]) -> Iterator[Leaf[T]]:
    """Every leaf, ascending by digest."""
    waiting: list[Tree[T]] = [tree]
    while waiting:
        top = waiting.pop()
        if isinstance(top, Leaf):
            yield top
        elif top is not None:
            waiting.extend(reversed(top.children))


def items(tree: Tree[T]) -> Iterator[T]:
    """Every item, ascending by digest."""
    return (leaf.item for leaf in leaves(tree))


def unite(own: Tree[T], other: Tree[T], join: Callable[[T, T], T]) -> Tree[T]:
    """The items of both, `join` deciding where both have one. The very `own` if nothing is new, or the very `other`."""
    both = _unite(own, other, join, 0)
    assert count(both) >= max(count(own), count(other))
    assert count(both) <= count(own) + count(other)
    return both


def grow(given: Iterable[Leaf[T]]) -> Tree[T]:
    """The tree of these leaves, no two of one digest: the same as putting them in one by one, in one pass."""
    return _grow(list(given), 0)


def put(tree: Tree[T], leaf: Leaf[T]) -> Tree[T]:
    """The tree with this leaf in the place of any other under its digest."""
    changed = _unite(tree, leaf, _take_other, 0)
    assert count(changed) - count(tree) in (0, 1)
    return changed


def without(tree: Tree[T], digest: bytes) -> Tree[T]:
    """The tree less what is under the digest."""
    left = _without(tree, digest, 0)
    assert count(tree) - count(left) in (0, 1)
    return left


def sift(tree: Tree[T], beside: Tree[T], pick: Callable[[T, T | None], T | None]) -> Tree[T]:
    """What `pick(item, item beside it or None)` makes of each item; None takes it out.

    An item that is the very same object on both sides stays unasked.
    """
    left = _sift(tree, beside, pick, 0)
    assert count(left) <= count(tree)
    return left


def changes(old: Tree[T], new: Tree[T]) -> Iterator[tuple[T | None, Leaf[T]]]:
    """(old item or None, new leaf) wherever the new tree holds another object, ascending by digest."""
    waiting: list[tuple[Tree[T], Tree[T], int]] = [(old, new, 0)]
    while waiting:
        before, after, depth = waiting.pop()
        if after is None or after is before:
            continue
        if isinstance(after, Leaf):
            was = _find_below(before, after.digest, depth)
            if was is not after.item:
                yield was, after
            continue
        waiting.extend(
            (_child(before, i, depth), after.children[i], depth + 1) for i in range(FAN - 1, -1, -1)
        )


def _grow(given: list[Leaf[T]], depth: int) -> Tree[T]:
    if len(given) < 2:
        return given[0] if given else None
    assert depth < DEPTH_MAX, "two leaves of one digest"
    groups: list[list[Leaf[T]]] = [[] for _ in range(FAN)]
    for leaf in given:
        groups[_nibble(leaf.digest, depth)].append(leaf)
    return Branch(tuple([_grow(group, depth + 1) for group in groups]), len(given))


def _unite(own: Tree[T], other: Tree[T], join: Callable[[T, T], T], depth: int) -> Tree[T]:
    assert depth <= DEPTH_MAX
    if own is other or other is None:
        return own
    if own is None:
        return other
    if isinstance(own, Leaf):
        if isinstance(other, Leaf):
            return _unite_leaves(own, other, join, depth)
        return _replaced(other, own.digest, depth, lambda child: _unite(own, child, join, depth + 1))
    if isinstance(other, Leaf):
        return _replaced(own, other.digest, depth, lambda child: _unite(child, other, join, depth + 1))
    children = list(own.children)
    like_own = like_other = True
    for i, (left, right) in enumerate(zip(own.children, other.children, strict=True)):
        if left is right:
            continue
        child = children[i] = _unite(left, right, join, depth + 1)
        like_own = like_own and child is left
        like_other = like_other and child is right
    if like_own:
        return own
    return other if like_other else Branch(tuple(children), sum(map(count, children)))


def _unite_leaves(own: Leaf[T], other: Leaf[T], join: Callable[[T, T], T], depth: int) -> Tree[T]:
    if own.digest == other.digest:
        item = join(own.item, other.item)
        if item is own.item:
            return own
        return other if item is other.item else Leaf(own.digest, item)
    left, right = _nibble(own.digest, depth), _nibble(other.digest, depth)
    assert depth < DEPTH_MAX, "two digests that are one"
    children: list[Tree[T]] = [None] * FAN
    if left == right:
        children[left] = _unite_leaves(own, other, join, depth + 1)
    else:
        children[left], children[right] = own, other
    return Branch(tuple(children), 2)


def _replaced(
    branch: Branch[T], digest: bytes, depth: int, change: Callable[[Tree[T]], Tree[T]]
) -> Branch[T]:
    i = _nibble(digest, depth)
    before = branch.children[i]
    after = change(before)
    if after is before:
        return branch
    children = (*branch.children[:i], after, *branch.children[i + 1 :])
    return Branch(children, branch.count - count(before) + count(after))


def _without(tree: Tree[T], digest: bytes, depth: int) -> Tree[T]:
    if not isinstance(tree, Branch):
        return None if tree is not None and tree.digest == digest else tree
    left = _replaced(tree, digest, depth, lambda child: _without(child, digest, depth + 1))
    assert left.count >= 1  # a branch held two
    return left if left.count > 1 else next(iter(leaves(left)), None)


def _sift(tree: Tree[T], beside: Tree[T], pick: Callable[[T, T | None], T | None], depth: int) -> Tree[T]:
    assert depth <= DEPTH_MAX
    if tree is None or tree is beside:
        return tree
    if isinstance(tree, Leaf):
        other = _find_below(beside, tree.digest, depth)
        if other is tree.item:
            return tree
        item = pick(tree.item, other)
        if item is None:
            return None
        return tree if item is tree.item else Leaf(tree.digest, item)
    children = tuple(
        _sift(child, _child(beside, i, depth), pick, depth + 1) for i, child in enumerate(tree.children)
    )
    if all(after is before for after, before in zip(children, tree.children, strict=True)):
        return tree
    left = sum(map(count, children))
    if left > 1:
        return Branch(children, left)
    return next((child for child in children if child is not None), None)


def _child(tree: Tree[T], i: int, depth: int) -> Tree[T]:
    """What of the tree lies under the digests whose next four bits are `i`."""
    assert 0 <= i < FAN
    if isinstance(tree, Branch):
        return tree.children[i]
    return tree if tree is not None and _nibble(tree.digest, depth) == i else None


def _find_below(tree: Tree[T], digest: bytes, depth: int) -> T | None:
    while isinstance(tree, Branch):
        tree = tree.children[_nibble(digest, depth)]
        depth += 1
    return tree.item if tree is not None and tree.digest == digest else None


def _nibble(digest: bytes, depth: int) -> int:
    byte = digest[depth >> 1]
    return byte & 15 if depth & 1 else byte >> 4


def _take_other(_own: T, other: T) -> T:
    return other
