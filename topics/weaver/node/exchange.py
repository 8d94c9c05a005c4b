"""One node among its peers: who is connected, what is being exchanged with whom, what is due (replication 5.9).

Theory. A driver owns the connections. It tells when a peer has come or gone, hands in the bytes of streams, and
carries away what lies in the outbox. Each exchange has a stream of its own, opened by one side and numbered by it;
number 0 of a connection carries gossip and is never closed. Nothing here waits or reads a socket.

What is committed here is told to every connected peer at once. Everything else is repair: a peer that (re)connects is
synced with, and one of them again each half minute; gossip that does not fit in a peer's outbox, or that leaves a gap,
is made good by a walk along the author's chain or by a session, with the peer that spoke, then with the others. Because
sessions compare whole sets, every repair may fail and be tried again, and no message has to arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from topics.crypto.keys import KeyPair
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.ports import Clock
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import decode as decode_intention
from topics.weaver.node.acks import Acker
from topics.weaver.node.conversations import Conversation, Conversations
from topics.weaver.node.invite import Invite
from topics.weaver.node.outbox import GOSSIP, Outbox, PeerStream, Sending
from topics.weaver.node.partners import Elapsed, Partners
from topics.weaver.node.roster import PeerStatus, Roster
from topics.weaver.state.projection import StateBackend
from topics.weaver.state.prune import prune
from topics.weaver.store.floating import DependencyKind, MissingDep
from topics.weaver.store.report import IngestReport, Outcome
from topics.weaver.store.settled import Settlement
from topics.weaver.sync.bootstrap import START, Clone, ClonePosition, serve_bootstrap
from topics.weaver.sync.catchup import CatchUp, CatchUpStage, SnapshotSource
from topics.weaver.sync.counts import NodeCounts
from topics.weaver.sync.fetch import ChainWalk, WalkStage, serve_chain
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import WALKS_MAX, ExchangeOptions
from topics.weaver.sync.messages import (
    BootstrapRequest,
    ChainRequest,
    Gossip,
    Hello,
    Join,
    Message,
    Refusal,
    SnapshotRequest,
    Welcome,
)
from topics.weaver.sync.ranges import Scheme
from topics.weaver.sync.session import SessionPhase, SyncSession
from topics.weaver.sync.wire import decode


class Exchange:
    """The node's side of all exchanges. `key` signs its acks, and is the one its witness records are signed with."""

    __slots__ = (
        "_clock", "_key", "_machines", "_numbers", "_options", "_outbox", "_partners", "_scheme", "_source",
        "acker", "ahead", "counts", "inventory", "joined", "positions", "roster",
    )  # fmt: skip

    def __init__(
        self, inventory: Inventory, roster: Roster, clock: Clock, key: KeyPair, *,
        options: ExchangeOptions, scheme: Scheme = Scheme.XOR,
    ) -> None:  # fmt: skip
        assert key.public == inventory.store.node_key, "a peer is known by the key of its witness records"
        self.inventory: Final = inventory
        self._clock = Elapsed(clock)
        self.acker: Final = Acker(inventory.store.graph, key.public, self._clock, options)
        self.counts: Final = NodeCounts()
        self.ahead: dict[bytes, None] = {}  # peers that pruned what was never seen here
        self.joined: dict[bytes, bool] = {}  # inviter -> whether it let this node in
        self.positions: dict[bytes, ClonePosition] = {}  # where a clone from a peer goes on
        self.roster: Final = roster
        self._key = key
        self._options = options
        self._scheme = scheme
        self._partners = Partners(options, self._clock.now_ms())
        self._outbox = Outbox(options.outbox_bytes)
        self._machines = Conversations()
        self._source = SnapshotSource(inventory.store)
        self._numbers = GOSSIP

    # What the driver tells.

    def connected(self, peer: bytes) -> bool:
        """A connection is there, and the peer has proved its key. False if it may not connect."""
        if not self.roster.may_connect(peer):
            return False
        assert peer != self._key.public, "nobody connects to itself"
        self._partners.came(peer)
        self._partners.want(peer)
        self._start_wanted()
        return True

    def disconnected(self, peer: bytes) -> None:
        """The connection is gone, and all its streams."""
        self._partners.went(peer)
        self._outbox.forget(peer)
        for stream in self._machines.of(peer):
            self.closed(stream)

    def receive(self, stream: PeerStream, data: bytes) -> None:
        """A message came. What the peer says wrongly ends that stream and nothing else."""
        if stream.peer not in self._partners and not (stream in self._machines or not stream.mine):
            return
        try:
            message = decode(data)
        except (Rejected, Corrupt) as error:
            self._break(stream, error.message)
            return
        joins = isinstance(message, Join) and not stream.mine
        if not joins and not self.roster.may_connect(stream.peer):
            self._break(stream, "this key is no peer here: join with an invite")
            return
        if not self._outbox.has_room(stream.peer):
            self._break(stream, "read the answers there are before asking for more")
        elif isinstance(message, Gossip) is not (stream.number == GOSSIP):
            self._break(stream, f"{type(message).__name__} has no place on stream {stream.number}")
        elif isinstance(message, Gossip):
            self._heard(stream.peer, message.item)
        else:
            machine = self._machines.get(stream)
            if machine is None and not stream.mine:
                self._serve(stream, message)
            elif machine is not None:
                self._advance(stream, machine, message)
        self.acker.notice()
        self._start_wanted()

    def closed(self, stream: PeerStream) -> None:
        """The peer ended a stream, or it broke."""
        self._outbox.end_feed(stream)
        machine = self._machines.get(stream)
        if isinstance(machine, SyncSession | Clone):
            machine.closed()
        if machine is not None:
            self._ended(stream, machine)

    def committed(self, envelopes: Iterable[Envelope]) -> None:
        """A local write is on stable storage: tell every peer."""
        items = list(envelopes)
        self._part_with_revoked()
        for peer in self._partners.connected():
            for item in items:
                self._tell(peer, item)

    def tick(self) -> None:
        """Time has passed: end what is overdue, ack what is due, sync with whom is wanted."""
        self._part_with_revoked()
        for stream, machine in self._machines.timed():
            machine.tick()
            if machine.is_over:
                self._ended(stream, machine)
        now_ms = self._clock.now_ms()
        for stream, silent in self._machines.unanswered(now_ms, self._options.idle_ms):
            self._ended(stream, silent)
        self._partners.tick(now_ms)
        due_ms = self.acker.due_ms
        if due_ms is not None and now_ms >= due_ms:
            self._ack(self.acker.take_ack())
        if now_ms >= self.acker.attest_due_ms:
            self._ack(self.acker.take_attestation())
        self._start_wanted()

    @property
    def deadline_ms(self) -> int:
        """When `tick` next has something to do, by the clock as it goes now."""
        dues = [self.acker.attest_due_ms, self._partners.deadline_ms]
        dues += self._machines.deadlines_ms(self._options.idle_ms)
        if self.acker.due_ms is not None:
            dues.append(self.acker.due_ms)
        return min(dues) - self._clock.lead_ms()

    def take_outbox(self, limit: int) -> list[Sending]:
        """Messages for peers, in order a peer; those left are kept."""
        self._part_with_revoked()
        taken = self._outbox.take(limit)
        self.counts.messages += len(taken)
        self.counts.bytes += sum(len(sending.data) for sending in taken)
        return taken

    # What the program asks for.

    def clone_from(self, peer: bytes) -> Clone:
        """Take in the log of a connected peer, from where the last clone ended."""
        at = self.positions.get(peer, START)
        clone = Clone(self.inventory, self._clock, server=peer, options=self._options, position=at)
        self._open(peer, clone, clone.open())
        return clone

    def join(self, invite: Invite) -> None:
        """Use an invite, over a connection to the inviter; `joined` tells how it ended. Then clone. Raises `Rejected`
        if it is to another store.
        """
        self.roster.trust(invite)
        self._partners.came(invite.inviter)
        self._open(invite.inviter, invite, [invite.join(self._key)])

    def catch_up(self, peer: bytes) -> CatchUp:
        """Take the snapshot of a connected peer that is `ahead`, and so its word for what all have pruned."""
        self.ahead.pop(peer, None)
        machine = CatchUp(self.inventory.store, self._clock.clock, peer)
        self._open(peer, machine, [machine.request()])
        return machine

    def attest(self) -> None:
        """Say now that everything here was seen, if enough time has passed since the last time."""
        self._ack(self.acker.take_attestation())

    def prune(self, state: StateBackend) -> Settlement | None:
        """Drop what every active peer has attested and no read needs; None if there is nothing new."""
        return prune(self.inventory.store, state, [self._key.public, *self.roster.peers(PeerStatus.ACTIVE)])

    def peers_wanted(self) -> list[bytes]:
        """Peers worth a connection: authors of what is missing first, then whoever is behind."""
        authors = [missing.author for missing in self.inventory.store.missing()]
        keys = dict.fromkeys([*authors, *self._partners.wanted()])
        return [key for key in keys if key not in self._partners and self.roster.may_connect(key)]

    @property
    def is_quiet(self) -> bool:
        """Nothing is under way, wanted or waiting to be sent."""
        wanted = any(peer in self._partners for peer in self._partners.wanted())
        return not (self._machines or wanted or len(self._outbox) or self.acker.due_ms is not None)

    def _tell(self, peer: bytes, item: Envelope) -> None:
        if not self._outbox.has_room(peer):
            self.counts.gossip_dropped += 1
            self._partners.want(peer)
            return
        self.counts.gossip_sent += 1
        self._outbox.send(PeerStream(peer, mine=True, number=GOSSIP), [Gossip(item)])

    def _heard(self, peer: bytes, item: Envelope) -> None:
        try:
            author = decode_intention(item.body).author
        except Corrupt:
            author = None
        if author is None or not self.roster.may_gossip(author):
            self.counts.gossip_refused += 1
            return
        report = self.inventory.ingest([item])
        if any(result.outcome is Outcome.REFUSED for result in report.results):
            self.counts.gossip_refused += 1
        elif report.witnessed:
            self.counts.gossip_taken += 1
        self._close_gaps(peer, report)

    def _close_gaps(self, peer: bytes, report: IngestReport) -> None:
        """Walk back along the author's chain; for a missing condition the author is unknown, so sync."""
        for missing in report.missing:
            full = len(self._machines.walks(peer)) >= WALKS_MAX
            if missing.link is not DependencyKind.PREV or full or self._machines.is_syncing(peer):
                self._partners.want(peer)
            elif missing.hash not in self._machines.walked():
                self._walk(peer, missing)

    def _walk(self, peer: bytes, missing: MissingDep) -> None:
        walk = ChainWalk(self.inventory, target=missing.hash, since=missing.since, author=missing.author)
        if walk.walk is WalkStage.FAILED:
            self._partners.want(peer)
            return
        self.counts.walks += 1
        self._open(peer, walk, [walk.request()])

    def _ack(self, parents: Sequence[bytes]) -> None:
        if parents:
            self.counts.acks += 1
            self.committed(self.inventory.store.submit(self._key, b"", parents).envelopes)

    # Streams.

    def _open(self, peer: bytes, machine: Conversation, messages: Sequence[Message]) -> None:
        self._numbers += 1
        stream = PeerStream(peer, mine=True, number=self._numbers)
        self._machines.start(stream, machine)
        if isinstance(machine, ChainWalk | CatchUp | Invite):
            self._machines.asked(stream, self._clock.now_ms())
        self._outbox.send(stream, messages)

    def _serve(self, stream: PeerStream, message: Message) -> None:
        """The first message of a stream that the peer opened says what it is for."""
        assert not stream.mine
        if self._machines.served(stream.peer) + self._outbox.feeds(stream.peer) >= self._options.streams:
            self._break(stream, f"end one of your {self._options.streams} streams before opening more")
        elif isinstance(message, Hello):
            session = self._session(initiator=False)
            self._machines.start(stream, session)
            self._advance(stream, session, message)
        elif isinstance(message, ChainRequest):
            self._outbox.send(stream, [serve_chain(self.inventory, message)])
        elif isinstance(message, BootstrapRequest):
            self._outbox.feed(stream, serve_bootstrap(self.inventory, message))
        elif isinstance(message, SnapshotRequest):
            self._outbox.send(stream, [self._source.part(message.offset)])
        elif isinstance(message, Join):
            self._let_in(stream, message)
        elif not isinstance(message, Refusal):
            self._break(stream, f"{type(message).__name__} opens nothing")

    def _advance(self, stream: PeerStream, machine: Conversation, message: Message) -> None:
        if isinstance(machine, SyncSession | Clone):
            self._outbox.send(stream, machine.receive(message), ends=machine.is_over)
            over = machine.is_over
        elif isinstance(machine, ChainWalk | CatchUp):
            following = machine.receive(message)
            self._outbox.send(stream, [] if following is None else [following])
            self._machines.asked(stream, self._clock.now_ms())
            over = following is None
        else:
            self.joined[machine.inviter] = (
                isinstance(message, Welcome) and message.store_id == machine.store_id
            )
            over = True
        if over:
            self._ended(stream, machine)

    def _let_in(self, stream: PeerStream, join: Join) -> None:
        try:
            if join.node != stream.peer:
                raise Rejected(Code.FORBIDDEN, "the key of the Join is not that of the connection")
            self.roster.redeem(join)
        except Rejected as error:
            self._break(stream, error.message)
            return
        self._partners.came(stream.peer)
        self._outbox.send(stream, [Welcome(self.inventory.store_id)], ends=True)

    def _break(self, stream: PeerStream, reason: str) -> None:
        self.counts.refused += 1
        machine = self._machines.get(stream)
        if stream.number != GOSSIP and (machine is not None or self._outbox.has_room(stream.peer)):
            self._outbox.send(stream, [Refusal(reason)], ends=True)
        if isinstance(machine, SyncSession):
            machine.refuse(reason)
        elif isinstance(machine, Clone):
            machine.closed()
        if machine is not None:
            self._ended(stream, machine)

    def _ended(self, stream: PeerStream, machine: Conversation) -> None:
        self._machines.end(stream)
        if isinstance(machine, SyncSession):
            self._synced(stream, machine)
        elif isinstance(machine, Clone):
            self.positions[stream.peer] = machine.position
        elif isinstance(machine, ChainWalk) and machine.walk is not WalkStage.CLOSED:
            self._partners.want(stream.peer)
        elif isinstance(machine, CatchUp):
            if machine.state is CatchUpStage.ADOPTED:
                self.counts.snapshots += 1
                self.ahead.clear()
            self._partners.postpone(stream.peer, self._clock.now_ms())
        elif isinstance(machine, Invite):
            self.joined.setdefault(machine.inviter, False)

    # Syncing.

    def _part_with_revoked(self) -> None:
        """Who may not connect any more is told nothing more, whether or not its connection still stands."""
        for peer in self._partners.connected():
            if not self.roster.may_connect(peer):
                self.disconnected(peer)

    def _start_wanted(self) -> None:
        """One session a peer at a time."""
        for peer in self._partners.ready(self._clock.now_ms()):
            if not self._machines.is_syncing(peer):
                self._partners.started(peer)
                self.counts.sessions += 1
                session = self._session(initiator=True)
                self._open(peer, session, session.open())

    def _session(self, *, initiator: bool) -> SyncSession:
        return SyncSession(
            self.inventory, self._clock, initiator=initiator, scheme=self._scheme, options=self._options
        )

    def _synced(self, stream: PeerStream, session: SyncSession) -> None:
        assert session.is_over
        self.counts.rounds += session.tally.rounds
        self.counts.fetched += session.tally.taken
        if session.phase is SessionPhase.FINISHED:
            self.counts.finished += 1
            self._partners.synced(stream.peer)
            if session.left:
                self._partners.want(stream.peer)
            return
        self.counts.failed += 1
        if session.phase is SessionPhase.NEEDS_SNAPSHOT:
            self.ahead[stream.peer] = None
        elif stream.mine and session.phase is not SessionPhase.PEER_NEEDS_SNAPSHOT:
            # With the same peer again, later; with the others now, for what it had may be there too.
            self._partners.postpone(stream.peer, self._clock.now_ms())
            if self.inventory.store.missing():
                self._partners.want_all()
