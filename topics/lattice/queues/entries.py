"""The records of one queue by absolute offset, immutable and shared between copies.

A radix tree of width 64 over the offsets themselves. Position depends on the offset alone, so a truncated copy and a
whole one put the same record into the same place, and copies that came from one another share every node that neither
has changed. Appending copies one path, truncation one path; neither touches the rest, and a reader of an older value
keeps what it had.

Comparing goes down only where two nodes are two objects, so it costs what has changed since the copies parted. Copies
that never shared anything (one came over the wire) are compared by hashes of full nodes, each computed once.

Truncated positions hold None. The tree is as tall as the highest offset asks; at 2^63 that is eleven levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from topics.crypto.hashing import blake3
from topics.lattice.queues.record import QueueRecord

WIDTH_BITS: Final = 6
WIDTH: Final = 1 << WIDTH_BITS
_MASK: Final = WIDTH - 1

Child: TypeAlias = "TreeNode | QueueRecord | None"


class TreeNode:
    """Up to 64 children, filled from the left and emptied from the left: records in a leaf, else nodes."""

    __slots__ = ("_digest", "children", "is_full")

    def __init__(self, children: tuple[Child, ...]) -> None:
        assert 0 < len(children) <= WIDTH
        assert children[-1] is not None
        self.children: Final = children
        self.is_full: Final = len(children) == WIDTH and _is_whole(children[0]) and _is_whole(children[-1])
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """One hash for all the records below. Only full nodes are hashed: they are the ones that stay as they are."""
        assert self.is_full
        if self._digest is None:
            self._digest = _hash_below(self)
        return self._digest

    def is_hashed(self) -> bool:
        return self._digest is not None

    def keep(self, digest: bytes) -> None:
        assert self._digest is None
        self._digest = digest


def _is_whole(child: Child) -> bool:
    return isinstance(child, QueueRecord) or (child is not None and child.is_full)


def _hash_below(top: TreeNode) -> bytes:
    """Hash the unhashed nodes below, deepest first, without recursion."""
    stack = [top]
    while True:
        waiting = [c for c in stack[-1].children if isinstance(c, TreeNode) and not c.is_hashed()]
        if waiting:
            stack += waiting
            continue
        node = stack.pop()
        digest = blake3(b"".join([c.digest for c in node.children if c is not None]))
        if not stack:
            return digest
        node.keep(digest)


class Entries:
    """Records at offsets [start, stop), without holes."""

    __slots__ = ("_levels", "_root", "start", "stop")

    def __init__(self, *, start: int, stop: int, root: TreeNode | None, levels: int) -> None:
        assert 0 <= start <= stop
        assert (root is None) == (start == stop)
        assert root is None or stop <= 1 << (WIDTH_BITS * levels)
        self.start: Final = start
        self.stop: Final = stop
        self._root: Final = root
        self._levels: Final = levels

    @classmethod
    def empty(cls, start: int = 0) -> Entries:
        return cls(start=start, stop=start, root=None, levels=1)

    def __len__(self) -> int:
        return self.stop - self.start

    def at(self, offset: int) -> QueueRecord | None:
        """The record at an absolute offset, None outside [start, stop)."""
        if not self.start <= offset < self.stop:
            return None
        found = self._leaf(offset).children[offset & _MASK]
        assert isinstance(found, QueueRecord)
        return found

    def between(self, start: int, stop: int) -> Iterator[QueueRecord]:
        """The records of [start, stop) that are present, ascending."""
        at, stop = max(start, self.start), min(stop, self.stop)
        while at < stop:
            leaf_stop = min(stop, (at | _MASK) + 1)
            first = at & _MASK
            for record in self._leaf(at).children[first : first + leaf_stop - at]:
                assert isinstance(record, QueueRecord)
                yield record
            at = leaf_stop

    def extend(self, records: Sequence[QueueRecord]) -> Entries:
        """These and the records behind them. Copies one path a leaf that changes."""
        if not records:
            return self
        root, levels, at = self._root, self._levels, self.stop
        taken = 0
        while taken < len(records):
            while at >> (WIDTH_BITS * levels):
                root = None if root is None else TreeNode((root,))
                levels += 1
            count = min(len(records) - taken, WIDTH - (at & _MASK))
            root = _put(root, levels, at, records[taken : taken + count])
            taken += count
            at += count
        return Entries(start=self.start, stop=at, root=root, levels=levels)

    def truncate(self, start: int) -> Entries:
        """These from `start` on; beyond the end nothing is left and `start` is where the next record goes."""
        if start <= self.start:
            return self
        if start >= self.stop:
            return Entries.empty(start)
        assert self._root is not None
        root = _cut(self._root, self._levels, start)
        return Entries(start=start, stop=self.stop, root=root, levels=self._levels)

    def first_difference(self, other: Entries) -> int | None:
        """The lowest offset both have whose records differ."""
        return _difference(self, other, step=1)

    def last_difference(self, other: Entries) -> int | None:
        """The highest offset both have whose records differ."""
        return _difference(self, other, step=-1)

    def tree(self) -> tuple[TreeNode | None, int]:
        """Root and height, for who compares or counts nodes."""
        return self._root, self._levels

    def _leaf(self, offset: int) -> TreeNode:
        node = self._root
        for level in range(self._levels - 1, 0, -1):
            assert node is not None
            child = node.children[offset >> (WIDTH_BITS * level) & _MASK]
            assert isinstance(child, TreeNode)
            node = child
        assert node is not None
        return node


def _path(root: TreeNode | None, levels: int, offset: int) -> list[TreeNode | None]:
    """The nodes above an offset, root first; None where there is none yet."""
    path = [root]
    for level in range(levels - 1, 0, -1):
        node = path[-1]
        index = offset >> (WIDTH_BITS * level) & _MASK
        child = node.children[index] if node is not None and index < len(node.children) else None
        assert child is None or isinstance(child, TreeNode)
        path.append(child)
    assert len(path) == levels
    return path


def _put(root: TreeNode | None, levels: int, offset: int, records: Sequence[QueueRecord]) -> TreeNode:
    """The tree with one leaf's worth of records behind the last."""
    path = _path(root, levels, offset)
    leaf = path.pop()
    before = leaf.children if leaf is not None else (None,) * (offset & _MASK)
    assert len(before) == offset & _MASK
    made = TreeNode((*before, *records))
    for level, node in enumerate(reversed(path), start=1):
        index = offset >> (WIDTH_BITS * level) & _MASK
        kept = node.children[:index] if node is not None else (None,) * index
        made = TreeNode((*kept, made))
    return made


def _cut(root: TreeNode, levels: int, start: int) -> TreeNode:
    """The tree without what is below `start`, which is inside it."""
    made: Child = None
    for level, node in enumerate(reversed(_path(root, levels, start))):
        assert node is not None
        index = start >> (WIDTH_BITS * level) & _MASK
        child = node.children[index] if level == 0 else made
        made = TreeNode((*[None] * index, child, *node.children[index + 1 :]))
    assert isinstance(made, TreeNode)
    return made


def _difference(own: Entries, other: Entries, *, step: int) -> int | None:
    """The first offset that differs, walking up or down. Goes into a pair of nodes only if they are two objects."""
    low, high = max(own.start, other.start), min(own.stop, other.stop)
    if low >= high:
        return None
    levels, mine, theirs = _level(own, other)
    stack = [(levels, 0, mine, theirs)]
    while stack:
        level, base, left, right = stack.pop()
        size = 1 << (WIDTH_BITS * (level - 1))  # offsets a child
        first = max(low - base, 0) // size
        last = min(high - 1 - base, size * WIDTH - 1) // size
        inside = []
        for index in range(first, last + 1)[::step]:
            a, b = left.children[index], right.children[index]
            if a is b:
                continue
            if isinstance(a, QueueRecord) and isinstance(b, QueueRecord):
                if a.digest != b.digest:
                    return base + index
            elif isinstance(a, TreeNode) and isinstance(b, TreeNode):
                if not (a.is_full and b.is_full and a.digest == b.digest):
                    inside.append((level - 1, base + index * size, a, b))
        stack += reversed(inside)
    return None


def _level(own: Entries, other: Entries) -> tuple[int, TreeNode, TreeNode]:
    """Both roots at one height: the lower tree is what stands leftmost in the taller."""
    (mine, my_levels), (theirs, their_levels) = own.tree(), other.tree()
    assert mine is not None
    assert theirs is not None
    levels = max(my_levels, their_levels)
    for _ in range(levels - my_levels):
        mine = TreeNode((mine,))
    for _ in range(levels - their_levels):
        theirs = TreeNode((theirs,))
    return levels, mine, theirs
