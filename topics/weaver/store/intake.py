"""From accepted to witnessed: one batch on its way through the floating buffer (replication 5.2).

The batch is staged here in memory, as units of the journal to be: what must be written together, an intention that is
new with the record that witnesses it, is one unit (replication 13). Whatever can be witnessed is, the smallest
`(HLC, author, hash)` first, so that nodes handed the same batch write the same log.
A heap of what is ready and an index of who waits for whom take the place of passes over the buffer: the end is the
same, and an arrival costs what it sets free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from topics.kernel.errors import Rejected, invalid
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.envelope import Accepted
from topics.weaver.model.equivocation import Proof
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.store.floating import Floating
from topics.weaver.store.journal_items import ItemKind, Received, pack
from topics.weaver.store.report import IngestResult, Outcome


class Intake:
    """One batch. `witnessed`, `proofs`, `dropped` and `units` tell what it did. `record` makes the item of the witness
    log for a new node.
    """

    __slots__ = (
        "_evidence", "_floating", "_graph", "_received_ms", "_record", "_settled", "_strict", "_unwritten", "dropped",
        "proofs", "units", "witnessed",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, floating: Floating, evidence: dict[bytes, Proof], record: Callable[[Node], bytes], *,
        received_ms: int, strict: bool,
    ) -> None:  # fmt: skip
        self._graph = graph
        self._floating = floating
        self._evidence = evidence
        self._received_ms = received_ms
        self._strict = strict
        self._record = record
        self._settled: dict[bytes, IngestResult] = {}
        self._unwritten: dict[bytes, Accepted] = {}
        self.units: list[list[bytes]] = []
        self.witnessed: list[Node] = []
        self.proofs: list[Proof] = []
        self.dropped: list[bytes] = []

    def take(self, batch: list[Accepted], resumed: Sequence[Accepted] = ()) -> dict[bytes, IngestResult]:
        """Witness what can be, let the rest float; how each of the batch ended. `resumed`: in the journal already, and
        waiting for nothing.
        """
        ready: list[tuple[HLC, bytes, bytes, Accepted]] = []
        for accepted in resumed:
            _push(ready, accepted)
        for accepted in batch:
            if self._is_known(accepted.hash):
                self._settled.setdefault(accepted.hash, IngestResult(Outcome.KNOWN, accepted.hash))
                continue
            refusal = self._wrong_chain(accepted)
            if refusal is not None:
                self._settled[accepted.hash] = IngestResult(Outcome.REFUSED, accepted.hash, refusal)
                continue
            self._unwritten[accepted.hash] = accepted
            self._settled[accepted.hash] = IngestResult(Outcome.FLOATING, accepted.hash)
            missing = self._missing(accepted)
            if missing:
                self._floating.add(accepted, missing, self._received_ms)
            else:
                _push(ready, accepted)
        while ready:
            self._admit(heappop(ready)[-1], ready)
        assert all(name in self._floating for name in self._unwritten)
        self.units += [[self._received(accepted)] for accepted in self._unwritten.values()]
        for accepted in batch:
            self._make_room(accepted.intention.author)
        return self._settled

    def forget_overdue(self) -> None:
        """Let go what has waited longer than its age."""
        for name in self._floating.overdue(self._received_ms):
            self._drop(name)

    def _is_known(self, name: bytes) -> bool:
        # One of this batch that is ready is neither witnessed nor floating yet.
        return (
            name in self._graph or name in self._floating or name in self._evidence or name in self._settled
        )

    def _missing(self, accepted: Accepted) -> list[bytes]:
        intention = accepted.intention
        named = (intention.store_prev, *intention.condition)
        return [name for name in named if name != ZERO_HASH and name not in self._graph]

    def _admit(self, accepted: Accepted, ready: list[tuple[HLC, bytes, bytes, Accepted]]) -> None:
        """Everything it names is witnessed: witness it, unless it follows somebody else's chain."""
        refusal = self._wrong_chain(accepted)
        if refusal is not None:
            self._settle(accepted.hash, Outcome.REFUSED, refusal)
            if self._unwritten.pop(accepted.hash, None) is None:
                self._let_go(accepted.hash)
            return
        assert not self._missing(accepted)
        assert accepted.hash not in self._graph
        unit = [] if self._unwritten.pop(accepted.hash, None) is None else [self._received(accepted)]
        self.units.append(unit)
        sibling = self._graph.sibling_of(accepted)
        if sibling is not None:
            self._accuse(sibling, accepted)
            if self._strict:
                unit.append(pack(ItemKind.EVIDENCE, accepted.hash))
                self._settle(accepted.hash, Outcome.EVIDENCE)
                return
        node = self._graph.add(accepted)
        unit.append(self._record(node))
        self.witnessed.append(node)
        self._settle(accepted.hash, Outcome.WITNESSED)
        for float_ in self._floating.arrived(accepted.hash):
            _push(ready, float_.accepted)

    def _received(self, accepted: Accepted) -> bytes:
        return Received(self._received_ms, accepted.linked, accepted.envelope.encode()).encode()

    def _wrong_chain(self, accepted: Accepted) -> Rejected | None:
        intention = accepted.intention
        prev = self._graph.nodes.get(intention.store_prev)
        if prev is None or prev.author == intention.author:
            return None
        text = f"{intention.store_prev.hex()} is {prev.author.hex()}'s, not author {intention.author.hex()}'s"
        return invalid("store_prev", text)

    def _accuse(self, sibling: Node, accepted: Accepted) -> None:
        intention = accepted.intention
        assert sibling.author == intention.author
        assert sibling.hash != accepted.hash
        proof = Proof(intention.author, intention.store_prev, sibling.envelope, accepted.envelope)
        if not sibling.is_settled:
            self.proofs.append(proof)
        if self._strict:
            self._evidence[accepted.hash] = proof

    def _make_room(self, author: bytes) -> None:
        while (name := self._floating.crowded_out(author)) is not None:
            self._settle(name, Outcome.CROWDED)
            self._drop(name)

    def _drop(self, name: bytes) -> None:
        self._floating.remove(name)
        self._let_go(name)

    def _let_go(self, name: bytes) -> None:
        assert name not in self._graph  # witnessed is for ever
        assert name not in self._floating
        self.dropped.append(name)
        self.units.append([pack(ItemKind.DROPPED, name)])

    def _settle(self, name: bytes, outcome: Outcome, error: Rejected | None = None) -> None:
        if name in self._settled:
            self._settled[name] = IngestResult(outcome, name, error)


def _push(ready: list[tuple[HLC, bytes, bytes, Accepted]], accepted: Accepted) -> None:
    intention = accepted.intention
    heappush(ready, (intention.hlc, intention.author, accepted.hash, accepted))
