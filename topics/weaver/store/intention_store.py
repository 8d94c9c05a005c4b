"""`IntentionStore`: the truth. Every intention this node accepted, and the order in which it witnessed them.

One journal holds it all. An intention and its witness record are one atomic write, and so is a whole call unless it is
large; a call returns when all of it is on stable storage (replication 13). All tables are folds of the journal and are
made again at opening. Only witnessed intentions are counted, fingerprinted and handed out; floating ones are this
node's own business.

Time: `T` is the newest system time this node ever saw, the persisted one of its witness records included, and goes back
only if the clock was corrected (`reference_after`). It is not raised by what peers send, or a chain of stamps, each
within the drift of the one before, could carry the clock anywhere.

A write that fails leaves memory ahead of the journal, so the store then refuses every call until it is opened again.
Only one thread may use it at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from topics.crypto.hashing import HASH_SIZE
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt, Fatal, TopicsError, invalid
from topics.kernel.limits import MIB, U32_MAX, U64_MAX
from topics.kernel.ports import Clock, Journal
from topics.weaver.graph.effective import EffectiveClock, reference_after
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.bounds import DEFAULT, Bounds
from topics.weaver.model.envelope import Accepted, Envelope, accept, accept_segment
from topics.weaver.model.equivocation import Proof
from topics.weaver.model.frontier import NO_FRONTIER, Frontier
from topics.weaver.model.hlc import HLC, ZERO
from topics.weaver.model.intention import STORE_ID_SIZE, ZERO_HASH, encode, hash_of
from topics.weaver.store.floating import Floating, MissingDep
from topics.weaver.store.intake import Intake
from topics.weaver.store.journal_items import KIND_MAX, ItemKind, JournalHeader, encode_clock, pack, unpack
from topics.weaver.store.replay import Replay, SignatureCheck
from topics.weaver.store.report import IngestReport, IngestResult, Outcome
from topics.weaver.store.witness import Witness, WitnessLog, witness

WRITE_ITEMS: Final = 4096  # of one atomic write
WRITE_BYTES: Final = 16 * MIB


class Committed(NamedTuple):
    """What a local write became: its hash, and the envelopes to hand to peers, merge nodes before the write itself."""

    hash: bytes
    envelopes: tuple[Envelope, ...]


class IntentionStore:
    """One store of one node. Open it with `open_store`."""

    __slots__ = (
        "_failed", "_journal", "_node", "_strict", "_time", "bounds", "clock", "effective", "evidence",
        "fingerprint_int", "floating", "graph", "kind", "log", "reference_ms", "settlement", "store_id",
    )  # fmt: skip

    def __init__(
        self, replay: Replay, journal: Journal, node: KeyPair, time: Clock, effective: EffectiveClock, *,
        bounds: Bounds, strict_linearity: bool,
    ) -> None:  # fmt: skip
        self.store_id: Final[bytes] = replay.header.store_id
        self.kind: Final[str] = replay.header.kind
        self.bounds: Final = bounds
        self.graph: Final[Graph] = replay.graph
        self.log: Final[WitnessLog] = replay.log
        self.floating: Final[Floating] = replay.floating
        self.evidence: Final[dict[bytes, Proof]] = replay.evidence
        self.effective: Final = effective
        self.clock = replay.clock
        self.reference_ms = replay.reference_ms
        self.fingerprint_int = replay.fingerprint
        self.settlement = replay.settlement
        self._journal = journal
        self._node = node
        self._strict = strict_linearity
        self._time = time
        self._failed = False
        self.observe_time()
        if replay.ready:
            # A write of several pieces ended between two of them.
            self._carry([], [], max(time.now_ms(), 0), replay.ready)

    # Reading.

    def __len__(self) -> int:
        """How many intentions are witnessed."""
        return len(self.graph)

    def __contains__(self, name: bytes) -> bool:
        """Whether the intention with that hash is witnessed."""
        return name in self.graph

    @property
    def frontier(self) -> Frontier:
        return NO_FRONTIER if self.settlement is None else self.settlement.frontier

    @property
    def node_key(self) -> bytes:
        """The public key that signs this node's witness records."""
        return self._node.public

    @property
    def fingerprint(self) -> bytes:
        """XOR of the hashes of all witnessed intentions, zero for none (replication 5.8)."""
        return self.fingerprint_int.to_bytes(HASH_SIZE)

    def envelope(self, name: bytes) -> Envelope | None:
        """A witnessed intention as it came; None if it is not witnessed."""
        node = self.graph.nodes.get(name)
        return None if node is None else node.envelope

    def node(self, name: bytes) -> Node:
        """A witnessed intention's place in the graph.

        Raises:
            Rejected: not witnessed.
        """
        found = self.graph.nodes.get(name)
        if found is None:
            raise invalid("hash", f"{name.hex()} is not witnessed here")
        return found

    def tip_of(self, author: bytes) -> bytes:
        """The hash a new intention of the author follows; zero if it wrote nothing."""
        tips = self._tips(author)
        return tips[0].hash if tips else ZERO_HASH

    def missing(self) -> list[MissingDep]:
        """What floating intentions wait for and nobody has sent, each once."""
        return self._missing_of(float_.accepted.hash for float_ in self.floating)

    def proofs(self) -> list[Proof]:
        """Every equivocation known of which neither side was pruned before the other came."""
        forks = [
            Proof(
                fork.second.author,
                ZERO_HASH if fork.second.prev is None else fork.second.prev.hash,
                fork.first.envelope,
                fork.second.envelope,
            )
            for fork in self.graph.forks
        ]
        return [proof for proof in (*forks, *self.evidence.values()) if proof.is_whole]

    def records(self, seq: int, limit: int) -> list[Witness]:
        """Up to `limit` witness records from number `seq` on (0 is 1)."""
        return self.log.since(seq, limit)

    # Changing.

    def ingest(self, envelopes: Iterable[Envelope]) -> IngestReport:
        """Take intentions from peers, in any order: each is accepted or refused for itself (replication 5.2).

        Raises:
            Fatal: the journal failed, now or before.
        """
        now_ms = self._begin()
        batch: list[Accepted] = []
        outcomes = [self._accept(envelope, batch) for envelope in envelopes]
        return self._carry(batch, outcomes, now_ms)

    def ingest_segment(self, segment: Sequence[Envelope]) -> IngestReport:
        """Take a chain of one author, oldest first, by the signature of its last (replication 5.7).

        Raises:
            Corrupt, Rejected: a link is broken; nothing was taken.
            Fatal: the journal failed.
        """
        now_ms = self._begin()
        batch = accept_segment(segment, self.store_id, self.bounds)
        return self._carry(batch, [accepted.hash for accepted in batch], now_ms)

    def submit(self, key: KeyPair, ops: bytes, parents: Iterable[bytes] = ()) -> Committed:
        """Sign and witness a change of `key`'s owner that cites `parents`. More of them than a condition holds become
        a tree of merge nodes without ops; all of it is one atomic write.

        Raises:
            Rejected: a parent is not witnessed here, or the ops are too large.
            Fatal: the journal failed.
        """
        now_ms = self._begin()
        tips = self._tips(key.public)
        # Own tips but the first are there after an equivocation: citing them makes one of them again.
        cited = [*(self.node(name) for name in dict.fromkeys(parents) if name != ZERO_HASH), *tips[1:]]
        stamp = self._stamp_above(cited, tips, now_ms)
        batch: list[Accepted] = []
        prev, level = self.tip_of(key.public), sorted({node.hash for node in cited})
        while len(level) > self.bounds.condition_hashes:
            above = []
            for at in range(0, len(level), self.bounds.condition_hashes):
                group = level[at : at + self.bounds.condition_hashes]
                if len(group) > 1:
                    prev = self._seal(key, stamp, prev, group, b"", batch)
                    stamp = stamp.next()
                    group = [prev]
                above += group
            level = above
        name = self._seal(key, stamp, prev, level, ops, batch)
        self.clock = stamp
        assert all(len(accepted.intention.condition) <= self.bounds.condition_hashes for accepted in batch)
        assert batch[-1].hash == name
        self._carry(batch, [accepted.hash for accepted in batch], now_ms)
        return Committed(name, tuple(accepted.envelope for accepted in batch))

    def expire(self) -> tuple[bytes, ...]:
        """Let go the floating intentions that are past their age; their hashes."""
        return self._carry([], [], self._begin()).dropped

    def observe_time(self) -> bool:
        """Look at the clock. True if stamps that were from the future are not any more, or others are now."""
        changed = self.effective.observe(self._time.now_ms(), self.reference_ms, self.graph.order)
        self.reference_ms = min(self.reference_ms, self.effective.now_ms)
        if self.clock.is_future(self.effective.now_ms, self.bounds.drift_ms):
            # A wrong time has carried it off: it goes on above what is believed.
            nodes = self.graph.order
            self.clock = max((n.hlc for n in nodes if not self.effective.is_clamped(n)), default=ZERO)
        return changed

    def write(self, units: Iterable[list[bytes]], ready: Sequence[Accepted] = ()) -> None:
        """Write what `prune` staged, no unit in two; then `ready` waits for nothing any more. Raises `Fatal`."""
        now_ms = self._begin()
        self._failed = True
        for items in _writes(units):
            self._journal.append(items)
        self._carry([], [], now_ms, ready)

    def sign(self, message: bytes) -> bytes:
        """With the key of this node's witness records."""
        return self._node.sign(message)

    # What a change is made of.

    def _begin(self) -> int:
        if self._failed:
            raise Fatal("the Weaver's journal failed: open the store again, what it holds is the truth")
        self.observe_time()
        return max(self._time.now_ms(), 0)

    def _accept(self, envelope: Envelope, batch: list[Accepted]) -> IngestResult | bytes:
        name = hash_of(envelope.body)
        if name in self.graph or name in self.floating or name in self.evidence:
            return IngestResult(Outcome.KNOWN, name)
        try:
            batch.append(accept(envelope, self.store_id, self.bounds))
        except Corrupt as error:
            return IngestResult(Outcome.REFUSED, None, error)
        except TopicsError as error:
            return IngestResult(Outcome.REFUSED, name, error)
        return name

    def _carry(
        self, batch: list[Accepted], outcomes: list[IngestResult | bytes], now_ms: int, resumed: Sequence[Accepted] = ()
    ) -> IngestReport:  # fmt: skip
        """Stage the batch, write it, report."""
        self._failed = True  # until it is written

        def record(node: Node) -> bytes:
            return self.extend(node, now_ms)

        intake = Intake(
            self.graph, self.floating, self.evidence, record, received_ms=now_ms, strict=self._strict
        )
        settled = intake.take(batch, resumed)
        intake.forget_overdue()
        units = intake.units
        if intake.witnessed:
            newest = max(self.effective.of(node) for node in intake.witnessed)
            self.clock = self.clock.update(newest, now_ms) if newest > self.clock else self.clock
            units.append([encode_clock(self.clock)])
        for items in _writes(units):
            self._journal.append(items)
        self._failed = False
        assert len(self.log) == len(self.graph)
        results: list[IngestResult] = []
        told: set[bytes] = set()
        for outcome in outcomes:
            if isinstance(outcome, IngestResult):
                results.append(outcome)
            else:
                results.append(IngestResult(Outcome.KNOWN, outcome) if outcome in told else settled[outcome])
                told.add(outcome)
        floating = [accepted.hash for accepted in batch if accepted.hash in self.floating]
        return IngestReport(
            tuple(results),
            tuple(node.hash for node in intake.witnessed),
            tuple(self._missing_of(floating)),
            tuple(intake.proofs),
            tuple(intake.dropped),
        )

    def extend(self, node: Node, now_ms: int) -> bytes:
        """The record of a new node, as an item."""
        record = witness(self._node, self.store_id, node.hash, wall_ms=now_ms, prev=self.log.last_hash)
        self.log.append(record)
        assert len(self.log) == node.seq == len(self.graph)
        self.effective.watch(node)
        self.fingerprint_int ^= int.from_bytes(node.hash)
        self.reference_ms = reference_after(self.reference_ms, now_ms, self.bounds.drift_ms)
        return pack(ItemKind.WITNESS, record.encode())

    def _stamp_above(self, cited: list[Node], tips: tuple[Node, ...], now_ms: int) -> HLC:
        """Above the clock and all parents as they count here, the author's own last stamp among them."""
        newest = max(self.clock, *map(self.effective.of, (*cited, *tips)), ZERO)
        if newest == (U64_MAX, U32_MAX):
            raise invalid("hlc", "the newest stamp is the last there is; set the clock")
        stamp = newest.tick(now_ms)
        assert all(stamp > self.effective.of(tip) for tip in tips)  # P32
        return stamp

    def _seal(
        self, key: KeyPair, stamp: HLC, prev: bytes, condition: list[bytes], ops: bytes, batch: list[Accepted]
    ) -> bytes:  # fmt: skip
        body = encode(key.public, stamp, self.store_id, prev, condition, ops)
        accepted = accept(Envelope.sealed(key, body), self.store_id, self.bounds, linked=True)
        batch.append(accepted._replace(linked=False))
        return accepted.hash

    def _tips(self, author: bytes) -> tuple[Node, ...]:
        """Deepest first, so that a chain goes on where it is longest."""
        return tuple(sorted(self.graph.tips_of(author), key=lambda tip: (-tip.depth, tip.hash)))

    def _missing_of(self, names: Iterable[bytes]) -> list[MissingDep]:
        found: dict[bytes, MissingDep] = {}
        for name in names:
            float_ = self.floating.get(name)
            assert float_ is not None
            for dep in self.floating.missing_deps(name, self.tip_of(float_.accepted.intention.author)):
                found.setdefault(dep.hash, dep)
        return list(found.values())


def _writes(units: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Cut into writes that a journal takes; a unit is never cut."""
    write: list[bytes] = []
    size = 0
    for unit in units:
        unit_size = sum(map(len, unit))
        if write and (len(write) + len(unit) > WRITE_ITEMS or size + unit_size > WRITE_BYTES):
            yield write
            write, size = [], 0
        assert len(unit) <= WRITE_ITEMS
        write += unit
        size += unit_size
    if write:
        yield write


def open_store(
    journal: Journal,
    *,
    store_id: bytes,
    node: KeyPair,
    clock: Clock,
    kind: str = "kv",
    bounds: Bounds = DEFAULT,
    strict_linearity: bool = False,
    check: SignatureCheck = SignatureCheck.LAST,
) -> IntentionStore:
    """The store that the journal holds; an empty journal becomes a new one.

    Raises:
        Rejected: the journal is of another store, type or node.
        Corrupt: the journal is damaged; nothing of it was used.
        Fatal: the journal failed.
    """
    if len(store_id) != STORE_ID_SIZE:
        raise invalid("store_id", f"{len(store_id)} bytes where {STORE_ID_SIZE} belong")
    if not 1 <= len(kind.encode()) <= KIND_MAX:
        raise invalid("kind", f"a name of 1 to {KIND_MAX} bytes")
    wanted = JournalHeader(store_id, node.public, kind)
    effective = EffectiveClock(bounds.drift_ms)
    effective.advance(clock.now_ms())
    items = iter(journal.read())
    first = next(items, None)
    if first is None:
        journal.append([wanted.encode()])
    else:
        check_header(first, wanted)
    replay = Replay(wanted, bounds, effective, check)
    replay.run(items)
    return IntentionStore(
        replay, journal, node, clock, effective, bounds=bounds, strict_linearity=strict_linearity
    )


def check_header(item: bytes, wanted: JournalHeader) -> None:
    """Raises `Corrupt` if the item is no header, `Rejected` if it is another's."""
    kind, payload = unpack(item)
    if kind is not ItemKind.HEADER:
        raise Corrupt(f"Weaver journal, item 1: {kind.name} where the header belongs")
    header = JournalHeader.decode(payload)
    for field in ("store_id", "kind", "node"):
        found, expected = getattr(header, field), getattr(wanted, field)
        if found != expected:
            text = [value.hex() if isinstance(value, bytes) else value for value in (found, expected)]
            raise invalid(field, f"the journal is of {text[0]}, not {text[1]}")
