"""What a node has to offer to others: an `IntentionStore` as the exchange sees it (replication 5.8).

Only witnessed intentions behind the frontier are counted, compared and listed; floating ones are the store's own
business. The hashes in order are a derived table: they are made from the graph and catch up with it whenever they are
asked for, so no write has to think of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topics.kernel.errors import TopicsError
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.frontier import Frontier
from topics.weaver.model.intention import verify
from topics.weaver.store.intention_store import IntentionStore
from topics.weaver.store.report import IngestReport, Outcome
from topics.weaver.store.settled import intentions_below
from topics.weaver.store.witness import Witness
from topics.weaver.sync.limits import BOOTSTRAP_BATCH
from topics.weaver.sync.ranges import FULL, Fold, HashRange, HashSet
from topics.weaver.sync.reconcile import HashView


class Witnessed:
    """A `HashView` of a graph without the nodes in `settled`. New nodes enter when it is next asked."""

    __slots__ = ("_graph", "_hashes", "_reached", "_settled")

    def __init__(self, graph: Graph, settled: frozenset[bytes]) -> None:
        assert all(name in graph for name in settled)
        self._graph = graph
        self._settled = settled
        self._reached = len(graph.order)
        self._hashes = HashSet(node.hash for node in graph.order if node.hash not in settled)

    def __contains__(self, name: bytes) -> bool:
        return name in self._graph  # what is settled is here too, and not lacked

    def fold(self, over: HashRange = FULL) -> Fold:
        return self._caught_up().fold(over)

    def listing(self, over: HashRange, limit: int) -> list[bytes]:
        return self._caught_up().listing(over, limit)

    def seq_of(self, name: bytes) -> int:
        return self._graph.nodes[name].seq

    def _caught_up(self) -> HashSet:
        # What is witnessed after a frontier was drawn lies behind it.
        for node in self._graph.order[self._reached :]:
            self._hashes.add(node.hash)
        self._reached = len(self._graph.order)
        assert len(self._hashes) == self._reached - len(self._settled)
        return self._hashes


class Inventory:
    """One store, for all sessions of a node."""

    __slots__ = ("_fast", "_view", "_view_of", "store")

    def __init__(self, store: IntentionStore, *, fast: bool = False) -> None:
        self.store: Final = store
        self._fast = fast  # trust a chain by its newest signature (replication 5.7)
        self._view_of = store.frontier
        self._view = self._own_view()

    @property
    def store_id(self) -> bytes:
        return self.store.store_id

    @property
    def frontier(self) -> Frontier:
        """What was pruned here."""
        return self.store.frontier

    @property
    def head_seq(self) -> int:
        """The number of the last witness record."""
        return len(self.store)

    def behind(self, frontier: Frontier) -> HashView | None:
        """The hashes behind this node's frontier and that one; None if that one is of a history unknown here."""
        if self._view_of != self.frontier:
            self._view_of = self.frontier
            self._view = self._own_view()
        if frontier == self._view_of:
            return self._view
        theirs = intentions_below(self.store.graph, frontier)
        own = intentions_below(self.store.graph, self._view_of)
        if theirs is None or own is None:
            return None
        return Witnessed(self.store.graph, own | theirs)

    def _own_view(self) -> Witnessed:
        settled = intentions_below(self.store.graph, self.frontier)
        assert settled is not None, "a node knows its own frontier"
        return Witnessed(self.store.graph, settled)

    def knows(self, name: bytes) -> bool:
        """Whether it is here, witnessed, pruned, floating or as evidence: then it need not be fetched."""
        return name in self.store or name in self.store.floating or name in self.store.evidence

    def envelopes(self, names: Sequence[bytes]) -> list[Envelope]:
        """Those of them that are witnessed, not pruned, and that another node could accept by itself."""
        found = [self.store.graph.nodes.get(name) for name in names]
        travelling = [node.envelope for node in found if node is not None and _can_travel(node)]
        assert len(travelling) <= len(names)
        return travelling

    def ingest(self, envelopes: Sequence[Envelope]) -> IngestReport:
        """Take them in; invalid ones are refused one by one."""
        return self.store.ingest(envelopes)

    def ingest_chain(self, newest_first: Sequence[Envelope]) -> str | None:
        """Take a stretch of one author's chain; why it was refused, if it was."""
        assert newest_first
        oldest_first = list(reversed(newest_first))
        try:
            report = (
                self.store.ingest_segment(oldest_first) if self._fast else self.store.ingest(oldest_first)
            )
        except TopicsError as error:
            return error.message
        refused = [result for result in report.results if result.outcome is Outcome.REFUSED]
        return str(refused[0].error) if refused else None

    def stretch(self, seq: int) -> list[tuple[Witness, Node]]:
        """A batch of the witness log from record `seq` on, and what the records are about."""
        assert seq >= 1
        records = self.store.records(seq, BOOTSTRAP_BATCH)
        return [(record, self.store.graph.nodes[record.intention]) for record in records]


def _can_travel(node: Node) -> bool:
    """Not pruned; and if a link stood for its signature, that signature is good all the same."""
    if node.is_settled:
        return False
    return not node.linked or verify(node.envelope.body, node.envelope.signature)
