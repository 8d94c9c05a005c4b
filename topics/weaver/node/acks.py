"""Acks: a node says in the graph what it has seen (replication 5.9, 5.10).

An ack is an intention without ops that cites foreign *content*: for each other author the newest intention with ops
that nothing of this node's own is above. It comes some seconds after the last foreign content, so a burst gets one.
Acks and merge nodes are no content and are never acked, so acks come to an end.

Whoever signed an intention had witnessed everything below it. So acks are attestations: what all active peers have
something above is stable, and may be pruned. What acks leave open, the last acks themselves, an *attestation* closes:
the same kind of intention, over the tips of all authors, at most every five minutes and only if there is something new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from topics.crypto.keys import KEY_SIZE
from topics.kernel.ports import Clock
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.sync.limits import ExchangeOptions

DELAY_FACTOR: Final = 6  # a debounce is put off by new content, this many times at most


class Acker:
    """When to say what has been seen, and of what. `author` is this node's own key."""

    __slots__ = (
        "_attested_ms", "_author", "_clock", "_contents", "_first_ms", "_graph", "_last_ms", "_options", "_reached",
    )  # fmt: skip

    def __init__(self, graph: Graph, author: bytes, clock: Clock, options: ExchangeOptions) -> None:
        assert len(author) == KEY_SIZE
        self._graph = graph
        self._author: Final = author
        self._clock = clock
        self._options = options
        self._reached = 0
        self._contents: dict[bytes, tuple[Node, ...]] = {}  # foreign authors' newest intentions with ops
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._attested_ms = clock.now_ms()
        self.notice()

    def notice(self) -> None:
        """Look at what was witnessed since: foreign content starts the wait, or prolongs it."""
        assert self._reached <= len(self._graph), "what was witnessed stays so"
        fresh = False
        for node in self._graph.order[self._reached :]:
            if node.author != self._author and node.ops:
                older = self._contents.get(node.author, ())
                kept = [each for each in older if not self._graph.is_ancestor(each, node)]
                assert not any(self._graph.is_ancestor(node, each) for each in kept), "parents come first"
                self._contents[node.author] = (*kept, node)
                fresh = True
        self._reached = len(self._graph.order)
        if fresh:
            self._last_ms = self._clock.now_ms()
            if self._first_ms is None:
                self._first_ms = self._last_ms

    @property
    def due_ms(self) -> int | None:
        """When the wait is over; None if nothing waits."""
        assert (self._first_ms is None) == (self._last_ms is None)
        if self._first_ms is None or self._last_ms is None:
            return None
        wait_ms = self._options.ack_debounce_ms
        return min(self._last_ms + wait_ms, self._first_ms + DELAY_FACTOR * wait_ms)

    @property
    def attest_due_ms(self) -> int:
        """When the tips of all are attested, if there are new ones."""
        return self._attested_ms + self._options.attest_heartbeat_ms

    def take_ack(self) -> list[bytes]:
        """What an ack made now would cite; nothing is none. The wait is over."""
        delta = self.delta()
        self._first_ms = self._last_ms = None
        assert self.due_ms is None
        return delta

    def take_attestation(self) -> list[bytes]:
        """What an attestation made now would cite; none within the gap behind the last one."""
        now_ms = self._clock.now_ms()
        if now_ms < self._attested_ms + self._options.attest_gap_ms:
            return []
        self._attested_ms = now_ms
        tips = [
            tip
            for author in self._graph.authors
            if author != self._author
            for tip in self._graph.tips_of(author)
        ]
        return self._uncovered(tips)

    def delta(self) -> list[bytes]:
        """Foreign content that nothing of this node's own is above (W28)."""
        self.notice()
        return self._uncovered(node for nodes in self._contents.values() for node in nodes)

    def _uncovered(self, nodes: Iterable[Node]) -> list[bytes]:
        """Without what another of them implies; ascending."""
        own = self._graph.tips_of(self._author)
        open_ = [node for node in nodes if not any(self._graph.is_ancestor(node, tip) for tip in own)]
        assert all(node.author != self._author for node in open_), "nobody acks itself"
        return sorted(node.hash for node in self._graph.newest(open_))
