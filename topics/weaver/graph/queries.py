"""Questions about the graph (replication 5.5): ancestors, common ancestors, paths, branches. They change nothing.

`CAUSAL` edges are the condition and the author's own chain, the relation that heads are made by; `CONDITION` edges are
what was cited alone. Answers depend on the graph and not on the order in which this node came to know it: nodes are
visited by generation, the longest way from a root, and equals by hash. A walk ends at `steps` nodes with an error
rather than hold up its caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Final

from topics.kernel.errors import invalid
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.bounds import DEFAULT
from topics.weaver.model.intention import ZERO_HASH


class Edges(Enum):
    """Which parents a walk follows."""

    CAUSAL = "causal"
    CONDITION = "condition"

    def of(self, node: Node) -> tuple[Node, ...]:
        return node.parents if self is Edges.CAUSAL else node.condition


_OURS: Final = 1
_THEIRS: Final = 2
_BOTH: Final = 3


class Dag:
    """Queries over one graph, by hash. Every one raises `Rejected` for a hash that is not witnessed here."""

    __slots__ = ("_edges", "_graph", "_steps")

    def __init__(self, graph: Graph, *, edges: Edges = Edges.CAUSAL, steps: int = DEFAULT.walk_steps) -> None:
        assert steps >= 1
        self._graph = graph
        self._edges = edges
        self._steps = steps

    def is_ancestor(self, above: bytes, below: bytes) -> bool:
        """Whether `below` descends from `above`. Everything descends from itself and from the zero hash."""
        node = self._node(below)
        if above == ZERO_HASH:
            return True
        if self._edges is Edges.CAUSAL:
            return self._graph.is_ancestor(self._node(above), node)
        return self._reaches(self._node(above), node)

    def find_lca(self, one: bytes, other: bytes) -> bytes:
        """The lowest common ancestor: the one of greatest generation, then hash. The order of the two does not matter.

        Raises:
            Rejected: they have none, or it is further than the bound.
        """
        marks = {self._node(one).hash: _OURS}
        theirs = self._node(other)
        marks[theirs.hash] = marks.get(theirs.hash, 0) | _THEIRS
        waiting = [_key(self._graph.nodes[name]) for name in marks]
        waiting.sort()
        for _ in range(self._steps):
            if not waiting:
                raise invalid("hash", f"{one.hex()} and {other.hex()} have no common ancestor")
            node = self._graph.nodes[heappop(waiting)[1]]
            mark = marks[node.hash]
            if mark == _BOTH:
                return node.hash
            for parent in self._edges.of(node):
                assert parent.generation < node.generation  # so the first with both marks is a lowest
                if parent.hash not in marks:
                    heappush(waiting, _key(parent))
                marks[parent.hash] = marks.get(parent.hash, 0) | mark
        raise self._too_far()

    def path(self, above: bytes, below: bytes) -> list[bytes]:
        """What lies between: every descendant of `above` that is an ancestor of `below` or `below` itself, parents
        before children; `above` (the zero hash: before everything) is not in it.

        Raises:
            Rejected: `below` does not descend from `above`, or the path is longer than the bound.
        """
        last = self._node(below)
        if above == below:
            return []
        first = None if above == ZERO_HASH else self._node(above)
        found = self._ancestors(last, first)
        if first is None:
            return [node.hash for node in found]
        inside = {first.hash}
        path = []
        for node in found:
            if any(parent.hash in inside for parent in self._edges.of(node)):
                inside.add(node.hash)
                path.append(node.hash)
        if last.hash not in inside:
            raise invalid("hash", f"{below.hex()} does not descend from {above.hex()}")
        assert path[-1] == below
        assert above not in path
        return path

    def branches(self, heads: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """For each head the path to it from the lowest common ancestor of them all; from the beginning if there is
        none.
        """
        names = list(dict.fromkeys(heads))
        if not names:
            return {}
        fork = names[0]
        for name in names[1:]:
            fork = self.find_lca(fork, name)
        return {name: self.path(fork, name) for name in names}

    def _node(self, name: bytes) -> Node:
        node = self._graph.nodes.get(name)
        if node is None:
            raise invalid("hash", f"{name.hex()} is not witnessed here")
        return node

    def _reaches(self, above: Node, below: Node) -> bool:
        assert self._edges is Edges.CONDITION  # the other kind has vectors
        waiting, visited = [below], {below.hash}
        while waiting:
            node = waiting.pop()
            if node is above:
                return True
            for parent in self._edges.of(node):
                if parent.generation >= above.generation and parent.hash not in visited:
                    if len(visited) >= self._steps:
                        raise self._too_far()
                    visited.add(parent.hash)
                    waiting.append(parent)
        return False

    def _ancestors(self, last: Node, above: Node | None) -> list[Node]:
        """`last` and its ancestors that may descend from `above`, lowest generation first."""
        assert last is not above
        lowest = 0 if above is None else above.generation
        found = {last.hash: last}
        waiting = [last]
        while waiting:
            for parent in self._edges.of(waiting.pop()):
                if parent.generation > lowest and parent.hash not in found:
                    if len(found) >= self._steps:
                        raise self._too_far()
                    found[parent.hash] = parent
                    waiting.append(parent)
        return sorted(found.values(), key=lambda node: (node.generation, node.hash))

    def _too_far(self) -> Exception:
        return invalid("hash", f"the answer is more than {self._steps} steps away; ask for a nearer one")


def _key(node: Node) -> tuple[int, bytes]:
    """Highest generation first; no two nodes have one hash."""
    return -node.generation, node.hash
