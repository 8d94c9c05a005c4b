"""What the tests of the exchange share: sites with a few writers, and two machines talking over the wire."""

from __future__ import annotations

from tests.support.weaving import NOW, STORE, Site, author
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.node.exchange import Exchange
from topics.weaver.node.outbox import PeerStream
from topics.weaver.node.roster import Roster
from topics.weaver.state.projection import open_state
from topics.weaver.state.prune import prune
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.sync.ranges import Scheme
from topics.weaver.sync.session import SessionPhase, SyncSession
from topics.weaver.sync.wire import decode, encode
from topics.weaver.weaver import Weaver

OPTIONS = ExchangeOptions()


class Place(Site):
    """A node that writes with its own key."""

    def __init__(self, number, *, fast=False, **options):
        super().__init__(NOW, author(number), **options)
        self.inventory = Inventory(self.store, fast=fast)

    def write(self, ops=b"", parents=()):
        self.clock.advance(1)
        return self.store.submit(self.node, ops, parents).hash

    def reopen(self):
        self.inventory = Inventory(self.open())

    @property
    def names(self):
        return set(self.store.graph.nodes)

    def envelopes(self, *names):
        return self.inventory.envelopes(names)

    def session(self, *, initiator, options=OPTIONS, scheme=Scheme.XOR):
        return SyncSession(self.inventory, self.clock, initiator=initiator, scheme=scheme, options=options)


class Line:
    """A stream between two sessions, message by message through the codec. `limit` ends a talk that does not end."""

    def __init__(self, first, second, limit=20_000):
        self.ends = [second, first]
        self.waiting = [(0, message) for message in first.open()]
        self.limit = limit
        self.messages = self.bytes = 0

    def step(self):
        """Deliver one message."""
        to, message = self.waiting.pop(0)
        data = encode(message)
        self.messages, self.bytes = self.messages + 1, self.bytes + len(data)
        assert self.messages <= self.limit, "it does not end"
        self.waiting += [(1 - to, answer) for answer in self.ends[to].receive(decode(data))]

    def run(self):
        while self.waiting:
            self.step()
        return self


def sync(one, other, **options):
    """A whole session, `one` its initiator; both sides and the line."""
    first, second = one.session(initiator=True, **options), other.session(initiator=False, **options)
    line = Line(first, second).run()
    return first, second, line


ALL = 1_000_000


class Peer:
    """One node with an exchange; all of a net share a clock."""

    def __init__(self, number, clock, **options):
        self.key = author(number)
        self.journal = MemoryJournal()
        self.store = open_store(self.journal, store_id=STORE, node=self.key, clock=clock)
        options = ExchangeOptions(**options)
        self.roster = Roster(
            MemoryJournal(), store_id=STORE, key=self.key.public, clock=clock, options=options
        )
        self.exchange = Exchange(Inventory(self.store), self.roster, clock, self.key, options=options)

    def write(self, ops=b"\xffcontent", parents=()):
        committed = self.store.submit(self.key, ops, parents)
        self.exchange.committed(committed.envelopes)
        return committed.hash

    @property
    def names(self):
        return set(self.store.graph.nodes)


class Net:
    """Peers, and who is connected with whom. `lost` may swallow a message on its way."""

    def __init__(self, *numbers, friends=True, **options):
        self.clock = ManualClock(NOW)
        self.peers = [Peer(number, self.clock, **options) for number in numbers]
        self.by_key = {peer.key.public: peer for peer in self.peers}
        self.links = set()
        self.lost = lambda message: False
        self.heard = []
        if friends:
            for one in self.peers:
                for other in self.peers:
                    if one is not other:
                        one.roster.admit(other.key.public)

    def connect(self, one, other):
        self.links |= {(one, other), (other, one)}
        return [a.exchange.connected(b.key.public) for a, b in ((one, other), (other, one))]

    def cut(self, one, other):
        self.links -= {(one, other), (other, one)}
        one.exchange.disconnected(other.key.public)
        other.exchange.disconnected(one.key.public)

    def pump(self):
        """Carry messages until nobody has any."""
        moved = True
        for _ in range(10_000):
            moved = False
            for peer in self.peers:
                for sending in peer.exchange.take_outbox(ALL):
                    moved = True
                    self.carry(peer, sending)
            if not moved:
                return
        raise AssertionError("it does not end")

    def carry(self, peer, sending):
        other = self.by_key[sending.stream.peer]
        message = decode(sending.data)
        if (peer, other) not in self.links or self.lost(message):
            return
        self.heard.append(type(message).__name__)
        stream = PeerStream(peer.key.public, not sending.stream.mine, sending.stream.number)
        other.exchange.receive(stream, sending.data)
        if sending.ends:
            other.exchange.closed(stream)

    def wait(self, ms):
        """Let time pass, with everything that becomes due in it."""
        until = self.clock.now_ms() + ms
        while self.clock.now_ms() < until:
            due = min(peer.exchange.deadline_ms for peer in self.peers)
            self.clock.set(min(max(due, self.clock.now_ms() + 1), until))
            for peer in self.peers:
                peer.exchange.tick()
            self.pump()


def pair(**options):
    net = Net(1, 2, **options)
    net.connect(*net.peers)
    net.pump()
    return net, *net.peers


class Writer(Place):
    """A node with a state, which acks."""

    def __init__(self, number, **options):
        super().__init__(number, **options)
        self.weaver = Weaver(self.store, open_state(self.store, MemoryJournal()), self.node)

    def put(self, key, value=b"v"):
        self.clock.advance(1)
        return self.weaver.batch({key: value}).hash

    def ack(self):
        """Cite every tip, acks too: an attestation."""
        own = self.node.public
        tips = [tip.hash for author in self.store.graph.authors if author != own
                for tip in self.store.graph.tips_of(author)]  # fmt: skip
        self.clock.advance(1)
        return self.store.submit(self.node, b"", tips).hash

    def prune(self, *active):
        return prune(self.store, self.weaver.state, [place.node.public for place in active])

    def restart(self):
        self.reopen()
        self.weaver = Weaver(self.store, open_state(self.store, MemoryJournal()), self.node)

    @property
    def reads(self):
        state = self.weaver.state
        state.project()
        return {key: state.inspect(key) for key in sorted(state.part.entries)}

    @property
    def whole(self):
        """Hashes whose envelopes are here."""
        return {node.hash for node in self.store.graph.order if not node.is_settled}


def exchange_all(*places):
    for _ in range(2):
        for one in places:
            for other in places:
                if one is not other:
                    first, second, _ = sync(one, other)
                    assert first.phase is second.phase is SessionPhase.FINISHED
    for place in places:
        place.weaver.state.project()


def attested(places):
    for _ in range(2):
        for place in places:
            place.ack()
        exchange_all(*places)
