"""Peers that mean harm: what they send costs them more than the node, and never stops it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weaver_hashes import Hashes
from tests.support.weaver_nodes import OPTIONS, Net, Place, Writer, attested, pair
from tests.support.weaving import NOW, STORE, A, B, C, Site, author, made, name_of
from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt, Rejected
from topics.testing.entropy import SeededEntropy
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.frontier import Frontier
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.node.acks import Acker
from topics.weaver.node.invite import Invite
from topics.weaver.node.outbox import GOSSIP, Outbox, PeerStream
from topics.weaver.state.prune import adopt_snapshot, prune_history, snapshot
from topics.weaver.store.journal_items import ItemKind, JournalHeader, pack
from topics.weaver.store.settled import Settlement, Stub, encode_stubs
from topics.weaver.store.witness import NO_SIGNATURE, Witness
from topics.weaver.sync.limits import FRONTIER_MAX, PARTS_MAX, PAYLOAD_HASHES_MAX, ExchangeOptions
from topics.weaver.sync.messages import (
    BootstrapRequest,
    Gossip,
    Hello,
    ListedHash,
    RangeItemsReply,
    RangeItemsRequest,
    Ranges,
    SyncDone,
)
from topics.weaver.sync.ranges import FULL, ZERO, Scheme
from topics.weaver.sync.reconcile import Reconciliation
from topics.weaver.sync.wire import encode

STRANGE_STORE = bytes(16)


def hello(store=STORE):
    return encode(Hello(store, Scheme.XOR, ZERO))


def test_the_gossip_stream_carries_gossip_and_nothing_else_whoever_sends_it():
    """A session, a join or a clone cannot be opened there: it could not be ended alone."""
    _, a, b = pair()
    peer = PeerStream(b.key.public, mine=False, number=GOSSIP)
    token = Invite.decode(a.roster.invite(SeededEntropy(1)))
    stranger = author(3)
    joining = PeerStream(stranger.public, mine=False, number=GOSSIP)
    refused = a.exchange.counts.refused
    a.exchange.receive(peer, hello(STRANGE_STORE))
    a.exchange.receive(peer, hello())
    a.exchange.receive(peer, encode(BootstrapRequest(1, 10)))
    a.exchange.receive(joining, encode(token.join(stranger)))

    assert a.exchange.counts.refused == refused + 4
    assert a.exchange.is_quiet
    assert a.exchange.roster.status(author(3).public) is None


def test_a_peer_that_only_writes_makes_nothing_grow():
    """Once its outbox is full not even refusals are put into it."""
    net, a, b = pair(outbox_bytes=2000)
    number = 100
    while a.exchange._outbox.has_room(b.key.public):
        number += 1
        a.exchange.receive(PeerStream(b.key.public, mine=False, number=number), encode(SyncDone()))
    waiting = len(a.exchange._outbox)
    for _ in range(200):
        number += 1
        stream = PeerStream(b.key.public, mine=False, number=number)
        a.exchange.receive(stream, encode(SyncDone()))
        a.exchange.receive(stream, b"nonsense")

    assert len(a.exchange._outbox) <= waiting + 1
    net.pump()
    b.write()
    net.pump()
    assert b.names <= a.names


def test_the_streams_a_peer_may_open_are_bounded_and_end():
    """Sessions and clones that it never goes on with; after their deadlines there is room again."""
    net, a, b = pair(streams=4)
    b.write()
    net.pump()
    for number in range(100, 150):
        a.exchange.receive(PeerStream(b.key.public, mine=False, number=number), hello())
        a.exchange.receive(
            PeerStream(b.key.public, mine=False, number=1000 + number), encode(BootstrapRequest(1, 10))
        )
    assert a.exchange._machines.served(b.key.public) + a.exchange._outbox.feeds(b.key.public) <= 4
    refused = a.exchange.counts.refused
    assert refused >= 96
    net.pump()
    net.wait(60_000)
    a.exchange.receive(PeerStream(b.key.public, mine=False, number=2000), hello())
    assert a.exchange.counts.refused == refused


def test_gaps_without_end_are_not_walked_one_by_one():
    """A peer that signs many intentions over nothing gets few walks, and then a session."""
    net, a, b = pair()
    own = b.write()
    net.pump()
    assert own in a.names
    for at in range(1, 50):
        gap = made(b.key, NOW + at, prev=bytes([at]) * 32)
        a.exchange.receive(PeerStream(b.key.public, mine=False, number=GOSSIP), encode(Gossip(gap)))
    assert a.exchange.counts.walks <= 8
    net.pump()
    net.wait(60_000)
    assert a.exchange.is_quiet or a.exchange.acker.due_ms is not None


def test_a_peer_that_is_revoked_is_not_told_anything_any_more():
    """Although its connection is still there: no gossip, no session, no rest of a clone."""
    net, a, b = pair()
    for _ in range(150):
        a.write()
    net.pump()
    clone = PeerStream(b.key.public, mine=False, number=500)
    a.exchange.receive(clone, encode(BootstrapRequest(1, 1000)))
    a.roster.revoke(b.key.public)
    a.write()
    a.exchange.tick()
    net.clock.advance(100_000)
    a.exchange.tick()

    assert [s for s in a.exchange.take_outbox(1000) if s.stream.peer == b.key.public] == []
    assert a.exchange.is_quiet


def test_an_invite_to_another_store_makes_nobody_a_peer():
    net = Net(1, 2, friends=False)
    a, b = net.peers
    other = Invite(STRANGE_STORE, bytes(32), b.key.public)
    with pytest.raises(Rejected) as refused:
        a.exchange.join(other)
    assert refused.value.detail["field"] == "store_id"
    assert a.roster.status(b.key.public) is None


# --- snapshots of a peer that is believed, and should not be


def poisoned(node, stubs, tips):
    """A snapshot of made-up history, signed as a true one is."""
    prev = ZERO_HASH
    for stub in stubs:
        prev = Witness(STORE, stub.hash, stub.wall_ms, prev, NO_SIGNATURE).hash
    settlement = Settlement(len(stubs), prev, blake3(encode_stubs(stubs)), Frontier(tips), ())
    signed = settlement._replace(signature=node.sign(settlement.covered(STORE)))
    header = JournalHeader(STORE, node.public, "kv").encode()
    return [header, pack(ItemKind.SETTLED, encode_stubs(stubs)), pack(ItemKind.SETTLEMENT, signed.encode())]


def stub(number, author=b"", prev=0):
    return Stub(bytes([number]) * 32, NOW, HLC(NOW, 0), prev, author, ())


def refused_whole(place, items, node):
    before = list(place.journal.items)
    with pytest.raises((Corrupt, Rejected)) as refused:
        adopt_snapshot(place.store, items, node.public, NOW)
    assert place.journal.items == before
    place.write(b"still writing")
    return refused.value.message


def test_a_snapshot_whose_frontier_names_a_tip_twice_or_for_another_is_refused():
    """The frontier's id is told to every peer, and must have one spelling."""
    evil, one, other = author(9), *sorted([A.public, B.public])
    tip = stub(7, one)
    late = Place(1)
    for tips in (((one, tip.hash), (other, tip.hash)), ((other, tip.hash),)):
        assert "another author's" in refused_whole(late, poisoned(evil, [tip], tips), evil)
    twice = ((one, tip.hash), (one, tip.hash))
    assert "ascend" in refused_whole(late, poisoned(evil, [tip], twice), evil)
    adopt_snapshot(late.store, poisoned(evil, [tip], ((one, tip.hash),)), evil.public, NOW)
    assert late.store.frontier.tips == ((one, tip.hash),)


def test_a_snapshot_that_moves_what_is_known_here_to_another_place_is_refused():
    """Else its children would follow an author's chain here that is somebody else's there."""
    evil, late = author(9), Place(1)
    known = made(B, NOW)
    late.ingest(known)
    moved = Stub(name_of(known), NOW, HLC(NOW, 0), 0, A.public, ())
    child = stub(8, prev=1)
    items = poisoned(evil, [moved, child], ((A.public, child.hash),))
    assert "another place" in refused_whole(late, items, evil)


def test_a_snapshot_does_not_bring_what_is_above_the_limits():
    """What is kept of pruned history is taken in like anything else."""
    big = Writer(1, bounds=Bounds(ops_bytes=200_000))
    big.put(b"k", bytes(150_000))
    big.prune(big)
    assert "ops" in refused_whole(Place(2), snapshot(big.store), big.node)


def test_a_long_snapshot_is_taken_in_writes_that_a_journal_takes():
    """A journal takes some thousand items at once; settled intentions share them."""
    stubs = [stub(1, A.public)]
    stubs += [Stub(blake3(b"%d" % at), NOW, HLC(NOW + at, 0), at, b"", ()) for at in range(1, 6000)]
    evil, late = author(9), Place(1)
    before = len(late.journal.items)
    adopt_snapshot(late.store, poisoned(evil, stubs, ((A.public, stubs[-1].hash),)), evil.public, NOW)
    assert len(late.journal.items) - before < 20
    late.reopen()
    assert len(late.store) == 6000


def test_evidence_that_a_snapshot_brings_as_witnessed_is_evidence_no_more():
    places = [Writer(1), Writer(2)]
    first, second = made(C, NOW), made(C, NOW + 1)
    for place in places:
        place.ingest(first, second)
    attested(places)
    places[0].prune(*places)
    late = Writer(5, strict_linearity=True)
    late.ingest(first, second)
    assert list(late.store.evidence) == [name_of(second)]
    adopt_snapshot(late.store, snapshot(places[0].store), places[0].node.public, NOW)
    proofs = late.store.proofs()
    late.reopen()

    assert late.store.evidence == {}
    assert late.store.proofs() == proofs


def test_a_frontier_of_more_authors_than_can_be_told_is_not_drawn():
    tips = tuple((at.to_bytes(32), bytes(32)) for at in range(FRONTIER_MAX + 1))
    with pytest.raises(Rejected) as refused:
        prune_history(Place(1).store, Frontier(tips), [])
    assert refused.value.detail["field"] == "prune"


# --- what a peer can make this node compute or keep


def test_listings_stop_at_the_bound_of_a_payload_and_not_behind_it():
    """A part that asks for 2000 hashes is 38 bytes: a payload has room for a thousand of them."""

    class Counting(Hashes):
        listed = 0

        def listing(self, over, limit):
            found = super().listing(over, limit)
            self.listed += len(found)
            return found

    view = Counting({blake3(b"%d" % at) for at in range(2000)})
    target = Reconciliation(view, Scheme.XOR, needs_max=10)
    with pytest.raises(Rejected, match="hashes were asked for"):
        target.answer(Ranges((RangeItemsRequest(FULL, ()),) * PARTS_MAX))
    assert view.listed <= PAYLOAD_HASHES_MAX + 2000


def test_a_session_keeps_no_more_needs_than_its_bound_however_many_are_listed():
    """Replies that nobody asked for, one after the other, while nothing is fetched."""
    place = Place(1)
    session = place.session(initiator=True, options=ExchangeOptions(needs_max=300))
    session.open()
    for turn in range(20):
        listed = sorted(ListedHash(blake3(b"%d %d" % (turn, at)), at) for at in range(400))
        session.receive(Ranges((RangeItemsReply(FULL, tuple(listed)),)))
        assert not session.is_over, session.reason
    assert len(session._needs) <= 300
    assert session.left


def test_floats_are_bounded_by_bytes():
    """Whoever wrote them: the oldest of all goes."""
    site = Site(bounds=Bounds(float_bytes=10_000))
    floats = [made(author(10 + at), NOW, prev=b"\x07" * 32, ops=bytes(3000)) for at in range(5)]
    for each in floats:
        site.ingest(each)
    assert [float_.accepted.hash for float_ in site.store.floating] == list(map(name_of, floats[2:]))
    site.open()
    site.ingest(made(author(20), NOW, prev=b"\x07" * 32, ops=bytes(3000)))
    assert len(site.store.floating) == 3


def python_calls(work):
    """How many Python functions were entered: a cost that is the same every time."""
    count = 0

    def entered(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_an_ack_over_many_authors_does_not_compare_them_in_pairs():
    """Authors cost a peer nothing, and each that wrote something is one more to cite."""
    place = Place(1)
    place.ingest(*[made(KeyPair.from_seed(bytes([7, at]) * 16), NOW, ops=b"x") for at in range(200)])
    acker = Acker(place.store.graph, place.node.public, place.clock, OPTIONS)
    assert len(acker.delta()) == 200
    assert python_calls(acker.delta) < 200 * 20


@given(data=st.data())
def test_the_newest_of_some_nodes_are_those_that_no_other_is_above(data):
    """Honest chains and trees of equivocators, cited at random."""
    site = Site()
    made_ones = []
    for at in range(data.draw(st.integers(1, 14))):
        key = data.draw(st.sampled_from([A, B, C]))
        own = [each for each in made_ones if each.body[:32] == key.public]
        prev = data.draw(st.sampled_from(own[-1:] * 4 + own)) if own else ZERO_HASH
        after = data.draw(st.lists(st.sampled_from(made_ones), max_size=3, unique=True)) if made_ones else []
        made_ones.append(made(key, NOW + at, prev=prev, after=after))
        site.ingest(made_ones[-1])
    graph = site.store.graph
    nodes = data.draw(st.lists(st.sampled_from(graph.order), unique_by=lambda node: node.hash))
    expected = [
        node
        for node in nodes
        if not any(each is not node and graph.is_ancestor(node, each) for each in nodes)
    ]
    assert graph.newest(nodes) == expected


def test_a_peer_that_always_asks_for_more_does_not_silence_the_others():
    """With room for one message a turn, both get every other turn."""
    outbox = Outbox(1_000_000)
    greedy, other = (PeerStream(key.public, mine=False, number=1) for key in (A, B))
    outbox.send(greedy, [SyncDone()])
    outbox.send(other, [SyncDone()] * 3)
    turns = []
    for _ in range(6):
        outbox.send(greedy, [SyncDone()])
        turns += [sending.stream for sending in outbox.take(1)]
    assert turns == [greedy, other] * 3
