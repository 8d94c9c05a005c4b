"""Who is a peer and how one becomes it: invites are used once, revoked stays revoked, and a restart forgets nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weaver_nodes import OPTIONS
from tests.support.weaving import NOW, STORE, A, B, C
from topics.crypto.did import base58, from_base58
from topics.crypto.hashing import blake3
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal
from topics.weaver.node.invite import Invite
from topics.weaver.node.roster import TRANSITIONS, PeerStatus, Roster
from topics.weaver.sync.limits import DAY_MS, ExchangeOptions

bytes32 = st.binary(min_size=32, max_size=32)


class Door:
    """A roster over a journal in memory."""

    def __init__(self, **options):
        self.clock = ManualClock()
        self.journal = MemoryJournal()
        self.entropy = SeededEntropy(1)
        self.options = ExchangeOptions(**options) if options else OPTIONS
        self.open()

    def open(self):
        self.roster = Roster(
            self.journal, store_id=STORE, key=A.public, clock=self.clock, options=self.options
        )
        return self.roster


@pytest.mark.rule("R5.9.4", "R11.39")
@given(st.binary(min_size=16, max_size=16), bytes32, bytes32)
def test_a_token_comes_back_as_it_was(store_id, secret, inviter):
    invite = Invite(store_id, secret, inviter)

    assert Invite.decode(invite.encode()) == invite
    assert Invite.decode(f"  {invite.encode()}\n") == invite
    assert len(invite.encode()) <= 117


@pytest.mark.rule("R5.9.4")
@given(st.data())
def test_every_mistyped_token_is_refused(data):
    token = Invite(STORE, bytes(range(32)), A.public).encode()
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0OIl+"))
    if letter == token[at]:
        return
    with pytest.raises(Rejected):
        Invite.decode(token[:at] + letter + token[at + 1 :])
    with pytest.raises(Rejected):
        Invite.decode(token[:at] + token[at + 1 :])


def test_a_token_of_another_version_or_length_is_told_apart():
    data = from_base58(Invite(STORE, bytes(32), A.public).encode())
    later = b"\x02" + data[1:81]

    with pytest.raises(Rejected, match="use version 1"):
        Invite.decode(base58(later + blake3(later)[:4]))
    with pytest.raises(Rejected, match="copy all of it"):
        Invite.decode(base58(data[:40]))
    with pytest.raises(Rejected, match="copy it again"):
        Invite.decode(base58(data[:-1] + bytes((data[-1] ^ 1,))))


@pytest.mark.rule("R5.9.4", "R11.39")
def test_an_invite_makes_its_bearer_a_peer_once():
    door = Door()
    invite = Invite.decode(door.roster.invite(door.entropy))
    assert (invite.store_id, invite.inviter) == (STORE, A.public)
    assert not door.roster.may_connect(B.public)
    door.roster.redeem(invite.join(B))

    assert door.roster.status(B.public) is PeerStatus.ACTIVE
    assert door.roster.may_connect(B.public)
    with pytest.raises(Rejected, match="unknown, used or ended") as second:
        door.roster.redeem(invite.join(C))
    assert second.value.code is Code.FORBIDDEN
    with pytest.raises(Rejected):
        door.open().redeem(invite.join(C))
    assert door.roster.peers(PeerStatus.ACTIVE) == [B.public]


@pytest.mark.rule("R5.9.4")
def test_a_join_needs_the_secret_the_store_and_the_key_and_a_failed_one_leaves_the_invite_open():
    door = Door()
    invite = Invite.decode(door.roster.invite(door.entropy))
    good = invite.join(B)
    for bad, why in (
        (Invite(STORE, bytes(32), A.public).join(B), "unknown"),
        (Invite(bytes(16), invite.secret, A.public).join(B), "not the store"),
        (Invite(STORE, invite.secret, A.public).join(C), None),
    ):
        if why is not None:
            with pytest.raises(Rejected, match=why):
                door.roster.redeem(bad)
        else:
            stolen = type(good)(good.store_id, good.secret, B.public, bad.proof)
            with pytest.raises(Rejected, match="not of the key"):
                door.roster.redeem(stolen)
    assert door.roster.peers(PeerStatus.ACTIVE) == []
    door.roster.redeem(good)
    assert door.roster.may_connect(B.public)


@pytest.mark.rule("R5.9.4")
def test_invites_end_and_their_number_is_bounded():
    door = Door(invites_open=2)
    tokens = [door.roster.invite(door.entropy) for _ in range(2)]
    with pytest.raises(Rejected, match="2 are open"):
        door.roster.invite(door.entropy)
    door.clock.advance(7 * DAY_MS)

    with pytest.raises(Rejected, match="ended"):
        door.roster.redeem(Invite.decode(tokens[0]).join(B))
    assert door.roster.invite(door.entropy) not in tokens


def test_the_journal_of_a_roster_opens_nothing():
    door = Door()
    invite = Invite.decode(door.roster.invite(door.entropy))

    assert not any(invite.secret in item for item in door.journal.items)


@pytest.mark.rule("R5.2.2", "R11.39")
def test_revoked_may_neither_connect_nor_gossip_and_stays_so():
    door = Door()
    door.roster.admit(B.public)
    door.roster.revoke(B.public)

    assert not door.roster.may_connect(B.public)
    assert not door.roster.may_gossip(B.public)
    assert door.roster.may_gossip(C.public)
    for change in (door.roster.admit, door.roster.retire):
        with pytest.raises(Rejected, match="stays so"):
            change(B.public)
    with pytest.raises(Rejected, match="revoked"):
        door.roster.redeem(Invite.decode(door.roster.invite(door.entropy)).join(B))
    assert door.open().status(B.public) is PeerStatus.REVOKED


@pytest.mark.rule("R11.39")
def test_a_dormant_peer_may_connect_and_is_not_waited_for():
    door = Door()
    door.roster.admit(B.public)
    door.roster.retire(B.public)

    assert door.roster.may_connect(B.public)
    assert door.roster.peers(PeerStatus.ACTIVE) == []
    assert door.roster.peers(PeerStatus.DORMANT) == [B.public]
    door.roster.admit(B.public)
    assert door.open().peers(PeerStatus.ACTIVE) == [B.public]
    assert set(TRANSITIONS) == set(PeerStatus)


def test_keys_that_cannot_sign_strangers_and_too_many_are_refused():
    door = Door(peers=1)
    for key in (b"", bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(Rejected, match="no public key"):
            door.roster.admit(key)
    with pytest.raises(Rejected, match="not on the roster"):
        door.roster.revoke(B.public)
    door.roster.admit(B.public)
    with pytest.raises(Rejected, match="its bound"):
        door.roster.admit(C.public)


def test_every_flipped_bit_of_a_rosters_journal_is_found():
    door = Door()
    door.roster.admit(B.public)
    good = list(door.journal.items)
    for number, item in enumerate(good):
        for bit in range(8 * len(item)):
            damaged = bytearray(item)
            damaged[bit // 8] ^= 1 << bit % 8
            door.journal.items = [*good[:number], bytes(damaged), *good[number + 1 :]]
            with pytest.raises(Corrupt, match="item"):
                door.open()


def test_the_roster_of_another_store_or_node_lets_nobody_in():
    """A journal mixed up is refused, before anything of it counts."""
    journal = MemoryJournal()
    clock, options = ManualClock(NOW), ExchangeOptions()
    Roster(journal, store_id=STORE, key=A.public, clock=clock, options=options).admit(B.public)
    for store_id, key, field in ((bytes(16), A.public, "store_id"), (STORE, B.public, "node")):
        with pytest.raises(Rejected) as refused:
            Roster(journal, store_id=store_id, key=key, clock=clock, options=options)
        assert refused.value.detail["field"] == field
    again = Roster(journal, store_id=STORE, key=A.public, clock=clock, options=options)
    assert again.may_connect(B.public)
    with pytest.raises(Corrupt):
        Roster(MemoryJournal(journal.items[1:]), store_id=STORE, key=A.public, clock=clock, options=options)
