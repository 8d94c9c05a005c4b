"""Strict Ed25519: one key, one message, one spelling; and what the library alone would let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crypto.edwards import L, P, challenge, encodings, secret_scalar, small_order_points
from topics.crypto.keys import SMALL_ORDER_Y, KeyPair, is_strong_key, verify, verify_plain

SEED = bytes(range(32))
KEYS = KeyPair.from_seed(SEED)
IDENTITY = (1).to_bytes(32, "little")


@pytest.mark.rule("R13.1")
def test_the_list_of_small_order_is_what_the_curve_says():
    """The y of every point whose order divides 8, and no other, is refused."""
    points = small_order_points()

    assert len(points) == 8
    assert sorted(SMALL_ORDER_Y) == sorted({y for _, y in points})


@pytest.mark.rule("R13.1")
def test_no_spelling_of_a_small_order_key_verifies_anything():
    """All fourteen encodings, canonical or not; the library takes some of them for keys that signed every message."""
    spellings = [encoding for point in small_order_points() for encoding in encodings(point)]
    forged = IDENTITY + bytes(32)  # R the identity, S zero

    accepted = [key for key in spellings for text in (b"a", b"b", b"c") if verify_plain(key, text, forged)]
    strict = [key for key in spellings for text in (b"a", b"b", b"c") if verify(key, text, forged)]

    assert len(spellings) == len(set(spellings)) == 14
    assert accepted.count(IDENTITY) == 3, (
        "the library no longer takes the identity for a key: nothing is tested"
    )
    assert strict == []
    assert not any(is_strong_key(key) for key in spellings)


@pytest.mark.rule("R13.1")
def test_a_small_order_key_is_refused_whatever_the_commitment():
    """Under the identity as a key, one signature with a strong R holds for every message."""
    forged = KEYS.public + (secret_scalar(SEED) % L).to_bytes(32, "little")

    assert [verify_plain(IDENTITY, message, forged) for message in (b"a", b"b")] == [True, True]
    assert [verify(IDENTITY, message, forged) for message in (b"a", b"b")] == [False, False]


@pytest.mark.rule("R13.1")
def test_a_signature_with_a_small_commitment_is_refused():
    """Its maker can make it for any message without choosing a secret; the library accepts it."""
    message = b"commitment of order 1"
    scalar = challenge(IDENTITY, KEYS.public, message) * secret_scalar(SEED) % L
    signature = IDENTITY + scalar.to_bytes(32, "little")

    assert verify_plain(KEYS.public, message, signature) is True
    assert verify(KEYS.public, message, signature) is False


@pytest.mark.rule("R13.1")
def test_s_has_one_spelling():
    """S + L is the same number in the group, and another signature if it is let through."""
    signature = KEYS.sign(b"m")
    scalar = int.from_bytes(signature[32:], "little")
    second = signature[:32] + (scalar + L).to_bytes(32, "little")

    assert verify(KEYS.public, b"m", signature) is True
    assert verify(KEYS.public, b"m", second) is False


def test_a_key_has_one_spelling():
    """A y from p on is the same point as y - p, and no key."""
    for y in range(P, 2**255):
        assert is_strong_key(y.to_bytes(32, "little")) is False
    assert is_strong_key((P - 2).to_bytes(32, "little")) is True, (
        "the y before the last is nobody's small point"
    )


def test_the_vector_of_the_standard():
    """RFC 8032, test 2."""
    keys = KeyPair.from_seed(
        bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    )

    assert keys.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert keys.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert verify(keys.public, b"\x72", keys.sign(b"\x72")) is True


@given(st.binary(max_size=200), st.integers(0, 64 * 8 - 1))
def test_what_is_signed_verifies_and_one_flipped_bit_does_not(message, bit):
    """A signature holds for its message and its key, whole."""
    signature = KEYS.sign(message)
    flipped = bytearray(signature)
    flipped[bit // 8] ^= 1 << bit % 8

    assert verify(KEYS.public, message, signature) is True
    assert verify_plain(KEYS.public, message, signature) is True
    assert verify(KEYS.public, message, bytes(flipped)) is False
    assert verify(KEYS.public, message + b"x", signature) is False


@given(st.binary(max_size=80), st.binary(max_size=20), st.binary(max_size=80))
def test_no_bytes_make_it_raise(public, message, signature):
    """What a peer sends is no signature, whatever it is."""
    assert verify(public, message, signature) is False
    assert verify_plain(public, message, signature) is False


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64))
def test_random_bytes_of_the_right_size_verify_nothing(public, signature):
    """Points off the curve included."""
    assert verify(public, b"m", signature) is False


def test_a_key_pair_does_not_show_its_secret():
    """Its text is its public half."""
    assert repr(KEYS) == f"KeyPair({KEYS.public.hex()})"
    assert SEED.hex() not in repr(KEYS)
