"""The graph of witnessed intentions, and who is above whom in it (replication 5.5).

Edges are the condition and the author's own `store_prev`; an intention enters after all its parents. Whether one is an
ancestor of another is answered without a walk: the place of an intention in its author's chain is its `depth`, and each
node keeps, an author each, the greatest depth among its ancestors (`seen`, shared with the previous node of the chain
while nothing new is cited). An author with two children of one `store_prev` has *equivocated*; above its first fork a
depth names no single intention any more, so there the question falls back to a walk, which is iterative and goes only
where the vectors say that the author's branch was seen.

Numbers of authors are this node's own (order of first sight); nothing that leaves the graph depends on them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from topics.kernel.limits import U32_MAX
from topics.weaver.envelope import Accepted, Envelope
from topics.weaver.hlc import HLC
from topics.weaver.intention import ZERO_HASH

_NOTHING_SEEN: Final = array("I")
assert _NOTHING_SEEN.itemsize == 4
UNFORKED: Final = U32_MAX


class Node:
    """A witnessed intention. `generation` is one above its highest parent; `first_child` the author's first successor;
    `seq` its number in the witness log.
    """

    __slots__ = (
        "author", "condition", "depth", "envelope", "first_child", "generation", "hash", "hlc", "linked", "number",
        "ops", "prev", "seen", "seq",
    )  # fmt: skip

    def __init__(
        self, accepted: Accepted, number: int, prev: Node | None, condition: tuple[Node, ...], seq: int
    ) -> None:
        intention = accepted.intention
        self.hash: Final[bytes] = accepted.hash
        self.envelope: Final[Envelope] = accepted.envelope
        self.linked: Final[bool] = accepted.linked
        self.author: Final[bytes] = intention.author
        self.hlc: Final[HLC] = intention.hlc
        self.ops: Final[bytes] = intention.ops
        self.number: Final[int] = number
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
    def order(self) -> tuple[HLC, bytes, bytes]:
        """Where nothing else decides: HLC, author, hash."""
        return self.hlc, self.author, self.hash

    def depth_seen(self, number: int) -> int:
        """The greatest depth of an author's intentions among this one and its ancestors, 0 for none."""
        seen = self.seen[number] if number < len(self.seen) else 0
        return max(seen, self.depth) if number == self.number else seen


class Fork(NamedTuple):
    """Two children of one `store_prev` by one author: `first` was witnessed before."""

    first: Node
    second: Node


class Graph:
    """Nodes by hash and in witness order, tips and forks by author."""

    __slots__ = ("_fork_depths", "_genesis", "_numbers", "authors", "forks", "nodes", "order", "tips")

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.order: list[Node] = []
        self.authors: list[bytes] = []
        self.tips: list[tuple[Node, ...]] = []  # by author's number; more than one after an equivocation
        self.forks: list[Fork] = []
        self._numbers: dict[bytes, int] = {}
        self._genesis: list[Node | None] = []
        self._fork_depths = array("I")  # depth of an author's first fork

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, name: bytes) -> bool:
        return name in self.nodes

    def tips_of(self, author: bytes) -> tuple[Node, ...]:
        """The author's intentions that no other of the author's is above; none if it wrote nothing."""
        number = self._numbers.get(author)
        return () if number is None else self.tips[number]

    def sibling_of(self, accepted: Accepted) -> Node | None:
        """The author's first child of the same `store_prev`, if there is one."""
        prev = accepted.intention.store_prev
        if prev != ZERO_HASH:
            return self.nodes[prev].first_child
        number = self._numbers.get(accepted.intention.author)
        return None if number is None else self._genesis[number]

    def has_equivocated(self, author: bytes) -> bool:
        number = self._numbers.get(author)
        return number is not None and self._fork_depths[number] != UNFORKED

    def add(self, accepted: Accepted) -> Node:
        """Put it in; its parents are there, and its `store_prev` is the author's own. Witnessed is for ever."""
        intention = accepted.intention
        assert accepted.hash not in self.nodes
        number = self._number_of(intention.author)
        prev = None if intention.store_prev == ZERO_HASH else self.nodes[intention.store_prev]
        assert prev is None or prev.author == intention.author
        condition = tuple([self.nodes[parent] for parent in intention.condition if parent != ZERO_HASH])
        sibling = self.sibling_of(accepted)
        node = Node(accepted, number, prev, condition, len(self.order) + 1)
        node.seen = self._seen_by(node)
        self.nodes[node.hash] = node
        self.order.append(node)
        self._link(node, sibling)
        return node

    def is_ancestor(self, above: Node, below: Node) -> bool:
        """Whether `below` knew `above`: reached over condition and store_prev, or the same."""
        if above is below:
            return True
        if above.generation >= below.generation or below.depth_seen(above.number) < above.depth:
            return False
        if above.depth < self._fork_depths[above.number]:
            return True
        return self._reaches(above, below)

    def walk(self, start: int) -> Iterator[Node]:
        """Nodes in witness order from record `start` (counted from 1)."""
        for at in range(max(start, 1) - 1, len(self.order)):
            yield self.order[at]

    def _number_of(self, author: bytes) -> int:
        number = self._numbers.get(author)
        if number is None:
            number = self._numbers[author] = len(self.authors)
            self.authors.append(author)
            self.tips.append(())
            self._genesis.append(None)
            self._fork_depths.append(UNFORKED)
        return number

    def _link(self, node: Node, sibling: Node | None) -> None:
        if sibling is not None:
            self.forks.append(Fork(sibling, node))
            self._fork_depths[node.number] = min(self._fork_depths[node.number], node.depth)
        elif node.prev is None:
            self._genesis[node.number] = node
        else:
            node.prev.first_child = node
        tips = self.tips[node.number]
        if len(tips) > 1 or sibling is not None:
            # An author that writes on after a restored backup cites its other tip: then both are below.
            self.tips[node.number] = (*(tip for tip in tips if not self.is_ancestor(tip, node)), node)
        elif tips and tips[0] is not node.prev:
            self.tips[node.number] = (*tips, node)
        else:
            self.tips[node.number] = (node,)

    def _seen_by(self, node: Node) -> array[int]:
        seen = _NOTHING_SEEN if node.prev is None else node.prev.seen
        for parent in node.condition:
            number, depth = parent.number, parent.depth
            known = seen[number] if number < len(seen) else 0
            if number == node.number and node.prev is not None:
                known = max(known, node.prev.depth)
            if known >= depth and depth < self._fork_depths[number]:
                continue  # the chain of one who has not equivocated: what is above the parent was seen as well
            seen = _joined(seen, parent.seen, number, depth)
        return seen

    def _reaches(self, above: Node, below: Node) -> bool:
        """The walk, for branches of an equivocator."""
        visited = {below.hash}
        waiting = [below]
        while waiting:
            for parent in waiting.pop().parents:
                if parent is above:
                    return True
                if (
                    parent.generation > above.generation
                    and parent.depth_seen(above.number) >= above.depth
                    and parent.hash not in visited
                ):
                    visited.add(parent.hash)
                    waiting.append(parent)
        return False


def _joined(own: array[int], other: array[int], number: int, depth: int) -> array[int]:
    """The greater of each, and at `number` at least `depth`."""
    if len(own) < len(other):
        own, other = other, own
    joined = array("I", map(max, own, other))
    joined.extend(own[len(other) :])
    if number >= len(joined):
        joined.extend([0] * (number + 1 - len(joined)))
    joined[number] = max(joined[number], depth)
    return joined
