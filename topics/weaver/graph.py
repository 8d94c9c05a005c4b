"""The graph of witnessed intentions, and who is above whom in it (replication 5.5).

Edges are the condition and the author's own `store_prev`; an intention enters after all its parents. Whether one is an
ancestor of another is answered without a walk. An author's intentions form a chain, numbered by `depth`; the chain is a
column, and each node keeps, a column each, the greatest depth among its ancestors (`seen`, shared with the previous
node of the chain while nothing new is cited). An author with two children of one `store_prev` has *equivocated*: the
second one begins a column of its own. So that nobody makes vectors long by equivocating, an author gets `COLUMNS_MAX`
of them; later branches share the last, where a depth names no single intention any more. There the question falls back
to a walk, which is iterative and goes only where the vectors say that the column was seen.

Numbers of columns are this node's own (order of first sight); nothing that leaves the graph depends on them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from topics.weaver.envelope import NO_ENVELOPE, Accepted, Envelope
from topics.weaver.hlc import HLC
from topics.weaver.intention import ZERO_HASH

_NOTHING_SEEN: Final = array("I")
assert _NOTHING_SEEN.itemsize == 4
COLUMNS_MAX: Final = 16  # of one author


class Node:
    """A witnessed intention. `depth`: its place in the author's chain, from 1; `generation`: one above its highest
    parent; `first_child`: the author's first successor; `seq`: its number in the witness log.
    """

    __slots__ = (
        "author", "column", "condition", "depth", "envelope", "first_child", "generation", "hash", "hlc", "linked",
        "ops", "prev", "seen", "seq",
    )  # fmt: skip

    def __init__(
        self, accepted: Accepted, column: int, prev: Node | None, condition: tuple[Node, ...], seq: int
    ) -> None:
        intention = accepted.intention
        self.hash: Final[bytes] = accepted.hash
        self.envelope: Envelope = accepted.envelope
        self.linked: Final[bool] = accepted.linked
        self.author: Final[bytes] = intention.author
        self.hlc: Final[HLC] = intention.hlc
        self.ops: bytes = intention.ops
        self.column: Final[int] = column
        self.prev = prev
        self.condition = condition
        self.seq: Final[int] = seq
        self.depth: Final[int] = 1 if prev is None else prev.depth + 1
        self.generation: Final[int] = 1 + max((parent.generation for parent in self.parents), default=0)
        self.first_child: Node | None = None
        self.seen = _NOTHING_SEEN

    @property
    def parents(self) -> tuple[Node, ...]:
        """The condition, and the author's previous if that is not in it; nothing twice."""
        if self.prev is None or self.prev in self.condition:
            return self.condition
        return (self.prev, *self.condition)

    @property
    def is_settled(self) -> bool:
        """Whether it was pruned: what it said is gone, its name and place are not (replication 5.10)."""
        return not self.envelope.body

    def settle(self) -> None:
        """Forget what it said and who signed it."""
        self.envelope, self.ops = NO_ENVELOPE, b""

    @property
    def order(self) -> tuple[HLC, bytes, bytes]:
        """Where nothing else decides: HLC, author, hash."""
        return self.hlc, self.author, self.hash

    def depth_seen(self, column: int) -> int:
        """The greatest depth in a column among this one and its ancestors, 0 for none."""
        seen = self.seen[column] if column < len(self.seen) else 0
        return max(seen, self.depth) if column == self.column else seen


class Fork(NamedTuple):
    """Two children of one `store_prev` by one author: `first` was witnessed before."""

    first: Node
    second: Node


class Author:
    """What the graph knows of one author. `tips`: those of its intentions that no other of its own names."""

    __slots__ = ("columns", "forked", "genesis", "tips")

    def __init__(self) -> None:
        self.columns: list[int] = []
        self.forked = False
        self.genesis: Node | None = None
        self.tips: dict[bytes, Node] = {}


class Graph:
    """Nodes by hash and in witness order, tips and forks by author."""

    __slots__ = ("_shared", "authors", "forks", "nodes", "order")

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.order: list[Node] = []
        self.authors: dict[bytes, Author] = {}
        self.forks: list[Fork] = []
        self._shared = bytearray()  # by column: 1 if several branches are in it

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, name: bytes) -> bool:
        return name in self.nodes

    def walk(self, start: int) -> Iterator[Node]:
        """Nodes in witness order from record `start` (counted from 1)."""
        for at in range(max(start, 1) - 1, len(self.order)):
            yield self.order[at]

    def tips_of(self, author: bytes) -> tuple[Node, ...]:
        """The author's intentions that no other of its own names; more than one only after an equivocation."""
        known = self.authors.get(author)
        return () if known is None else tuple(known.tips.values())

    def sibling_of(self, accepted: Accepted) -> Node | None:
        """The author's first child of the same `store_prev`, if there is one."""
        prev = accepted.intention.store_prev
        if prev != ZERO_HASH:
            return self.nodes[prev].first_child
        known = self.authors.get(accepted.intention.author)
        return None if known is None else known.genesis

    def has_equivocated(self, author: bytes) -> bool:
        known = self.authors.get(author)
        return known is not None and known.forked

    def add(self, accepted: Accepted) -> Node:
        """Put it in; its parents are there, and its `store_prev` is the author's own. Witnessed is for ever."""
        intention = accepted.intention
        assert accepted.hash not in self.nodes
        author = self.authors.setdefault(intention.author, Author())
        prev = None if intention.store_prev == ZERO_HASH else self.nodes[intention.store_prev]
        assert prev is None or prev.author == intention.author
        condition = tuple([self.nodes[parent] for parent in intention.condition if parent != ZERO_HASH])
        sibling = self.sibling_of(accepted)
        column = self._new_column(author) if prev is None or sibling is not None else prev.column
        node = Node(accepted, column, prev, condition, len(self.order) + 1)
        node.seen = _seen_by(node, self._shared)
        self.nodes[node.hash] = node
        self.order.append(node)
        self._link(author, node, sibling)
        return node

    def is_ancestor(self, above: Node, below: Node) -> bool:
        """Whether `below` knew `above`: reached over condition and store_prev, or the same."""
        if above is below:
            return True
        if above.generation >= below.generation or below.depth_seen(above.column) < above.depth:
            return False
        return not self._shared[above.column] or _reaches(above, below)

    def _new_column(self, author: Author) -> int:
        if len(author.columns) == COLUMNS_MAX:
            self._shared[author.columns[-1]] = 1
        else:
            author.columns.append(len(self._shared))
            self._shared.append(0)
        return author.columns[-1]

    def _link(self, author: Author, node: Node, sibling: Node | None) -> None:
        if sibling is not None:
            self.forks.append(Fork(sibling, node))
            author.forked = True
        elif node.prev is None:
            author.genesis = node
        else:
            node.prev.first_child = node
        # An author that writes on after a restored backup cites its other tip: then both are named.
        for parent in node.parents:
            author.tips.pop(parent.hash, None)
        author.tips[node.hash] = node
        assert author.forked or len(author.tips) == 1


def _seen_by(node: Node, shared: bytearray) -> array[int]:
    """The vector of a new node: the greatest depths of all its parents."""
    prev = node.prev
    seen = _NOTHING_SEEN if prev is None else prev.seen
    if prev is not None and prev.column != node.column:
        seen = _joined(seen, prev.seen, prev.column, prev.depth)
    for parent in node.condition:
        column, depth = parent.column, parent.depth
        known = seen[column] if column < len(seen) else 0
        if prev is not None and column == prev.column:
            known = max(known, prev.depth)
        if known >= depth and not shared[column]:
            continue  # a chain: whoever knows its later part has seen what is above the earlier
        seen = _joined(seen, parent.seen, column, depth)
    return seen


def _reaches(above: Node, below: Node) -> bool:
    """The walk, for columns that branches share."""
    assert below.depth_seen(above.column) >= above.depth
    visited = {below.hash}
    waiting = [below]
    while waiting:
        for parent in waiting.pop().parents:
            if parent is above:
                return True
            if (
                parent.generation > above.generation
                and parent.depth_seen(above.column) >= above.depth
                and parent.hash not in visited
            ):
                visited.add(parent.hash)
                waiting.append(parent)
    return False


def _joined(own: array[int], other: array[int], column: int, depth: int) -> array[int]:
    """The greater of each, and at `column` at least `depth`."""
    if len(own) < len(other):
        own, other = other, own
    joined = array("I", map(max, own, other))
    joined.extend(own[len(other) :])
    if column >= len(joined):
        joined.extend([0] * (column + 1 - len(joined)))
    assert len(joined) >= max(len(own), len(other))
    joined[column] = max(joined[column], depth)
    return joined
