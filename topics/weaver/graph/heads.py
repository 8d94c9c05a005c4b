"""The heads of a key: its writes that no other write of the key is known to follow (replication 5.5).

Concurrent writes all stay; none is lost. Which one a read shows is computed anew from all heads whenever they or the
time change: the greatest effective HLC, then author key, then hash. The order in which writes were applied plays no
part (8.7), and a head keeps what a read needs, so that nothing has to be looked up in a log that may have been pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import attrs

from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.hlc import HLC


class KeyHead(NamedTuple):
    """A write of a key: `hlc` as it was signed, `value` None for a delete. Sorted by hash, heads have one order."""

    hash: bytes
    hlc: HLC
    author: bytes
    value: bytes | None


Heads: TypeAlias = tuple[KeyHead, ...]


@attrs.frozen
class Inspection:
    """What a read of a key gives. `heads` has the winner first. A missing key has no heads; a deleted one has."""

    exists: bool
    value: bytes | None
    tombstone: bool
    conflicted: bool
    heads: Heads

    @property
    def count(self) -> int:
        """How many heads."""
        return len(self.heads)


class Ahead(NamedTuple):
    """A write from the future that stands: nothing of its key came after it. It counts as the one after its parents,
    and from `due_ms` on as it was stamped. `value` is None for a delete; times in milliseconds.
    """

    key: bytes
    value: bytes | None
    author: bytes
    hash: bytes
    stamp: int
    due_ms: int


MISSING: Final = Inspection(exists=False, value=None, tombstone=False, conflicted=False, heads=())


def after_write(heads: Heads, node: Node, value: bytes | None, graph: Graph) -> Heads:
    """The heads of a key once `node` wrote it. Nodes come in an order where parents are before children, so none of
    the heads is above the new one's descendants; what is below it goes.
    """
    kept = [head for head in heads if not graph.is_ancestor(graph.nodes[head.hash], node)]
    assert all(head.hash != node.hash for head in kept), "an intention writes a key once"
    return tuple(sorted([*kept, KeyHead(node.hash, node.hlc, node.author, value)]))


def winner(heads: Heads, eff: Callable[[KeyHead], HLC]) -> KeyHead:
    """The head that reads show."""
    assert heads
    return heads[0] if len(heads) == 1 else max(heads, key=lambda head: (eff(head), head.author, head.hash))


def signed(head: KeyHead) -> HLC:
    """The stamp as it was signed, for `winner`."""
    return head.hlc


def heads_ahead(
    entries: Mapping[bytes, Heads], is_ahead: Callable[[KeyHead], bool], drift_ms: int
) -> list[Ahead]:  # fmt: skip
    """The heads from the future, the nearest first."""
    found = [
        Ahead(key, head.value, head.author, head.hash, head.hlc.wall, head.hlc.wall - drift_ms)
        for key, heads in entries.items()
        for head in heads
        if is_ahead(head)
    ]
    return sorted(found, key=lambda head: (head.stamp, head.key, head.hash))


def inspect_heads(heads: Heads, eff: Callable[[KeyHead], HLC]) -> Inspection:
    """All of it, for `inspect`; `get` takes the value."""
    if not heads:
        return MISSING
    ordered = tuple(sorted(heads, key=lambda head: (eff(head), head.author, head.hash), reverse=True))
    value = ordered[0].value
    return Inspection(
        exists=value is not None,
        value=value,
        tombstone=value is None,
        conflicted=len(heads) > 1,
        heads=ordered,
    )
