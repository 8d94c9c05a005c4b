"""One owner's slot: the newest envelope of each signer, a join whatever the signers do (replication 4.3)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_owners import ALICE, BOB, CAROL, PAYLOADS, Registers, authority, owners
from topics.codec.cell import INT_MAX
from topics.crypto.keys import KeyPair
from topics.kernel.errors import WrongState
from topics.lattice.owners.authority import Authority, OwnerKeys
from topics.lattice.owners.signed import SIGNERS_MAX, SignedLattice, Slot, SlotEnvelope
from topics.lattice.values.laws import check_deliveries, check_laws
from topics.testing.clock import ManualClock

A1, A2 = {"a": (1, 1)}, {"a": (2, 2)}
B1 = {"b": (1, 1)}


def slot_of(key=None):
    """The lattice of #42, which is Alice's and Bob's, on a node with this key."""
    return owners(key).slot(42)


def signed(key, value, *, onto=None):
    return slot_of(key).sign(onto, value)


def numbered(key, seq, value):
    """An envelope with any number, as a signer who does not count would make it."""
    before = None
    if seq > 1:
        payload = slot_of(key)._canon({})
        before = Slot((SlotEnvelope(key.public, seq - 1, payload, bytes(64)),), ({},), {})
    return slot_of(key).sign(before, value)


@st.composite
def slots(draw):
    """Slots of honest and of lying signers: any number, any payload, higher numbers with less in them."""
    slot = None
    for key in (ALICE, BOB):
        if draw(st.booleans()):
            value = draw(
                st.dictionaries(
                    st.sampled_from("ab"), st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=2
                )
            )
            slot = slot_of().join(slot, numbered(key, draw(st.integers(1, 3)), value))
    return slot


@pytest.mark.rule("R1.1.1", "R4.3.2", "R9.1", "R9.2", "R9.3", "R9.4")
@given(slots(), slots(), slots())
def test_p1_p2_p3_p4_slots_keep_the_laws_whoever_signs(a, b, c):
    """Also where a signer's later envelope holds less than its earlier one."""
    check_laws(slot_of(), a, b, c)


@pytest.mark.rule("R9.6")
@given(st.lists(slots(), max_size=4))
def test_p6_any_delivery_of_slots_ends_alike(drawn):
    check_deliveries(slot_of(), [*itertools.permutations(drawn), [*drawn, *drawn]])


@pytest.mark.rule("R4.3.2", "R1.1.3")
def test_an_antichain_by_payload_and_by_number_does_not_associate():
    """The page's rule taken literally: Bob's second envelope holds Alice's, his third has less than his second.

    Dropped by payload before it is dropped by number, Alice's envelope is lost; the other way it stays.
    """
    alice = numbered(ALICE, 1, A1)
    bob_second, bob_third = numbered(BOB, 2, {**A1, **B1}), numbered(BOB, 3, B1)

    def literal(own, other):
        """Newest of each signer, then only what no other payload holds."""
        joined = slot_of().join(own, other)
        kept = slot_of().maximal(joined)
        return slot_of()._slot(
            [pair for pair in zip(joined.envelopes, joined.values, strict=True) if pair[0] in kept]
        )

    left = literal(literal(alice, bob_second), bob_third)
    right = literal(alice, literal(bob_second, bob_third))
    assert left != right
    assert left.value == B1

    join = slot_of().join
    assert join(join(alice, bob_second), bob_third) == join(alice, join(bob_second, bob_third))
    assert join(alice, join(bob_second, bob_third)).value == {**A1, **B1}


@pytest.mark.rule("R4.3.1")
def test_nil_is_the_other_side_after_both_checks():
    """And nil where they fail; a nil from outside changes nothing."""
    lattice, own = slot_of(), signed(ALICE, A1)
    forged = owners(CAROL, rules=_Anybody()).slot(42).sign(None, A1)

    assert lattice.sift(None, own) == own
    assert lattice.sift(None, forged) is None
    assert lattice.sift(own, None) is None
    assert lattice.join(own, None) is own
    assert lattice.join(None, own) is own
    for merge in (lattice.merge_cad, lattice.join):
        assert merge(own, None) is own
        assert merge(None, None) is None
    assert lattice.merge_cad(None, forged) is None
    assert lattice.merge_cad(None, own) == own


class _Anybody:
    def allows(self, owner, key):
        return True


@pytest.mark.rule("R4.3.1")
def test_equal_payloads_keep_own_and_a_join_that_equals_one_side_is_that_side():
    """The literal text gives the very slot back; join agrees with it where one signer wrote."""
    lattice = slot_of()
    small = signed(ALICE, A1)
    large = signed(ALICE, A2, onto=small)
    same_by_bob = signed(BOB, A1)

    for merge in (lattice.merge_cad, lattice.join):
        assert merge(small, signed(ALICE, A1)) is small
        assert merge(small, large) == large
        assert merge(large, small) is large
    assert lattice.merge_cad(small, same_by_bob) is small
    assert lattice.merge_cad(small, large) is large
    assert lattice.join(small, same_by_bob).value == A1


@pytest.mark.rule("R4.3.2", "R7.10")
def test_siblings_stay_until_the_owner_writes():
    """A node without a key keeps both envelopes and reads their join; the owner's next write holds both."""
    both = slot_of().join(signed(ALICE, A1), signed(BOB, B1))
    assert len(both.envelopes) == 2
    assert both.value == {**A1, **B1}
    assert len(slot_of().maximal(both)) == 2

    collapsed = slot_of(ALICE).sign(both, {**both.value, "c": (3, 3)})

    assert [envelope.signer for envelope in slot_of().maximal(collapsed)] == [ALICE.public]
    assert collapsed.value == {**A1, **B1, "c": (3, 3)}
    assert collapsed.of_signer(BOB.public) == both.of_signer(BOB.public)
    assert slot_of().join(both, collapsed) == collapsed


def test_of_equal_payloads_the_antichain_shows_one():
    """Alice and Bob say the same: one of them is enough to read it."""
    both = slot_of().join(signed(ALICE, A1), signed(BOB, A1))

    assert len(both.envelopes) == 2
    assert slot_of().maximal(both) == both.envelopes[:1]


@pytest.mark.rule("R4.3.2")
def test_the_newest_of_a_signer_is_kept():
    """By its number, whatever is in it; of one number the larger bytes, on every node alike."""
    first, second = numbered(ALICE, 1, A2), numbered(ALICE, 2, A1)
    twin = numbered(ALICE, 2, B1)
    join = slot_of().join

    assert join(first, second) == second
    assert join(second, twin) == join(twin, second)
    assert len(join(second, twin).envelopes) == 1


@pytest.mark.rule("R4.3.2", "R7.10")
def test_a_twin_of_the_key_does_not_erase_what_is_here():
    """A restored backup signs on from an old number: the node with the key signs the join of both under the next."""
    here = signed(ALICE, A2, onto=signed(ALICE, A1))
    twin = numbered(ALICE, 7, B1)

    rescued = slot_of(ALICE).sift(here, twin)
    merged = slot_of(ALICE).join(here, rescued)

    assert merged.value == {**A2, **B1}
    assert merged.of_signer(ALICE.public).seq == 8
    assert slot_of(ALICE).sift(here, numbered(ALICE, 7, {**A2, **B1})).of_signer(ALICE.public).seq == 7
    assert slot_of(BOB).sift(here, twin) == twin, "another key re-signs nothing"
    assert slot_of().sift(here, twin) == twin


@pytest.mark.rule("R4.3.2")
def test_two_nodes_of_one_account_stop_signing():
    """Each takes the other's envelope as it is: a merge of authorised slots asks for no new signature."""
    alice, bob = signed(ALICE, A1), signed(BOB, B1)
    states = [alice, bob]
    for _ in range(3):
        states = [
            slot_of(key).join(own, slot_of(key).sift(own, other))
            for key, own, other in ((ALICE, states[0], states[1]), (BOB, states[1], states[0]))
        ]

    assert states[0] == states[1]
    assert [envelope.seq for envelope in states[0].envelopes] == [1, 1]


def test_the_last_number_cannot_be_followed():
    """It is said, not wrapped."""
    last = numbered(ALICE, INT_MAX, A1)

    assert last.envelopes[0].seq == INT_MAX
    with pytest.raises(WrongState, match="last number"):
        slot_of(ALICE).sign(last, A2)


@pytest.mark.rule("R9.24")
def test_a_twin_that_has_used_the_last_number_is_merged_without_an_error():
    """It cannot be answered with a higher one, so it stays, and merging it raises nothing."""
    here, twin = signed(ALICE, A2), numbered(ALICE, INT_MAX, B1)

    assert slot_of(ALICE).sift(here, twin) == twin


class Rotating:
    """An account that names its newest key only."""

    def keys_of(self, address):
        return OwnerKeys([self.newest.public])


@pytest.mark.rule("R4.2.9", "R4.3.2")
def test_an_owner_that_changes_its_keys_without_end_is_bounded():
    """What was taken of it can be sent and read again; the keys after the bound are not taken, those before stay."""
    accounts = Rotating()
    lattice = owners(rules=Authority(ManualClock(), addresses=accounts, answer_ttl_ms=0)).slot(42)
    slot = None
    keys = [KeyPair.from_seed(n.to_bytes(32, "big")) for n in range(SIGNERS_MAX + 2)]
    for accounts.newest in keys:
        signer = owners(accounts.newest, rules=_Anybody()).slot(42)
        slot = lattice.join(slot, lattice.sift(slot, signer.sign(None, A1).to_cell()))

    assert len(slot.envelopes) == SIGNERS_MAX
    assert lattice.restored(slot.to_cell()) == slot
    assert lattice.sift(None, slot.to_cell()) is None, "none of these keys may sign any more"
    accounts.newest = keys[0]
    again = owners(keys[0], rules=_Anybody()).slot(42).sign(slot, A2)
    assert lattice.join(slot, lattice.sift(slot, again.to_cell())).value == A2


def test_a_written_value_is_what_a_reader_gets():
    """The very object, so a fork that synced it sees an idle parent."""
    value = {**A1, **B1}

    assert signed(ALICE, value, onto=signed(BOB, B1)).value is value
    lattice = SignedLattice(PAYLOADS, Registers(), region="kv", owner=42, authority=authority())
    assert lattice.read(None) == {}
    assert lattice.read(signed(ALICE, value)) is value
