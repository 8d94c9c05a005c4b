"""The graph of witnessed intentions, and who is above whom in it (replication 5.5).

Edges are the condition and the author's own `store_prev`; an intention enters after all its parents. Whether one is an
ancestor of another is answered without a walk. An author's intentions form a chain, numbered by `depth`, and each node
keeps, an author each, the greatest depth among its ancestors (`seen`, shared with the previous node of the chain while
nothing new is cited).

An author with two children of one `store_prev` has *equivocated*: its intentions form a tree, and a depth names none
of them. So what is added from then on keeps, for each such author, the nodes of the tree that it knows and that no
other it knows stands upon (`branches`); what was added before knows a part of the chain there was (`line`). Within a
tree an ancestor is found by jumping: each node points back so far that any depth is reached in a logarithm of steps.
However somebody forks, nobody walks the graph for it.

Numbers of authors are this node's own (order of first sight); nothing that leaves the graph depends on them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from topics.weaver.model.envelope import NO_ENVELOPE, Accepted, Envelope
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH

_NOTHING_SEEN: Final = array("I")
assert _NOTHING_SEEN.itemsize == 4
_NO_BRANCHES: Final[Mapping[int, tuple[Node, ...]]] = {}


class Node:
    """A witnessed intention. `depth`: its place in the author's chain, from 1; `generation`: one above its highest
    parent; `first_child`: the author's first successor; `jump`: an earlier one of the author; `number`: the author's;
    `seq`: its own in the witness log.
    """

    __slots__ = (
        "author", "branches", "condition", "depth", "envelope", "first_child", "generation", "hash", "hlc", "jump",
        "linked", "number", "ops", "prev", "seen", "seq",
    )  # fmt: skip

    def __init__(
        self, accepted: Accepted, number: int, prev: Node | None, condition: tuple[Node, ...], seq: int
    ) -> None:
        intention = accepted.intention
        self.hash: Final[bytes] = accepted.hash
        self.envelope: Envelope = accepted.envelope
        self.linked: Final[bool] = accepted.linked
        self.author: Final[bytes] = intention.author
        self.hlc: Final[HLC] = intention.hlc
        self.ops: bytes = intention.ops
        self.number: Final[int] = number
        self.prev = prev
        self.condition = condition
        self.seq: Final[int] = seq
        self.depth: Final[int] = 1 if prev is None else prev.depth + 1
        self.generation: Final[int] = 1 + max((parent.generation for parent in self.parents), default=0)
        self.first_child: Node | None = None
        self.jump: Final[Node] = self if prev is None else _jump_over(prev)
        self.seen = _NOTHING_SEEN
        self.branches = _NO_BRANCHES

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

    def depth_seen(self, number: int) -> int:
        """The greatest depth of an author's intentions among this one and its ancestors, 0 for none."""
        seen = self.seen[number] if number < len(self.seen) else 0
        return max(seen, self.depth) if number == self.number else seen

    def stands_on(self, earlier: Node) -> bool:
        """Whether an intention of the same author is this one or one that its chain of `store_prev` leads to."""
        assert earlier.number == self.number
        node = self
        while node.depth > earlier.depth:
            assert node.prev is not None
            node = node.jump if node.jump.depth >= earlier.depth else node.prev
        return node is earlier


class AuthorFork(NamedTuple):
    """Two children of one `store_prev` by one author: `first` was witnessed before."""

    first: Node
    second: Node


class Author:
    """What the graph knows of one author. `tips`: those of its intentions that no other of its own names; `line`: its
    chain until it forked.
    """

    __slots__ = ("forked", "genesis", "line", "number", "tips")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.forked = False
        self.genesis: Node | None = None
        self.line: list[Node] = []
        self.tips: dict[bytes, Node] = {}


class Graph:
    """Nodes by hash and in witness order, tips and forks by author."""

    __slots__ = ("_forked", "authors", "forks", "nodes", "order")

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.order: list[Node] = []
        self.authors: dict[bytes, Author] = {}
        self.forks: list[AuthorFork] = []
        self._forked: dict[int, Author] = {}

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
        author = self.authors.get(intention.author)
        if author is None:
            author = self.authors[intention.author] = Author(len(self.authors))
        prev = None if intention.store_prev == ZERO_HASH else self.nodes[intention.store_prev]
        assert prev is None or prev.author == intention.author
        condition = tuple([self.nodes[parent] for parent in intention.condition if parent != ZERO_HASH])
        sibling = self.sibling_of(accepted)
        if sibling is not None:
            author.forked = True
            self._forked[author.number] = author
        node = Node(accepted, author.number, prev, condition, len(self.order) + 1)
        node.seen = self._seen_by(node)
        if self._forked:
            node.branches = self._branches_of(node)
        self.nodes[node.hash] = node
        self.order.append(node)
        self._link(author, node, sibling)
        return node

    def is_ancestor(self, above: Node, below: Node) -> bool:
        """Whether `below` knew `above`: reached over condition and store_prev, or the same."""
        if above is below:
            return True
        if above.generation >= below.generation or below.depth_seen(above.number) < above.depth:
            return False
        author = self._forked.get(above.number)
        if author is None:
            return True
        reached = _reached(below, author)
        return any(node.depth >= above.depth and node.stands_on(above) for node in reached)

    def newest(self, nodes: Sequence[Node]) -> list[Node]:
        """Those of distinct nodes that none of the others is above. One pass, but for those of equivocators: authors
        cost a peer nothing, so nodes are not compared in pairs.
        """
        seen = _NOTHING_SEEN
        for node in nodes:
            # Of its own chain it covers what is before it, also if nobody cited that.
            seen = _joined(seen, node.seen, node.number, node.depth - 1)
        found = [node for node in nodes if node.number in self._forked or seen[node.number] < node.depth]
        return [
            node
            for node in found
            if node.number not in self._forked
            or not any(other is not node and self.is_ancestor(node, other) for other in nodes)
        ]

    def _link(self, author: Author, node: Node, sibling: Node | None) -> None:
        if sibling is not None:
            self.forks.append(AuthorFork(sibling, node))
        elif node.prev is None:
            author.genesis = node
        else:
            node.prev.first_child = node
        if not author.forked:
            author.line.append(node)
            assert len(author.line) == node.depth
        # An author that writes on after a restored backup cites its other tip: then both are named.
        for parent in node.parents:
            author.tips.pop(parent.hash, None)
        author.tips[node.hash] = node
        assert author.forked or len(author.tips) == 1

    def _seen_by(self, node: Node) -> array[int]:
        """The vector of a new node: the greatest depths of all its parents."""
        prev = node.prev
        seen = _NOTHING_SEEN if prev is None else prev.seen
        for parent in node.condition:
            number, depth = parent.number, parent.depth
            known = seen[number] if number < len(seen) else 0
            if prev is not None and number == prev.number:
                known = max(known, prev.depth)
            if known >= depth and number not in self._forked:
                continue  # a chain: whoever knows its later part has seen what is above the earlier
            seen = _joined(seen, parent.seen, number, depth)
        return seen

    def _branches_of(self, node: Node) -> Mapping[int, tuple[Node, ...]]:
        """What a new node knows of the trees of those who equivocated; its own chain it stands upon."""
        inherited = _NO_BRANCHES if node.prev is None else node.prev.branches
        branches: dict[int, tuple[Node, ...]] = {}
        for number, author in self._forked.items():
            if number != node.number and node.depth_seen(number) == 0:
                continue
            known = inherited.get(number, ())
            for parent in node.parents:
                known = _united(known, _reached(parent, author))
            if number == node.number:
                foreign = tuple([other for other in known if not node.stands_on(other)])
                known = known if len(foreign) == len(known) else foreign
            branches[number] = known
        same = len(branches) == len(inherited) and all(
            inherited.get(number) is known for number, known in branches.items()
        )
        return inherited if same else branches


def _jump_over(prev: Node) -> Node:
    """Where the successor of `prev` jumps to: twice as far as two equal jumps in a row (Myers, applicative lists)."""
    far = prev.jump
    return far.jump if prev.depth - far.depth == far.depth - far.jump.depth else prev


def _reached(node: Node, author: Author) -> tuple[Node, ...]:
    """Nodes of an equivocator's tree upon which all that `node` knows of it stands."""
    known = node.branches.get(author.number)
    if known is None:
        # Added before the fork, or knowing nothing of the author.
        depth = node.seen[author.number] if author.number < len(node.seen) else 0
        known = (author.line[depth - 1],) if depth else ()
    return (node, *known) if node.number == author.number else known


def _united(own: tuple[Node, ...], other: tuple[Node, ...]) -> tuple[Node, ...]:
    """Both, without those that another one stands upon; the very `own` or `other` if that says it all."""
    if own is other or not other:
        return own
    if not own:
        return other
    names = {node.hash for node in own}
    fresh = [
        node
        for node in other
        if node.hash not in names
        and not any(each.depth >= node.depth and each.stands_on(node) for each in own)
    ]
    if not fresh:
        return own
    kept = [
        node for node in own if not any(each.depth > node.depth and each.stands_on(node) for each in fresh)
    ]
    return (*kept, *fresh)


def _joined(own: array[int], other: array[int], number: int, depth: int) -> array[int]:
    """The greater of each, and at `number` at least `depth`."""
    if len(own) < len(other):
        own, other = other, own
    joined = array("I", map(max, own, other))
    joined.extend(own[len(other) :])
    if number >= len(joined):
        joined.extend([0] * (number + 1 - len(joined)))
    assert len(joined) >= max(len(own), len(other))
    joined[number] = max(joined[number], depth)
    return joined
