"""The boundary: what an authorised key has signed for its own slot is taken, and nothing else (replication 4)."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_owners import ALICE, BOB, CAROL, PAYLOADS, REGION, ROGUE, owners, written
from topics.codec.cell import CellMap, decode_cell, encode_cell
from topics.crypto.did import did_of_key
from topics.crypto.keys import verify
from topics.kernel.errors import Corrupt, WrongState
from topics.lattice.owners.authority import Authority, Fate
from topics.lattice.owners.owner import OwnSlot, revoke
from topics.lattice.owners.signed import DOMAIN, Slot, signed_bytes
from topics.lattice.values.cursor import EntryStep, Root
from topics.lattice.values.laws import check_garbage
from topics.testing.clock import ManualClock

TEN, MUCH = {"x": (10, 1)}, {"x": (999, 9)}


def value_of(slots, owner):
    return dict(slots[owner].value) if owner in slots else None


# --- the vectors of the page


@pytest.mark.rule("R10.3", "R4.1.1")
def test_o1_the_owners_own_key_is_accepted():
    root = Root(owners())

    root.merge(written(ALICE, ALICE.public, TEN))

    assert value_of(root.get(), ALICE.public) == TEN


@pytest.mark.rule("R10.3", "R4.1.1")
def test_o2_a_signer_who_is_not_the_owner_is_rejected():
    root = Root(owners())

    root.merge(written(ROGUE, ALICE.public, MUCH))

    assert root.get() == {}


@pytest.mark.rule("R10.3", "R4.1.1")
def test_o3_an_attackers_value_over_the_owners_changes_nothing():
    """999, stamped later, over 10: it stays 10, and the very object."""
    root = Root(owners(), written(ALICE, ALICE.public, TEN))
    before = root.get()

    assert root.merge(written(ROGUE, ALICE.public, MUCH)) is before
    assert value_of(before, ALICE.public) == TEN


@pytest.mark.rule("R10.3", "R4.1.1")
def test_o4_a_victims_envelope_under_the_attackers_owner_is_rejected():
    """The signature is good, the key is the victim's, and the slot is not."""
    stolen = written(ALICE, ALICE.public, TEN)[ALICE.public]
    root = Root(owners())

    root.merge({ROGUE.public: stolen})

    assert root.get() == {}


@pytest.mark.rule("R10.3", "R4.2.2")
def test_o5_an_address_takes_its_key_and_no_other():
    root = Root(owners())

    root.merge(written(ROGUE, 7, MUCH))
    assert root.get() == {}
    root.merge(written(CAROL, 7, TEN))
    assert value_of(root.get(), 7) == TEN


@pytest.mark.rule("R10.3", "R4.2.2")
def test_o6_both_admins_of_an_address_are_accepted_and_a_rogue_is_not():
    root = Root(owners())

    root.merge(written(ALICE, 42, {"a": (1, 1)}))
    root.merge(written(ROGUE, 42, MUCH))
    root.merge(written(BOB, 42, {"b": (2, 1)}))

    assert value_of(root.get(), 42) == {"a": (1, 1), "b": (2, 1)}
    assert [envelope.signer for envelope in root.get()[42].envelopes] == sorted([ALICE.public, BOB.public])


@pytest.mark.rule("R10.3", "R4.1.1", "R11.24")
def test_o7_a_map_of_key_address_and_did_is_accepted_whole():
    """Three forms, three slots; a bad entry between them harms none."""
    foreign = written(ALICE, ALICE.public, TEN)
    foreign = written(CAROL, 7, TEN, onto=foreign)
    foreign = written(ROGUE, "did:web:example.org", MUCH, onto=foreign)
    foreign = written(BOB, did_of_key(BOB.public), TEN, onto=foreign)
    root = Root(owners())

    root.merge(foreign)

    assert set(root.get()) == {ALICE.public, 7, did_of_key(BOB.public)}


@pytest.mark.rule("R10.3", "R4.2.7", "R7.7")
@pytest.mark.parametrize("owner", [7, "#7", "did:convex:7", "did:web:example.com"])
def test_o8_a_typed_owner_without_a_resolver_is_rejected(owner):
    """With one it is accepted: the resolver is what is missing."""
    foreign = written(CAROL, owner, TEN)
    without = Root(owners(rules=Authority(ManualClock())))
    knowing = Root(owners())

    assert without.merge(foreign) == {}
    assert value_of(knowing.merge(foreign), owner) == TEN


# --- the boundary


@pytest.mark.rule("R7.8", "R1.1.2", "R4.3.1")
def test_a_map_adopted_into_nothing_is_verified():
    """An empty root is no reason to trust."""
    root = Root(owners())

    root.merge(written(ROGUE, 42, MUCH, onto=written(ALICE, ALICE.public, TEN)))

    assert set(root.get()) == {ALICE.public}


@pytest.mark.rule("R4.1.1", "R9.24", "R11.25")
@given(st.integers(0, 3), st.integers(0, 10_000), st.integers(1, 255))
def test_p24_no_changed_byte_of_an_envelope_is_accepted(field, at, flip):
    """Signer, number, payload or signature: any byte changed, and the slot is as if it had not come."""
    (envelope,) = written(ALICE, ALICE.public, TEN)[ALICE.public].envelopes
    name = ("signer", "seq", "payload", "signature")[field]
    value = getattr(envelope, name)
    if name == "seq":
        damaged = value + flip
    else:
        at %= len(value)
        damaged = value[:at] + bytes([value[at] ^ flip]) + value[at + 1 :]
    forged = attrs.evolve(envelope, **{name: damaged})
    root = Root(owners())

    root.merge({ALICE.public: (forged.to_cell(),)})
    assert root.get() == {}
    root.merge({ALICE.public: (envelope.to_cell(),)})
    assert value_of(root.get(), ALICE.public) == TEN


@pytest.mark.rule("R4.3.3")
@pytest.mark.parametrize(("region", "owner"), [("queue", ALICE.public), (REGION, did_of_key(ALICE.public))])
def test_an_envelope_fits_one_region_and_one_owner(region, owner):
    """The same key signed it, for another region, or for itself under another name."""
    foreign = written(ALICE, ALICE.public, TEN, region=region)[ALICE.public]
    root = Root(owners())

    assert root.merge({owner: foreign}) == {}


@pytest.mark.rule("R4.3.3")
def test_what_is_signed():
    """Domain tag, region, owner, number and payload; and that is what the signature is over."""
    (envelope,) = written(ALICE, ALICE.public, TEN)[ALICE.public].envelopes
    message = signed_bytes(region=REGION, owner=ALICE.public, seq=1, payload=envelope.payload)

    assert message == DOMAIN + encode_cell((REGION, ALICE.public, 1)) + encode_cell(TEN)
    assert verify(ALICE.public, message, envelope.signature) is True
    assert signed_bytes(region="a", owner="b", seq=1, payload=b"") != signed_bytes(
        region="ab", owner="", seq=1, payload=b""
    )


@pytest.mark.rule("R11.25", "R4.3.1")
def test_replaying_an_old_state_changes_nothing():
    """It is the owner's, it verifies, and the newer one holds."""
    old = written(ALICE, ALICE.public, TEN)
    new = written(ALICE, ALICE.public, {"x": (11, 2)}, onto=old)
    root = Root(owners(), new)

    assert root.merge(old) is new


@pytest.mark.rule("R4.1.2")
def test_an_old_envelope_is_not_verified_again():
    """Whoever kept the large envelopes of the past could have each decoded again and again."""
    old = written(ALICE, ALICE.public, TEN)
    new = written(ALICE, ALICE.public, {"x": (11, 2)}, onto=old)
    counting = Counting(allowed=True)
    root = Root(owners(rules=counting), new)

    assert root.merge(old) is new
    assert counting.asked == []
    assert Root(owners(rules=counting), old).merge(new) == new
    assert counting.asked == [ALICE.public]


@pytest.mark.rule("R4.1.2")
def test_only_what_differs_is_verified():
    """A thousand equal slots cost no look at a signature, one new slot costs one; own entries are trusted."""
    slots = {}
    for number in range(20):
        slots = written(ALICE, f"did:web:{number}", TEN, onto=slots)
    counting = Counting(allowed=True)
    root = Root(owners(rules=counting), slots)

    root.merge(dict(slots))
    assert counting.asked == []
    root.merge(written(ALICE, "did:web:new", TEN, onto=slots))
    assert counting.asked == ["did:web:new"]


class Counting:
    def __init__(self, *, allowed):
        self.allowed, self.asked = allowed, []

    def allows(self, owner, key):
        self.asked.append(owner)
        return self.allowed


@pytest.mark.rule("R9.24", "R4.1.1")
def test_p24_bad_entries_beside_good_ones_are_as_if_they_were_not_there():
    """Taking them out of the input gives the same state, byte for byte."""
    good = written(ALICE, ALICE.public, TEN, onto=written(BOB, 42, TEN))
    bad = {
        CAROL.public: written(ROGUE, CAROL.public, MUCH)[CAROL.public],
        ROGUE.public: good[ALICE.public],
        "nobody": good[ALICE.public],
        True: good[ALICE.public],
        7: (("signer", 1, b"", b""),),
        "#7": "junk",
        "did:web:example.com": (),
        b"short": good[42],
    }
    mixed = {**bad, **good}
    with_rogue = dict(mixed)
    with_rogue[42] = (*sorted([*mixed[42].to_cell(), *written(ROGUE, 42, MUCH)[42].to_cell()]),)
    lattice = owners()

    states = [Root(lattice).merge(foreign) for foreign in (good, mixed, with_rogue)]

    assert len({encode_cell(lattice.to_cell(state)) for state in states}) == 1
    assert set(states[0]) == {ALICE.public, 42}


@pytest.mark.rule("R9.7", "R1.1.2")
@pytest.mark.parametrize(
    "garbage",
    [
        None, 1, "x", (), [], {1: 2}, {b"x": ()}, {ALICE.public: None}, {ALICE.public: ((1, 2, 3, 4),)},
        {ALICE.public: ((ALICE.public, 1, b"", bytes(64)),) * 2}, {ALICE.public: ((ALICE.public, 0, b"", bytes(64)),)},
        {ALICE.public: ((ALICE.public, True, b"", bytes(64)),)}, {ALICE.public: ((ALICE.public, 1, b"", bytes(63)),)},
    ],
)  # fmt: skip
def test_p7_garbage_changes_nothing(garbage):
    """Beside slots and in an empty map; nothing raises."""
    state = written(ALICE, ALICE.public, TEN)

    check_garbage(owners(), state, garbage)


@pytest.mark.rule("R1.1.2")
@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", encode_cell("text"), encode_cell({"x": "no register"}), encode_cell(TEN) + b"\x01"],
)
def test_a_well_signed_payload_that_is_none_is_null(payload):
    """The owner signed nonsense: the slot stays empty, or as it was."""
    message = signed_bytes(region=REGION, owner=ALICE.public, seq=5, payload=payload)
    foreign = {ALICE.public: ((ALICE.public, 5, payload, ALICE.sign(message)),)}
    before = written(ALICE, ALICE.public, TEN)

    assert Root(owners()).merge(foreign) == {}
    assert Root(owners(), before).merge(foreign) is before


@pytest.mark.rule("R4.2.8")
def test_forms_of_one_key_are_different_slots():
    """As they were claimed: what is written under one is not seen under another."""
    forms = [ALICE.public, did_of_key(ALICE.public), did_of_key(ALICE.public) + "#key"]
    root = Root(owners(ALICE))
    for number, form in enumerate(forms):
        root.at(OwnSlot(root.lattice, form)).update(lambda _, n=number: {"x": (n, 1)})

    assert [value_of(root.get(), form) for form in forms] == [{"x": (n, 1)} for n in range(3)]
    other = Root(owners())
    assert other.merge(root.get()) == root.get()


@pytest.mark.rule("R4.2.9", "R1.4.7")
def test_a_revoked_key_drops_or_freezes_its_slot():
    """Dropped, its envelope goes and does not come back; frozen, the slot stays as it is."""
    slots = written(BOB, 42, {"b": (2, 1)}, onto=written(ALICE, 42, {"a": (1, 1)}))
    lattice = owners()
    root = Root(lattice, slots)

    revoke(root, lattice, 42, ALICE.public, Fate.DROP)

    assert value_of(root.get(), 42) == {"b": (2, 1)}
    root.merge(slots)
    assert value_of(root.get(), 42) == {"b": (2, 1)}

    revoke(root, lattice, 42, BOB.public, Fate.FREEZE)
    root.merge(written(BOB, 42, {"b": (3, 2)}, onto=root.get()))
    assert value_of(root.get(), 42) == {"b": (2, 1)}

    revoke(root, lattice, 42, BOB.public, Fate.DROP)
    assert root.get() == {}
    revoke(root, lattice, 7, CAROL.public, Fate.DROP)
    with pytest.raises(WrongState, match="fork"):
        revoke(root.fork(), lattice, 7, CAROL.public, Fate.DROP)


@pytest.mark.rule("R4.2.8", "R4.2.9")
def test_what_a_lost_key_signed_goes_from_every_slot_of_its_owner():
    """Slots under other forms of the owner are other slots, but the same thief's; other owners' slots stay."""
    lattice = owners(rules=Authority(ManualClock()))
    name = did_of_key(ALICE.public)
    mine = written(ALICE, ALICE.public, TEN, onto=written(ALICE, name, TEN))
    root = Root(lattice)
    root.merge(written(BOB, BOB.public, TEN, onto=mine))
    assert len(root.get()) == 3

    revoke(root, lattice, name, ALICE.public, Fate.DROP)

    assert list(root.get()) == [BOB.public]
    assert list(root.merge(mine)) == [BOB.public]


# --- writing across the boundary


@pytest.mark.rule("R1.4.5", "R11.14")
def test_many_edits_on_a_fork_are_one_signature_at_sync():
    """The fork is unsigned; the parent's slot has the next number once, not once an edit."""
    lattice = owners(ALICE)
    root = Root(lattice)
    fork = root.at(OwnSlot(lattice, ALICE.public)).fork()
    for number in range(5):
        fork.update(lambda now, n=number: {**now, f"k{n}": (n, 1)})
    assert root.get() == {}

    fork.sync()

    (envelope,) = root.get()[ALICE.public].envelopes
    assert envelope.seq == 1
    assert len(value_of(root.get(), ALICE.public)) == 5
    fork.sync()
    root.at(OwnSlot(lattice, ALICE.public)).merge({"k0": (0, 1)})
    assert root.get()[ALICE.public].envelopes == (envelope,), "nothing new, no new signature"
    fork.update(lambda now: {**now, "k0": ("new", 2)})
    fork.sync()
    assert root.get()[ALICE.public].envelopes[0].seq == 2


@pytest.mark.rule("R1.4.5", "R1.4.4")
def test_a_fork_inside_the_payload_signs_once_at_the_boundary():
    """However deep the place is."""
    lattice = owners(ALICE)
    root = Root(lattice)
    step = EntryStep("k", PAYLOADS.values)
    fork = root.at(OwnSlot(lattice, ALICE.public)).at(step).fork()
    fork.update(lambda _: ("a", 1))
    fork.update(lambda _: ("b", 2))

    fork.sync()

    assert root.get()[ALICE.public].envelopes[0].seq == 1
    assert value_of(root.get(), ALICE.public) == {"k": ("b", 2)}


@pytest.mark.rule("R1.4.5", "R7.10")
@pytest.mark.parametrize(("key", "why"), [(None, "no key"), (ROGUE, "may not sign")])
def test_writing_without_a_key_that_may_raises(key, why):
    """On the fork nothing is signed yet; at sync it is said, and nothing changed."""
    lattice = owners(key)
    before = written(ALICE, 42, TEN)
    root = Root(lattice, before)
    fork = root.at(OwnSlot(lattice, 42)).fork()
    fork.update(lambda now: {**now, "y": (1, 1)})

    with pytest.raises(WrongState, match=why):
        fork.sync()
    with pytest.raises(WrongState, match=why):
        root.at(OwnSlot(lattice, 42)).update(lambda now: {**now, "y": (1, 1)})
    assert root.get() is before


# --- bytes


def test_a_map_goes_to_a_peer_and_to_disk_as_a_cell():
    """The peer verifies it, the own disk is trusted; both read what was written."""
    lattice = owners()
    slots = written(
        ALICE, ALICE.public, TEN, onto=written(BOB, 42, TEN, onto=written(ALICE, 42, {"a": (1, 1)}))
    )
    data = encode_cell(lattice.to_cell(slots))

    assert Root(lattice).merge(decode_cell(data)) == slots
    assert lattice.restored(decode_cell(data)) == slots
    for bad in (
        "x",
        CellMap({"nobody": ()}),
        CellMap({42: ()}),
        CellMap({42: ((BOB.public, 1, b"\xff", bytes(64)),)}),
    ):
        with pytest.raises(Corrupt):
            lattice.restored(bad)


@pytest.mark.rule("R1.1.3", "R7.10")
def test_the_literal_text_needs_a_key_where_join_does_not():
    """Two admins' slots: the text signs their join with the key at hand, and raises where it is nobody's."""
    one, two = written(ALICE, 42, {"a": (1, 1)}), written(BOB, 42, {"b": (2, 1)})

    merged = owners(ALICE).merge_cad(one, two)
    assert value_of(merged, 42) == {"a": (1, 1), "b": (2, 1)}
    assert [envelope.signer for envelope in merged[42].envelopes] == [ALICE.public]
    for key in (None, ROGUE):
        with pytest.raises(WrongState):
            owners(key).merge_cad(one, two)
    joined = owners().join(one, two)
    assert joined == owners().join(two, one)
    assert isinstance(joined[42], Slot)
    assert owners().merge_cad(one, written(ROGUE, 7, MUCH)) == one, "nil adopts nothing unverified"
