"""Twenty Weaver nodes on one thread: partitions, skewed clocks, restarts, liars and a bad network, all from one seed.

Theory. Each node is the real thing: store, state, roster and `Exchange` over journals in memory, with a clock that is
off by hours. The mesh carries what lies in the outboxes, in order a connection, after a delay, and plays the adversary:
messages are lost, repeated and changed in one bit, streams break, envelopes are forged in the name of others. A node
that is restarted keeps its journals and nothing else.

In the end the faults stop, everybody can reach everybody in some hops, and time goes on until no node has anything to
do. Then all of them must hold the same intentions, show the same bytes for every key, and hold nothing that its author
did not sign. Mesh and nodes draw from one seeded generator and iterate nothing unordered, so a seed is one history.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import Final, NamedTuple

import attrs

from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.simulation.mesh.faults import QUIET, Faults
from topics.simulation.mesh.node import MeshNode, SkewedClock
from topics.testing.clock import ManualClock
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import verify
from topics.weaver.node.outbox import GOSSIP, PeerStream
from topics.weaver.sync.counts import NodeCounts
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.sync.messages import Gossip
from topics.weaver.sync.wire import encode

SKEW_MS: Final = 2 * 3_600_000  # twice the drift: some stamps are from the future for some nodes
LATENCY_MS: Final = 60
CARRY_MAX: Final = 64  # messages a node hands over at once
REMEMBERED_MAX: Final = 256  # messages kept to be repeated
KEYS: Final = 12
SETTLE_STEPS_MAX: Final = 4000


class Parcel(NamedTuple):
    """A message on its way. `life`: of the connection that carries it."""

    due_ms: int
    order: int
    source: int
    target: int
    life: int
    stream: PeerStream  # as the target sees it
    data: bytes
    ends: bool


@attrs.frozen
class MeshReport:
    """What a run moved, and the hash of its history."""

    seed: int
    nodes: int
    intentions: int
    messages: int
    bytes: int
    rounds: int
    sessions: int
    failed: int
    walks: int
    acks: int
    refused: int
    restarts: int
    settle_ms: int
    trace: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.nodes} nodes, {self.intentions} intentions each; {self.messages} messages, "
            f"{self.bytes} bytes, {self.rounds} rounds in {self.sessions} sessions ({self.failed} failed), "
            f"{self.walks} walks, {self.acks} acks, {self.refused} refused, {self.restarts} restarts; "
            f"settled in {self.settle_ms / 1000:.0f} s of its time"
        )


class Mesh:
    """One run. `node_count` nodes on a ring with chords; `run` plays it to the end and checks it."""

    def __init__(
        self, seed: int, *, node_count: int = 20, faults: Faults | None = None, options: ExchangeOptions | None = None
    ) -> None:  # fmt: skip
        self.seed: Final = seed
        self.random: Final = random.Random(f"mesh {seed}")
        self.clock: Final = ManualClock()
        self.faults = Faults() if faults is None else faults
        self.options: Final = ExchangeOptions() if options is None else options
        self.nodes: Final[list[MeshNode]] = []
        self.trace = blake3(b"")
        self.restarts = self.prunings = self.glitches = 0
        self._parcels: list[Parcel] = []
        self._order = 0
        self._lives: dict[tuple[int, int], int] = {}  # connections that are up
        self._life = 0
        self._arrivals: dict[tuple[int, int], int] = {}
        self._remembered: list[Parcel] = []
        self._island: list[int] = [0] * node_count
        self._past: list[NodeCounts] = []
        self._touched: dict[int, None] = {}  # nodes that something happened to since they were last looked at
        self._dues: Final = [0] * node_count  # when each has something to do, in the mesh's time
        for number in range(node_count):
            self._found(number)
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.roster.admit(other.key.public)
        self._numbers: Final = {node.key.public: node.number for node in self.nodes}
        self._edges: Final = self._ring_with_chords()
        self._connect()

    # Playing.

    def run(self, steps: int = 120) -> MeshReport:
        """Steps under faults, then peace; raises `AssertionError` with the seed if the nodes do not agree."""
        for _ in range(steps):
            self.step()
        self.faults = QUIET
        for node in self.nodes:
            node.clock.correct()
            self._touched[node.number] = None
        self._heal()
        began_ms = self.clock.now_ms()
        self._settle()
        # All skewed clocks pass all stamps, so nobody's is from the future any more.
        self.clock.advance(2 * SKEW_MS)
        self._settle()
        self.check()
        return self._report(self.clock.now_ms() - began_ms - 2 * SKEW_MS)

    def step(self) -> None:
        """One thing happens, then some time passes."""
        draw, faults = self.random, self.faults
        node = draw.choice(self.nodes)
        if draw.random() < faults.partition:
            self._partition()
        if draw.random() < faults.restart:
            self._fall(node)
        if draw.random() < faults.forged:
            self._forge()
        if draw.random() < faults.pruned:
            self._prune(node)
        if faults.glitched and draw.random() < faults.glitched:
            self.glitches += node.clock.glitch()
            self._touched[node.number] = None
        if draw.random() < 0.6:
            self.write(node)
        self._pass(self.clock.now_ms() + draw.choice((5, 50, 400, 3000)))

    def write(self, node: MeshNode) -> None:
        """Put or delete one or two keys."""
        keys = [b"key %d" % self.random.randrange(KEYS) for _ in range(self.random.choice((1, 1, 2)))]
        value = self.random.randbytes(self.random.choice((0, 3, 40)))
        value_or_none = None if self.random.random() < 0.2 else value
        committed = node.weaver.batch(dict.fromkeys(keys, value_or_none))
        node.exchange.committed(committed.envelopes)
        self._touched[node.number] = None

    def restart(self, node: MeshNode) -> None:
        """The process dies and starts again: connections and everything in memory are gone."""
        self.restarts += 1
        for other in self.nodes:
            self._cut(node.number, other.number)
        self._past.append(node.exchange.counts)
        node.start()
        self._connect()

    def _fall(self, node: MeshNode) -> None:
        """A restart, perhaps from a copy; perhaps a copy is made first."""
        if node.backup is not None and self.random.random() < self.faults.restored:
            node.restore()
        elif self.faults.restored:
            node.save()
        self.restart(node)

    def _prune(self, node: MeshNode) -> None:
        """The node attests what it saw, and drops what all have attested."""
        node.exchange.attest()
        self.prunings += node.exchange.prune(node.weaver.state) is not None
        self._touched[node.number] = None

    def _found(self, number: int) -> None:
        seed = blake3(b"node %d of %d" % (number, self.seed))
        clock = SkewedClock(self.clock, self.random.randrange(-SKEW_MS, SKEW_MS))
        self.nodes.append(MeshNode(number, KeyPair.from_seed(seed), clock, self.options))

    # The network.

    def _ring_with_chords(self) -> list[tuple[int, int]]:
        count = len(self.nodes)
        ring = {(n, (n + 1) % count) for n in range(count)}
        chords = {tuple(self.random.sample(range(count), 2)) for _ in range(count if count > 2 else 0)}
        return sorted({(min(a, b), max(a, b)) for a, b in ring | chords if a != b})

    def _connect(self) -> None:
        """Bring up every connection that can be."""
        for a, b in self._edges:
            if (a, b) not in self._lives and self._island[a] == self._island[b]:
                self._life += 1
                self._lives[a, b] = self._life
                for one, other in ((a, b), (b, a)):
                    assert self.nodes[one].exchange.connected(self.nodes[other].key.public)
                    self._touched[one] = None

    def _cut(self, a: int, b: int) -> None:
        edge = (min(a, b), max(a, b))
        if self._lives.pop(edge, None) is not None:
            self.nodes[a].exchange.disconnected(self.nodes[b].key.public)
            self.nodes[b].exchange.disconnected(self.nodes[a].key.public)
            self._touched |= {a: None, b: None}

    def _partition(self) -> None:
        islands = self.random.choice((1, 2, 3))
        self._island = [self.random.randrange(islands) for _ in self.nodes]
        for a, b in list(self._lives):
            if self._island[a] != self._island[b]:
                self._cut(a, b)
        self._connect()

    def _heal(self) -> None:
        self._island = [0] * len(self.nodes)
        self._connect()

    def _collect(self) -> None:
        """Take what lies in the outboxes on its way, and ask when there will be more."""
        while self._touched:
            node = self.nodes[min(self._touched)]
            del self._touched[node.number]
            for sending in node.exchange.take_outbox(CARRY_MAX):
                target = self._numbers[sending.stream.peer]
                seen = PeerStream(node.key.public, not sending.stream.mine, sending.stream.number)
                self._post(node.number, target, seen, sending.data, ends=sending.ends)
                self._touched[node.number] = None
            wait_ms = node.exchange.deadline_ms - node.clock.now_ms()
            self._dues[node.number] = self.clock.now_ms() + max(wait_ms, 1)

    def _post(self, source: int, target: int, stream: PeerStream, data: bytes, *, ends: bool) -> None:
        life = self._lives.get((min(source, target), max(source, target)))
        if life is None:
            return
        gossip = stream.number == GOSSIP
        if gossip and self.random.random() < self.faults.lost:
            return
        if not gossip and self.random.random() < self.faults.broken:
            self._break(source, target, stream)
            return
        if self.random.random() < self.faults.changed:
            at = self.random.randrange(len(data))
            data = data[:at] + bytes((data[at] ^ 1 << self.random.randrange(8),)) + data[at + 1 :]
        self._send(source, target, life, stream, data, ends=ends)
        if self.random.random() < self.faults.repeated and self._remembered:
            old = self.random.choice(self._remembered)
            now_life = self._lives.get((min(old.source, old.target), max(old.source, old.target)))
            if now_life is not None:
                self._send(old.source, old.target, now_life, old.stream, old.data, ends=False)

    def _send(self, source: int, target: int, life: int, to: PeerStream, data: bytes, *, ends: bool) -> None:
        """A connection is ordered: nothing overtakes what was sent before."""
        self._order += 1
        soonest_ms = self._arrivals.get((source, target), 0)
        due_ms = max(self.clock.now_ms() + self.random.randrange(1, LATENCY_MS), soonest_ms)
        self._arrivals[source, target] = due_ms
        parcel = Parcel(due_ms, self._order, source, target, life, to, data, ends)
        heappush(self._parcels, parcel)
        if len(self._remembered) < REMEMBERED_MAX:
            self._remembered.append(parcel)
        else:
            self._remembered[self.random.randrange(REMEMBERED_MAX)] = parcel

    def _break(self, source: int, target: int, stream: PeerStream) -> None:
        """Both sides hear that the stream is gone."""
        self.nodes[target].exchange.closed(stream)
        back = PeerStream(self.nodes[target].key.public, not stream.mine, stream.number)
        self.nodes[source].exchange.closed(back)
        self._touched |= {source: None, target: None}

    def _deliver(self, parcel: Parcel) -> None:
        edge = (min(parcel.source, parcel.target), max(parcel.source, parcel.target))
        if self._lives.get(edge) != parcel.life:
            return
        self.trace = blake3(
            self.trace + b"%d %d %d " % (parcel.due_ms, parcel.source, parcel.target) + parcel.data
        )
        node = self.nodes[parcel.target]
        node.exchange.receive(parcel.stream, parcel.data)
        if parcel.ends:
            node.exchange.closed(parcel.stream)
        for peer in list(node.exchange.ahead):
            node.exchange.catch_up(peer)  # the program believes its peers
        node.weaver.state.project()
        self._touched[node.number] = None

    # Time.

    def _pass(self, until_ms: int) -> None:
        """Everything that happens up to a time: deliveries and what is due at the nodes."""
        while True:
            self._collect()
            next_ms = min(self._dues)
            if self._parcels:
                next_ms = min(next_ms, self._parcels[0].due_ms)
            if next_ms > until_ms:
                break
            self.clock.set(max(next_ms, self.clock.now_ms()))
            while self._parcels and self._parcels[0].due_ms <= self.clock.now_ms():
                self._deliver(heappop(self._parcels))
            self._tick()
        self.clock.set(max(until_ms, self.clock.now_ms()))

    def _tick(self) -> None:
        for node in self.nodes:
            if self.clock.now_ms() >= self._dues[node.number]:
                node.exchange.tick()
                node.weaver.state.project()
                self._touched[node.number] = None
                self._dues[node.number] = self.clock.now_ms() + 1

    def _settle(self) -> None:
        """Until all hold the same and nobody has anything to say."""
        for _ in range(SETTLE_STEPS_MAX):
            self._pass(self.clock.now_ms() + 1000)
            same = len({node.weaver.store.fingerprint for node in self.nodes}) == 1
            if same and not self._parcels and all(node.exchange.is_quiet for node in self.nodes):
                return
        raise AssertionError(f"seed {self.seed}: the nodes do not come to rest")

    # Lies, and the truth.

    def _forge(self) -> None:
        """A peer passes on what an author never signed."""
        edge = self.random.choice(sorted(self._lives)) if self._lives else None
        known = [n.envelope for node in self.nodes for n in node.weaver.store.graph.order[-3:]]
        if edge is None or not known:
            return
        true = self.random.choice(known)
        at = self.random.randrange(len(true.body))
        changed = (
            true.body[:at] + bytes((true.body[at] ^ 1 << self.random.randrange(8),)) + true.body[at + 1 :]
        )
        stranger = KeyPair.from_seed(self.random.randbytes(32))
        lies = (
            Envelope(changed, true.signature),
            Envelope(true.body, stranger.sign(blake3(true.body))),
            Envelope(changed, stranger.sign(blake3(changed))),
        )
        source, target = edge
        stream = PeerStream(self.nodes[source].key.public, mine=False, number=GOSSIP)
        data = encode(Gossip(self.random.choice(lies)))
        self._send(source, target, self._lives[edge], stream, data, ends=False)

    def check(self) -> None:
        """All nodes hold the same intentions, all signed, and show the same bytes."""
        first = self.nodes[0]
        authors = {node.key.public for node in self.nodes}
        liars = {author for author in authors if first.weaver.store.graph.has_equivocated(author)}
        for node in self.nodes:
            where = f"seed {self.seed}, node {node.number}"
            store, state = node.weaver.store, node.weaver.state
            assert store.graph.nodes.keys() == first.weaver.store.graph.nodes.keys(), f"{where}: another set"
            assert store.fingerprint == first.weaver.store.fingerprint, where
            assert state.digest() == first.weaver.state.digest(), f"{where}: another state"
            assert node.shown() == first.shown(), f"{where}: reads show something else"
            assert state.status.stall is None, where
            assert {a for a in authors if store.graph.has_equivocated(a)} == liars, (
                f"{where}: other equivocators"
            )
            assert all(proof.is_valid() for proof in store.proofs()), where
        for known in first.weaver.store.graph.order:
            assert known.author in authors, f"seed {self.seed}: a stranger's intention was taken in"
            signed = known.is_settled or verify(*known.envelope)
            assert signed, f"seed {self.seed}: an unsigned intention was taken in"

    def _report(self, settle_ms: int) -> MeshReport:
        counts = [*self._past, *(node.exchange.counts for node in self.nodes)]

        def total(field: str) -> int:
            return sum(getattr(each, field) for each in counts)

        return MeshReport(
            seed=self.seed,
            nodes=len(self.nodes),
            intentions=len(self.nodes[0].weaver.store),
            messages=total("messages"),
            bytes=total("bytes"),
            rounds=total("rounds"),
            sessions=total("sessions"),
            failed=total("failed"),
            walks=total("walks"),
            acks=total("acks"),
            refused=total("refused"),
            restarts=self.restarts,
            settle_ms=settle_ms,
            trace=self.trace.hex(),
        )
