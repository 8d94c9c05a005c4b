"""Peers that mean harm: what they send costs them more than the node, and never stops it."""

from __future__ import annotations

import pytest

from tests.weaver.test_exchange import Net, pair
from tests.weaver.weaving import NOW, STORE, author, made
from topics.kernel.errors import Rejected
from topics.testing.entropy import SeededEntropy
from topics.weaver.invite import Invite
from topics.weaver.messages import BootstrapRequest, Gossip, Hello, SyncDone
from topics.weaver.outbox import GOSSIP, Stream
from topics.weaver.ranges import ZERO, Scheme
from topics.weaver.wire import encode

STRANGE_STORE = bytes(16)


def hello(store=STORE):
    return encode(Hello(store, Scheme.XOR, ZERO))


def test_the_gossip_stream_carries_gossip_and_nothing_else_whoever_sends_it():
    """A session, a join or a clone cannot be opened there: it could not be ended alone."""
    _, a, b = pair()
    peer = Stream(b.key.public, mine=False, number=GOSSIP)
    token = Invite.decode(a.roster.invite(SeededEntropy(1)))
    stranger = author(3)
    joining = Stream(stranger.public, mine=False, number=GOSSIP)
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
        a.exchange.receive(Stream(b.key.public, mine=False, number=number), encode(SyncDone()))
    waiting = len(a.exchange._outbox)
    for _ in range(200):
        number += 1
        stream = Stream(b.key.public, mine=False, number=number)
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
        a.exchange.receive(Stream(b.key.public, mine=False, number=number), hello())
        a.exchange.receive(
            Stream(b.key.public, mine=False, number=1000 + number), encode(BootstrapRequest(1, 10))
        )
    assert a.exchange._machines.served(b.key.public) + a.exchange._outbox.feeds(b.key.public) <= 4
    refused = a.exchange.counts.refused
    assert refused >= 96
    net.pump()
    net.wait(60_000)
    a.exchange.receive(Stream(b.key.public, mine=False, number=2000), hello())
    assert a.exchange.counts.refused == refused


def test_gaps_without_end_are_not_walked_one_by_one():
    """A peer that signs many intentions over nothing gets few walks, and then a session."""
    net, a, b = pair()
    own = b.write()
    net.pump()
    assert own in a.names
    for at in range(1, 50):
        gap = made(b.key, NOW + at, prev=bytes([at]) * 32)
        a.exchange.receive(Stream(b.key.public, mine=False, number=GOSSIP), encode(Gossip(gap)))
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
    clone = Stream(b.key.public, mine=False, number=500)
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
