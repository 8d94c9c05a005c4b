"""Who may sign for whom: four forms of owners, and no for everything that is not known (replication 4.2)."""

from __future__ import annotations

import pytest

from tests.crypto.edwards import encodings, small_order_points
from topics.codec.cell import INT_MAX
from topics.crypto.did import Did, did_of_key
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Rejected
from topics.lattice.owners.authority import (
    ANSWERS_MAX,
    KEYS_PER_OWNER_MAX,
    Authority,
    Fate,
    OwnerKeys,
    address_of,
    is_owner,
)
from topics.testing.clock import ManualClock

ALICE, BOB, ROGUE = (KeyPair.from_seed(bytes([n]) * 32).public for n in (1, 2, 3))
TTL = 1000
WEB = Did("web", "example.com")


class Accounts:
    """An address resolver over a dict, which counts what it is asked."""

    def __init__(self, keys):
        self.keys = keys
        self.asked = []

    def keys_of(self, address):
        self.asked.append(address)
        return self.keys.get(address)


class Names:
    def __init__(self, addresses):
        self.addresses = addresses
        self.asked = []

    def address_of(self, name):
        self.asked.append(name)
        return self.addresses.get(name)


class Web:
    """A resolver of did:web."""

    def __init__(self, keys):
        self.keys = keys

    def keys_of(self, did):
        return self.keys.get(did)


class Failing:
    def __init__(self, error):
        self.error = error

    def keys_of(self, _):
        raise self.error

    def address_of(self, _):
        raise self.error


def authority(clock=None, **resolvers):
    return Authority(clock or ManualClock(), answer_ttl_ms=TTL, **resolvers)


@pytest.mark.rule("R4.2.1")
def test_a_key_signs_for_itself():
    """No resolver is needed, and no other key will do."""
    rules = authority()

    assert rules.allows(ALICE, ALICE) is True
    assert rules.allows(ALICE, BOB) is False


@pytest.mark.rule("R4.2.2")
@pytest.mark.parametrize("owner", [42, "#42", "did:convex:42", "did:convex:#42", "did:convex:%2342"])
def test_an_address_asks_its_resolver(owner):
    """Every key of the account signs, in each form of the address."""
    rules = authority(addresses=Accounts({42: OwnerKeys({ALICE, BOB})}))

    assert [rules.allows(owner, key) for key in (ALICE, BOB, ROGUE)] == [True, True, False]


@pytest.mark.rule("R4.2.3")
def test_a_did_key_signs_for_itself():
    """A fragment changes nothing about who is meant."""
    rules = authority()

    for owner in (did_of_key(ALICE), did_of_key(ALICE) + "#key-1"):
        assert rules.allows(owner, ALICE) is True
        assert rules.allows(owner, BOB) is False


@pytest.mark.rule("R4.2.4")
def test_a_name_goes_through_the_name_resolver():
    """To an address, and from there to its keys. A name of digits is an address."""
    rules = authority(addresses=Accounts({7: OwnerKeys([ALICE])}), names=Names({"alice.acme": 7, "8": 7}))

    assert rules.allows("did:convex:alice.acme", ALICE) is True
    assert rules.allows("did:convex:alice.acme", BOB) is False
    assert rules.allows("did:convex:nobody", ALICE) is False
    assert rules.allows("did:convex:8", ALICE) is False
    assert rules.allows("did:convex:#alice.acme", ALICE) is False


@pytest.mark.rule("R4.2.5")
def test_other_dids_ask_the_resolver_of_their_method():
    """With the identity, path and fragment cut off."""
    rules = authority(dids={"web": Web({Did("web", "example.com:8080"): OwnerKeys([ALICE])})})

    assert rules.allows("did:web:example.com%3A8080/users#a", ALICE) is True
    assert rules.allows("did:web:example.com", ALICE) is False
    assert rules.allows("did:ion:example.com:8080", ALICE) is False


@pytest.mark.rule("R4.2.7", "R7.7")
@pytest.mark.parametrize(
    "resolvers",
    [
        {},
        {"addresses": Accounts({}), "names": Names({}), "dids": {"web": Web({})}},
        {
            "addresses": Failing(OSError()),
            "names": Failing(Rejected),
            "dids": {"web": Failing(ZeroDivisionError())},
        },
        {"addresses": Accounts({42: {ALICE}}), "dids": {"web": Web({Did("web", "a"): "keys"})}},
        {
            "addresses": Accounts({42: OwnerKeys([1, "a"])}),
            "dids": {"web": Web({Did("web", "a"): OwnerKeys(3)})},
        },
    ],
    ids=["none", "silent", "failing", "untyped", "wrongly-typed"],
)
@pytest.mark.parametrize("owner", [42, "#42", "did:convex:42", "did:convex:name", "did:web:a"])
def test_what_cannot_be_verified_is_refused(owner, resolvers):
    """No resolver, one that says nothing, one that fails in any way."""
    assert authority(**resolvers).allows(owner, ALICE) is False


@pytest.mark.rule("R4.2.7")
@pytest.mark.parametrize(
    "owner",
    [
        None, True, -1, INT_MAX + 1, 1.0, b"", ALICE[:-1], ALICE + b"x", ALICE.hex(), "", "#", "#-1", "#042",
        "#٤٢", "#4 2", "alice", "did:web", "did:key:" + ALICE.hex(), ("#42",), f"#{INT_MAX + 1}",
        "did:web:" + "a" * 3000,
    ],
)  # fmt: skip
def test_unknown_forms_are_no_owners(owner):
    """A hex string is none of the forms, nor is a number in a second spelling."""
    assert is_owner(owner) is False
    assert authority(addresses=Accounts({42: OwnerKeys([ALICE])})).allows(owner, ALICE) is False


@pytest.mark.rule("R4.2.7", "R13.1")
def test_small_order_keys_sign_for_nobody():
    """Not as an owner, not as a signer that a resolver names."""
    for point in small_order_points():
        for weak in encodings(point):
            rules = authority(addresses=Accounts({42: OwnerKeys([weak, ALICE])}))
            assert is_owner(weak) is False
            assert rules.allows(weak, weak) is False
            assert rules.allows(42, weak) is False
            assert rules.allows(42, ALICE) is True


def test_an_account_has_a_bounded_number_of_keys():
    """The most is allowed, one more is no answer."""
    keys = [KeyPair.from_seed(n.to_bytes(32, "big")).public for n in range(KEYS_PER_OWNER_MAX + 1)]

    assert authority(addresses=Accounts({1: OwnerKeys(keys[1:])})).allows(1, keys[1]) is True
    assert authority(addresses=Accounts({1: OwnerKeys(keys)})).allows(1, keys[1]) is False


@pytest.mark.rule("R4.2.9")
def test_answers_are_kept_for_their_time():
    """The resolver is asked once, and again after it: a key that is gone then signs no more."""
    clock, accounts = ManualClock(), Accounts({42: OwnerKeys([ALICE])})
    rules = authority(clock, addresses=accounts)

    assert rules.allows(42, ALICE) is True
    accounts.keys = {42: OwnerKeys([BOB])}
    clock.advance(TTL - 1)
    assert [rules.allows(42, ALICE), rules.allows(42, BOB)] == [True, False]
    assert accounts.asked == [42]
    clock.advance(1)
    assert [rules.allows(42, ALICE), rules.allows(42, BOB)] == [False, True]
    assert accounts.asked == [42, 42]


@pytest.mark.rule("R4.2.5", "R4.2.9")
def test_an_answer_may_say_how_long_it_holds():
    """Shorter than the cache would keep it, or over already."""
    clock = ManualClock(5000)
    rules = authority(
        clock,
        addresses=Accounts({1: OwnerKeys([ALICE], until_ms=5010), 2: OwnerKeys([ALICE], until_ms=5000)}),
    )

    assert rules.allows(1, ALICE) is True
    assert rules.allows(2, ALICE) is False
    clock.advance(9)
    assert rules.allows(1, ALICE) is True
    clock.advance(1)
    assert rules.allows(1, ALICE) is False


def test_a_failure_is_not_kept():
    """The next merge asks again."""
    accounts = Accounts({})
    rules = authority(addresses=accounts)
    assert rules.allows(42, ALICE) is False

    accounts.keys = {42: OwnerKeys([ALICE])}

    assert rules.allows(42, ALICE) is True


def test_the_cache_is_bounded():
    """The oldest answer goes; asking for it again brings it back."""
    accounts = Accounts({})
    accounts.keys_of = lambda address: (accounts.asked.append(address), OwnerKeys([ALICE]))[1]
    rules = authority(addresses=accounts)

    for address in range(ANSWERS_MAX + 1):
        rules.allows(address, ALICE)
    accounts.asked.clear()
    assert rules.allows(ANSWERS_MAX, ALICE) is True
    assert rules.allows(0, ALICE) is True
    assert accounts.asked == [0]


@pytest.mark.rule("R4.2.9")
def test_a_revoked_key_signs_no_more_and_the_callback_hears_of_it():
    """At once, cached or not; the other keys of the account still do unless the slot is frozen."""
    heard = []
    rules = authority(
        addresses=Accounts({42: OwnerKeys([ALICE, BOB])}), on_revoked=lambda *told: heard.append(told)
    )
    assert rules.allows(42, ALICE) is True

    rules.revoke(42, ALICE, Fate.DROP)

    assert [rules.allows(42, ALICE), rules.allows(42, BOB)] == [False, True]
    assert rules.is_frozen(42) is False

    rules.revoke(42, BOB, Fate.FREEZE)

    assert [rules.allows(42, ALICE), rules.allows(42, BOB)] == [False, False]
    assert rules.is_frozen(42) is True
    assert heard == [(42, ALICE, Fate.DROP), (42, BOB, Fate.FREEZE)]


@pytest.mark.rule("R4.2.9")
def test_a_frozen_slot_takes_nothing_from_the_accounts_other_keys():
    """Alice's key is revoked and the slot frozen, so Bob's key signs no more for it; for #7 it still does."""
    rules = authority(addresses=Accounts({42: OwnerKeys([ALICE, BOB]), 7: OwnerKeys([BOB])}))

    rules.revoke(42, ALICE, Fate.FREEZE)

    assert [rules.allows(42, BOB), rules.allows(7, BOB)] == [False, True]


@pytest.mark.rule("R4.2.9")
def test_a_revocation_drops_the_cached_answers_of_every_form():
    """The resolver no longer names the key; what it said about "#42" before does not outlive the news about 42."""
    accounts = Accounts({42: OwnerKeys([ALICE, BOB])})
    rules = authority(addresses=accounts)
    assert rules.allows("#42", ALICE) is True
    accounts.keys = {42: OwnerKeys([BOB])}
    assert rules.allows("#42", ALICE) is True, "cached"

    rules.revoke(42, ALICE, Fate.DROP)

    assert [rules.allows("#42", ALICE), rules.allows("#42", BOB)] == [False, True]


@pytest.mark.rule("R4.2.9")
@pytest.mark.parametrize(
    "forms",
    [
        (ALICE, did_of_key(ALICE), did_of_key(ALICE) + "#key-1"),
        (42, "#42", "did:convex:42", "did:convex:#42"),
        ("did:web:example.com", "did:web:example.com#key-1", "did:web:example%2Ecom/path"),
        ("did:convex:alice", "did:convex:alice?x"),
    ],
    ids=["key", "address", "web", "name"],
)
def test_a_lost_key_signs_for_no_form_of_its_owner(forms):
    """The forms are different slots, but whoever stole the key must not go on under another one."""
    for revoked in forms:
        rules = authority(
            addresses=Accounts({42: OwnerKeys([ALICE, BOB])}),
            names=Names({"alice": 42}),
            dids={"web": Web({WEB: OwnerKeys([ALICE])})},
        )
        allowed = [rules.allows(form, ALICE) for form in forms]
        rules.revoke(revoked, ALICE, Fate.DROP)

        assert allowed == [True] * len(forms)
        assert [rules.allows(form, ALICE) for form in forms] == [False] * len(forms)


@pytest.mark.rule("R4.2.9")
def test_a_clock_that_steps_back_makes_no_answer_last():
    """An answer from a time that has not come yet is asked for again: else a year's step is a year of belief."""
    clock, accounts = ManualClock(10_000_000), Accounts({42: OwnerKeys([ALICE])})
    rules = authority(clock, addresses=accounts)
    assert rules.allows(42, ALICE) is True
    accounts.keys = {42: OwnerKeys([BOB])}
    clock.set(5_000_000)

    assert [rules.allows(42, ALICE), rules.allows(42, BOB)] == [False, True]


def test_owners_whom_nobody_knows_take_no_room_in_the_cache():
    """Else a map full of them would push out the answers that are of use."""
    accounts = Accounts({42: OwnerKeys([ALICE])})
    rules = authority(addresses=accounts)
    assert rules.allows(42, ALICE) is True
    for address in range(1000, 1000 + ANSWERS_MAX):
        assert rules.allows(address, ALICE) is False
    accounts.asked.clear()

    assert rules.allows(42, ALICE) is True
    assert accounts.asked == []


@pytest.mark.rule("R4.2.4", "R4.2.7")
def test_digits_are_never_a_name():
    """Whoever registers the name `007` or `00042` is not that address, nor anybody else here."""
    names = Names({"007": 42, "42": 42, "\u0664\u0662": 42})
    rules = authority(addresses=Accounts({42: OwnerKeys([ALICE])}), names=names)

    assert rules.allows("did:convex:007", ALICE) is False
    assert rules.allows("did:convex:%D9%A4%D9%A2", ALICE) is False, "digits of another script"
    assert rules.allows("did:convex:42", ALICE) is True
    assert names.asked == []


@pytest.mark.rule("R4.2.6", "R9.24")
@pytest.mark.parametrize("tail", ["#\ud800", "?\u00e9", "/\u2028"])
def test_a_did_is_ascii(tail):
    """Also behind the id: text that cannot be encoded would be an owner whose slot raises instead of being judged."""
    assert is_owner(did_of_key(ALICE) + tail) is False
    assert authority().allows(did_of_key(ALICE) + tail, ALICE) is False


def test_addresses_have_one_spelling():
    assert [address_of(text) for text in ("#0", "#42", f"#{INT_MAX}", "#042", "42", "", "#")] == [
        0, 42, INT_MAX, None, None, None, None,
    ]  # fmt: skip
