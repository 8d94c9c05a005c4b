"""A node among its peers: what is committed reaches them, and whatever was missed is made good by somebody."""

from __future__ import annotations

import pytest

from tests.support.weaver_nodes import ALL, Net, pair
from tests.support.weaving import NOW, STORE, A, B, author, made, name_of
from topics.kernel.errors import Fatal
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal
from topics.weaver.model.envelope import Envelope
from topics.weaver.node.invite import Invite
from topics.weaver.node.outbox import GOSSIP, PeerStream
from topics.weaver.node.roster import PeerStatus
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.sync.bootstrap import CloneStage
from topics.weaver.sync.catchup import CatchUpStage
from topics.weaver.sync.messages import Fetch, Gossip, Hello, Refusal, SnapshotPart, SnapshotRequest
from topics.weaver.sync.ranges import ZERO, Scheme
from topics.weaver.sync.wire import decode, encode


def no_gossip(message):
    return isinstance(message, Gossip)


@pytest.mark.rule("R5.9.1", "R11.38")
def test_what_is_committed_is_told_to_every_connected_peer_at_once():
    net = Net(1, 2, 3, 4)
    a, b, c, d = net.peers
    for other in (b, c):
        net.connect(a, other)
    net.pump()
    net.heard.clear()
    name = a.write()
    net.pump()

    assert name in b.names & c.names
    assert d.names == set()
    assert net.heard == ["Gossip", "Gossip"]


@pytest.mark.rule("R13.3")
def test_nothing_is_told_before_it_is_on_stable_storage():
    net, a, b = pair()
    a.journal.fails = True
    with pytest.raises(Fatal):
        a.write()
    net.pump()

    assert a.exchange.take_outbox(ALL) == []
    assert b.names == set()


@pytest.mark.rule("R5.9.2")
def test_a_connection_and_a_reconnection_sync():
    net = Net(1, 2)
    a, b = net.peers
    a.write()
    net.connect(a, b)
    net.pump()
    assert a.names == b.names

    net.cut(a, b)
    a.write()
    b.write()
    net.connect(a, b)
    net.pump()
    assert a.names == b.names
    assert len(a.names) == 3


@pytest.mark.rule("R5.9.1")
@pytest.mark.parametrize("missed", [1, 31, 32, 33, 200])
def test_missed_gossip_of_a_known_author_is_walked_back_to(missed):
    net, a, b = pair()
    a.write()
    net.pump()
    net.lost = no_gossip
    for _ in range(missed):
        a.write()
        net.pump()
    net.lost = lambda message: False
    net.heard.clear()
    a.write()
    net.pump()

    assert b.names == a.names
    assert b.exchange.counts.walks == 1
    assert net.heard.count("ChainRequest") == -(-missed // 32)
    assert "Hello" not in net.heard


@pytest.mark.rule("R5.9.1")
def test_gossip_of_an_author_of_whom_nothing_is_here_needs_a_sync():
    net, a, b = pair()
    net.lost = no_gossip
    a.write()
    net.pump()
    net.lost = lambda message: False
    a.write()
    net.pump()

    assert b.names == a.names
    assert b.exchange.counts.walks == 0
    assert "Hello" in net.heard


@pytest.mark.rule("R5.9.1", "R5.2.6")
def test_a_missing_condition_needs_a_sync():
    net, a, b = pair()
    net.lost = no_gossip
    hidden = a.write()
    net.pump()
    net.lost = lambda message: False
    foreign = made(B, NOW, after=[hidden])
    a.store.ingest([foreign])
    a.exchange.committed([foreign])
    net.pump()

    assert b.names == a.names


@pytest.mark.rule("R5.9.1", "R11.38")
def test_a_gap_that_the_speaker_cannot_close_is_closed_by_another_peer():
    net = Net(1, 2, 3)
    a, b, c = net.peers
    chain = [made(A, NOW, ops=b"\xff0")]
    for i in range(1, 4):
        chain.append(made(A, NOW + i, prev=chain[-1], ops=b"\xff%d" % i))
    b.store.ingest(chain[:1])
    c.store.ingest(chain)
    net.connect(a, b)
    net.connect(b, c)
    net.pump()
    net.wait(31_000)
    assert b.names == a.names == c.names

    net.cut(b, c)
    far = made(A, NOW + 9, prev=(middle := made(A, NOW + 8, prev=chain[-1])))
    c.store.ingest([middle, far])
    net.connect(b, c)
    net.lost = lambda message: not isinstance(message, Gossip)  # c's sync does not get through
    net.pump()
    stream = PeerStream(a.key.public, mine=False, number=GOSSIP)
    b.exchange.receive(stream, encode(Gossip(far)))  # a passes on what it cannot explain
    assert name_of(far) in b.store.floating
    assert b.exchange.peers_wanted() == []
    net.lost = lambda message: False
    net.wait(31_000)
    assert name_of(far) in b.names
    assert b.names == c.names


@pytest.mark.rule("R5.9.1")
def test_the_author_of_what_is_missing_is_worth_a_connection():
    net = Net(1, 2)
    a, b = net.peers
    net.connect(a, b)
    net.cut(a, b)
    gap = made(a.key, NOW + 1, prev=made(a.key, NOW))
    b.store.ingest([gap])

    assert b.exchange.peers_wanted() == [a.key.public]


@pytest.mark.rule("R5.9.2")
def test_gossip_that_finds_no_room_is_dropped_and_made_good_by_a_sync():
    net, a, b = pair(outbox_bytes=2_000)
    for _ in range(50):
        a.write()
    assert a.exchange.counts.gossip_dropped > 20
    net.pump()
    net.wait(10)

    assert b.names == a.names
    assert len(b.names) == 50


@pytest.mark.rule("R5.2.2", "R5.9.1")
def test_a_strangers_messages_are_refused_and_change_nothing():
    net = Net(1, 2, friends=False)
    a, b = net.peers
    a.roster.admit(b.key.public)
    assert net.connect(a, b) == [True, False]
    a.write()
    net.pump()

    assert b.names == set()
    assert b.exchange.counts.refused > 0


@pytest.mark.rule("R5.2.2")
def test_gossip_of_a_revoked_author_is_refused_and_a_sync_carries_its_history():
    net, a, b = pair()
    revoked = author(50)
    for peer in (a, b):
        peer.roster.admit(revoked.public)
        peer.roster.revoke(revoked.public)
    written = made(revoked, NOW, ops=b"\xffbefore")
    a.store.ingest([written])
    a.exchange.committed([written])
    net.pump()
    assert b.names == set()
    assert b.exchange.counts.gossip_refused == 1

    net.cut(a, b)
    net.connect(a, b)
    net.pump()
    assert b.names == {name_of(written)}


def test_a_peer_that_is_revoked_is_not_heard_any_more():
    net, a, b = pair()
    b.roster.revoke(a.key.public)
    a.write()
    net.pump()

    assert b.names == set()


@pytest.mark.rule("R9.34", "R5.9.1")
def test_forged_gossip_is_counted_and_nothing_else():
    _, a, b = pair()
    stream = PeerStream(a.key.public, mine=False, number=GOSSIP)
    good = made(a.key, NOW)
    for bad in (
        Envelope(good.body, bytes(64)),
        Envelope(good.body[:-1], good.signature),
        Envelope(b"", bytes(64)),
    ):
        b.exchange.receive(stream, encode(Gossip(bad)))

    assert b.exchange.counts.gossip_refused == 3
    assert b.names == set()
    b.exchange.receive(stream, encode(Gossip(good)))
    b.exchange.receive(stream, encode(Gossip(good)))
    assert b.exchange.counts.gossip_taken == 1, "a repeated one changes nothing"


@pytest.mark.rule("R5.9.5", "R5.9.6")
def test_a_burst_is_acked_once_by_each_and_acks_are_not():
    net, a, b = pair()
    for _ in range(5):
        a.write()
        net.pump()
        net.wait(1_000)
    assert b.exchange.counts.acks == 0
    net.wait(5_000)
    assert (a.exchange.counts.acks, b.exchange.counts.acks) == (0, 1)
    net.wait(200_000)

    assert (a.exchange.counts.acks, b.exchange.counts.acks) == (0, 1), "no acks of acks"
    assert a.names == b.names
    assert len(a.names) == 6


def test_attestations_come_with_the_heartbeat_and_carry_the_acks():
    net, a, b = pair()
    a.write()
    net.pump()
    net.wait(10_000)
    acks = b.exchange.counts.acks
    net.wait(900_000)

    assert a.exchange.counts.acks >= 1, "the ack of b is attested"
    assert acks == 1
    assert a.names == b.names


@pytest.mark.rule("R5.8.7", "R5.9.2")
def test_a_session_that_times_out_is_tried_again():
    net = Net(1, 2)
    a, b = net.peers
    a.write()
    net.connect(a, b)
    net.lost = lambda message: True
    net.pump()
    net.wait(16_000)
    assert b.names == set()
    assert a.exchange.counts.failed >= 1
    net.lost = lambda message: False
    net.wait(16_000)

    assert a.names == b.names


def test_a_broken_stream_is_tried_again_and_the_rest_goes_on():
    net = Net(1, 2)
    a, b = net.peers
    a.write()
    net.connect(a, b)
    for peer, other in ((a, b), (b, a)):
        for sending in peer.exchange.take_outbox(ALL):
            peer.exchange.closed(sending.stream)
            other.exchange.closed(PeerStream(peer.key.public, not sending.stream.mine, sending.stream.number))
    assert a.exchange.counts.failed == 1
    net.wait(16_000)

    assert a.names == b.names


def test_silence_that_nobody_noticed_ends_with_the_next_turn():
    net, a, b = pair()
    net.lost = no_gossip
    a.write()
    net.pump()
    net.lost = lambda message: False
    net.wait(30_000)

    assert b.names == a.names


def test_a_clock_that_is_set_back_stops_no_wait():
    """It was ten years ahead while a turn was taken: the next one is due 30 s later, not then."""
    net, a, b = pair()
    years = 10 * 365 * 24 * 3_600_000
    net.clock.advance(years)
    for peer in (a, b):
        peer.exchange.tick()
    net.pump()
    net.clock.set(NOW + 10)
    assert min(peer.exchange.deadline_ms for peer in (a, b)) <= NOW + 10 + 30_000
    net.lost = no_gossip
    a.write()
    net.pump()
    net.lost = lambda message: False
    net.wait(31_000)

    assert b.names == a.names


def test_bytes_that_are_no_message_end_their_stream_only():
    net, a, b = pair()
    stream = PeerStream(b.key.public, mine=False, number=77)
    a.exchange.receive(stream, b"\x01\x63rubbish")
    (refusal,) = a.exchange.take_outbox(ALL)

    assert isinstance(decode(refusal.data), Refusal)
    assert refusal.ends
    a.write()
    net.pump()
    assert b.names == a.names


def test_a_peer_that_asks_and_never_reads_is_told_so():
    net, a, b = pair(outbox_bytes=200_000)
    names = [a.write(b"\xff" + bytes(60_000)) for _ in range(4)]
    net.pump()
    stream = PeerStream(b.key.public, mine=False, number=99)
    a.exchange.receive(stream, encode(Hello(STORE, Scheme.XOR, ZERO)))
    for _ in range(20):
        a.exchange.receive(stream, encode(Fetch(tuple(names))))
    waiting = a.exchange.take_outbox(ALL)

    assert sum(len(sending.data) for sending in waiting) < 1_000_000
    assert isinstance(decode(waiting[-1].data), Refusal)


@pytest.mark.rule("R5.9.3", "R11.39")
def test_a_clone_over_the_exchange_goes_on_where_it_ended():
    net = Net(1, 2)
    a, b = net.peers
    for _ in range(250):
        a.write()
    net.connect(a, b)
    for peer in net.peers:
        peer.exchange.take_outbox(ALL)  # the sessions are not carried: a clone is to do it
    clone = b.exchange.clone_from(a.key.public)
    net.pump()

    assert clone.state is CloneStage.FINISHED
    assert b.names == a.names
    assert b.exchange.positions[a.key.public].next_seq == 251
    a.write()
    net.pump()
    again = b.exchange.clone_from(a.key.public)
    net.pump()
    assert again.state is CloneStage.FINISHED
    assert again.position.next_seq == 252


def test_batches_of_a_clone_wait_for_the_ones_before_them():
    net = Net(1, 2)
    a, b = net.peers
    for _ in range(350):
        a.write()
    net.connect(a, b)
    for peer in net.peers:
        peer.exchange.take_outbox(ALL)
    b.exchange.clone_from(a.key.public)
    (request,) = b.exchange.take_outbox(ALL)
    a.exchange.receive(PeerStream(b.key.public, mine=False, number=request.stream.number), request.data)

    assert [len(a.exchange.take_outbox(ALL)) for _ in range(5)] == [1, 1, 1, 1, 0]


@pytest.mark.rule("R5.9.4", "R11.39")
def test_a_stranger_joins_with_an_invite_then_clones_and_is_a_peer():
    net = Net(1, 2, friends=False)
    a, b = net.peers
    for _ in range(10):
        a.write()
    token = a.roster.invite(SeededEntropy(3))
    net.links |= {(a, b), (b, a)}
    b.exchange.join(Invite.decode(token))
    net.pump()
    assert b.exchange.joined == {a.key.public: True}
    assert a.roster.status(b.key.public) is PeerStatus.ACTIVE

    clone = b.exchange.clone_from(a.key.public)
    net.pump()
    assert clone.state is CloneStage.FINISHED
    assert b.names == a.names
    b.write()
    net.pump()
    assert b.names == a.names


@pytest.mark.rule("R5.9.4")
def test_a_used_invite_and_somebody_elses_key_let_nobody_in():
    net = Net(1, 2, 3, friends=False)
    a, b, c = net.peers
    invite = Invite.decode(a.roster.invite(SeededEntropy(3)))
    net.links |= {(x, y) for x in net.peers for y in net.peers}
    stream = PeerStream(c.key.public, mine=False, number=1)
    a.exchange.receive(stream, encode(invite.join(b.key)))  # c shows b's Join
    assert a.roster.status(b.key.public) is a.roster.status(c.key.public) is None
    a.exchange.take_outbox(ALL)
    b.exchange.join(invite)
    net.pump()
    c.exchange.join(invite)
    net.pump()

    assert b.exchange.joined == {a.key.public: True}
    assert c.exchange.joined == {a.key.public: False}
    assert a.roster.status(c.key.public) is None


def state_of(peer):
    return open_state(peer.store, MemoryJournal())


@pytest.mark.rule("R5.10.1", "R5.10.2")
def test_a_peer_that_was_away_gets_the_snapshot_and_then_the_rest():
    net = Net(1, 2, 3, attest_gap_ms=1_000)
    a, b, late = net.peers
    net.connect(a, b)
    for peer in (a, b):
        peer.roster.retire(late.key.public)
    for i in range(20):
        (a, b)[i % 2].write(encode_ops({b"k%d" % (i % 3): b"%d" % i}))
        net.pump()
    for _ in range(3):
        net.wait(2_000)
        a.exchange.attest()
        b.exchange.attest()
        net.pump()
    assert a.exchange.prune(state_of(a)) is not None
    shown = state_of(b).digest()
    net.connect(a, late)
    net.pump()
    net.wait(20_000)
    assert late.names == set(), "nobody is believed unasked"
    assert list(late.exchange.ahead) == [a.key.public]
    catch_up = late.exchange.catch_up(a.key.public)
    net.pump()
    net.wait(20_000)

    assert catch_up.state is CatchUpStage.ADOPTED
    assert late.exchange.ahead == {}
    assert late.exchange.counts.snapshots == 1
    assert late.names == a.names
    assert late.store.frontier == a.store.frontier
    assert state_of(late).entries() == state_of(a).entries()
    assert a.store.fingerprint == late.store.fingerprint
    assert shown is not None


def test_a_peer_without_a_snapshot_says_so_and_nothing_breaks():
    _, a, b = pair()
    stream = PeerStream(b.key.public, mine=False, number=5)
    a.exchange.receive(stream, encode(SnapshotRequest(0)))
    (sending,) = a.exchange.take_outbox(ALL)
    assert decode(sending.data) == SnapshotPart(0, b"")


@pytest.mark.rule("R9.34", "R5.2.1")
def test_gossip_with_any_bit_flipped_changes_nothing():
    _, a, b = pair()
    stream = PeerStream(a.key.public, mine=False, number=GOSSIP)
    good = encode(Gossip(made(a.key, NOW, ops=b"\xffsay")))
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        b.exchange.receive(stream, bytes(bad))

    assert b.names == set()
    assert len(b.store.floating) == 0
    b.exchange.receive(stream, good)
    assert len(b.names) == 1


@pytest.mark.rule("R5.10.1")
def test_a_snapshot_that_does_not_come_or_is_none_is_given_up():
    net, a, b = pair()
    none = b.exchange.catch_up(a.key.public)
    net.pump()
    assert none.state is CatchUpStage.FAILED
    assert "no snapshot" in none.reason

    net.lost = lambda message: True
    silent = b.exchange.catch_up(a.key.public)
    net.pump()
    assert not b.exchange.is_quiet
    net.wait(16_000)
    assert silent.state is CatchUpStage.GOING
    net.lost = lambda message: False
    net.wait(40_000)
    assert b.exchange.is_quiet
