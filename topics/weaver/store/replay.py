"""From a journal to the tables (replication 5.3): everything a store knows is a fold of its items.

What is checked, always: each item's checksum, each intention's form, limits and place, that each record of the witness
log follows the one before it and names an intention that is here, and the node's signature under the last record. The
records are chained by hash and name intentions by hash, so that one signature stands for the whole log. `EVERY` checks
each signature as well, of node and authors: it finds nothing that could change what was said, and costs two
verifications an intention.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from topics.kernel.errors import Corrupt
from topics.weaver.graph.effective import EffectiveClock, reference_after
from topics.weaver.graph.intention_graph import Graph
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.envelope import Accepted, Envelope
from topics.weaver.model.equivocation import Proof
from topics.weaver.model.hlc import ZERO
from topics.weaver.model.intention import ZERO_HASH, decode, hash_of, verify
from topics.weaver.store.floating import Floating
from topics.weaver.store.journal_items import ItemKind, JournalHeader, Received, decode_clock, unpack
from topics.weaver.store.settled import Settlement, decode_stubs, digest_of, settled_nodes
from topics.weaver.store.witness import NO_SIGNATURE, Witness, WitnessLog


class SignatureCheck(Enum):
    """Whose signatures are verified when a store is opened."""

    LAST = "last"  # of the last witness record: the hash chain carries it to all others
    EVERY = "every"


class Replay:
    """The tables, filled item by item."""

    def __init__(
        self, header: JournalHeader, bounds: Bounds, effective: EffectiveClock, check: SignatureCheck
    ) -> None:
        self.header = header
        self._bounds = bounds
        self._effective = effective
        self._check = check
        self._began = True  # a header stands right before: only a compacted journal begins anew
        self._clear()

    def _clear(self) -> None:
        """Nothing was read, or what was read is void."""
        self.graph = Graph()
        self.floating = Floating(self._bounds)
        self.evidence: dict[bytes, Proof] = {}
        self.log = WitnessLog(self.header.store_id)
        self.settlement: Settlement | None = None
        self.clock = ZERO
        self.reference_ms = 0
        self.fingerprint = 0
        self.ready: list[Accepted] = []  # wait for nothing: a cascade was written in part
        self._kept: dict[bytes, tuple[Accepted, int]] = {}  # accepted; whether it was witnessed comes later
        self._last: Witness | None = None

    def run(self, items: Iterable[bytes]) -> None:
        """Fold the items behind the header.

        Raises:
            Corrupt: the journal cannot be what this store wrote. Nothing of it may be used.
        """
        for number, item in enumerate(items, 2):
            try:
                kind, payload = unpack(item)
                self._fold(kind, payload)
                self._began = kind is ItemKind.HEADER
            except Corrupt as error:
                text = f"Weaver journal, item {number}: {error.message}"
                raise Corrupt(text, item=number, **error.detail) from None
        if self._check is SignatureCheck.LAST and self._last is not None:
            self._verify_record(self._last)
        for accepted, received_ms in self._kept.values():
            self._refloat(accepted, received_ms)
        self._kept = {}

    def witness(self, record: Witness) -> None:
        """The next record of the log; its intention was accepted before."""
        kept = self._kept.pop(record.intention, None)
        if kept is None:
            if record.intention in self.graph:
                raise Corrupt(f"intention {record.intention.hex()} is witnessed twice")
            raise Corrupt(
                f"witness record {len(self.log) + 1} names {record.intention.hex()}: it is not here"
            )
        accepted = kept[0]
        self._check_parents(accepted)
        self.log.append(record)
        if self._check is SignatureCheck.EVERY:
            self._verify_record(record)
        self._last = record
        self._add(accepted, record)

    def _add(self, accepted: Accepted, record: Witness) -> None:
        node = self.graph.add(accepted)
        self.evidence.pop(node.hash, None)  # it was learned from a snapshot
        self._effective.watch(node)
        if not self._effective.is_clamped(node):
            self.clock = max(self.clock, node.hlc)
        self.fingerprint ^= int.from_bytes(accepted.hash)
        self.reference_ms = reference_after(self.reference_ms, record.wall_ms, self._bounds.drift_ms)

    def _fold(self, kind: ItemKind, payload: bytes) -> None:
        if kind is ItemKind.ENVELOPE:
            self._keep(Received.decode(payload))
        elif kind is ItemKind.WITNESS:
            self.witness(Witness.decode(payload))
        elif kind is ItemKind.DROPPED:
            self._take(payload)
        elif kind is ItemKind.EVIDENCE:
            accepted = self._take(payload)
            self._check_parents(accepted)
            sibling = self.graph.sibling_of(accepted)
            if sibling is None:
                raise Corrupt(f"evidence {payload.hex()} contradicts nothing")
            intention = accepted.intention
            self.evidence[payload] = Proof(
                intention.author, intention.store_prev, sibling.envelope, accepted.envelope
            )
        elif kind is ItemKind.CLOCK:
            self.clock = max(self.clock, decode_clock(payload))
        elif kind is ItemKind.SETTLED:
            self._stubs(payload)
        elif kind is ItemKind.SETTLEMENT:
            self._settle(Settlement.decode(payload))
        elif kind is ItemKind.HEADER:
            if JournalHeader.decode(payload) != self.header:
                raise Corrupt("a second header is another store's")
        elif kind is ItemKind.RESET and self._began:
            self._clear()
        else:
            raise Corrupt(f"{kind.name} has no place here")

    def _stubs(self, payload: bytes) -> None:
        """Pruned intentions, which were witnessed here: their records are chained like any other."""
        for stub in decode_stubs(payload):
            accepted = stub.accepted(self.graph, self.header.store_id)
            if stub.hash in self.graph:
                raise Corrupt(f"intention {stub.hash.hex()} is witnessed twice")
            self._kept.pop(stub.hash, None)  # it floated, and was learned from a snapshot
            record = Witness(self.header.store_id, stub.hash, stub.wall_ms, self.log.last_hash, NO_SIGNATURE)
            self.log.append(record)
            self._add(accepted, record)

    def _settle(self, settlement: Settlement) -> None:
        """History was pruned after this many records; what is left of it is what the node signed."""
        seq = settlement.seq
        if seq > len(self.log) or self.log.hash_at(seq) != settlement.log_hash:
            raise Corrupt(f"settlement: it is not of this log's first {seq} records")
        if not settlement.is_signed_by(self.header.node, self.header.store_id):
            raise Corrupt(f"settlement: not signed by node {self.header.node.hex()}")
        nodes = settled_nodes(self.graph, settlement.frontier, settlement.kept, seq)
        if digest_of(nodes, (self.log.record(node.seq).wall_ms for node in nodes)) != settlement.digest:
            raise Corrupt("settlement: what is left of pruned history is not what was signed")
        for node in nodes:
            node.settle()
        self.settlement = settlement

    def _keep(self, received: Received) -> None:
        envelope = Envelope.decode(received.envelope)
        # Bounds may have been changed since; they are for what comes in.
        intention = decode(envelope.body)
        if intention.store_id != self.header.store_id:
            raise Corrupt(f"an intention of store {intention.store_id.hex()} in a journal of another")
        accepted = Accepted(hash_of(envelope.body), intention, envelope, received.linked)
        if self._check is SignatureCheck.EVERY and not received.linked and not verify(*envelope):
            raise Corrupt(f"intention {accepted.hash.hex()} is not signed by its author")
        if accepted.hash in self.graph or accepted.hash in self._kept:
            raise Corrupt(f"intention {accepted.hash.hex()} is there twice")
        self._kept[accepted.hash] = (accepted, received.received_ms)

    def _take(self, name: bytes) -> Accepted:
        kept = self._kept.pop(name, None)
        if kept is None:
            raise Corrupt(f"intention {name.hex()} does not wait")
        return kept[0]

    def _check_parents(self, accepted: Accepted) -> None:
        intention = accepted.intention
        for parent in (intention.store_prev, *intention.condition):
            if parent != ZERO_HASH and parent not in self.graph:
                raise Corrupt(f"intention {accepted.hash.hex()} stands before its parent {parent.hex()}")
        prev = self.graph.nodes.get(intention.store_prev)
        if prev is not None and prev.author != intention.author:
            raise Corrupt(f"intention {accepted.hash.hex()} follows another author's")

    def _verify_record(self, record: Witness) -> None:
        if not record.is_signed_by(self.header.node):
            text = f"the record of {record.intention.hex()} is not signed by node {self.header.node.hex()}"
            raise Corrupt(text)

    def _refloat(self, accepted: Accepted, received_ms: int) -> None:
        intention = accepted.intention
        missing = [
            parent
            for parent in (intention.store_prev, *intention.condition)
            if parent != ZERO_HASH and parent not in self.graph
        ]
        if missing:
            self.floating.add(accepted, missing, received_ms)
        else:
            self.ready.append(accepted)
