"""Identifiers of owners: who is meant, and the one key in a did:key."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crypto.edwards import encodings, small_order_points
from topics.crypto.did import (
    BASE58,
    DID_CHARS_MAX,
    ED25519_PREFIX,
    Did,
    base58,
    did_of_key,
    from_base58,
    key_of_did,
    parse_did,
)
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Rejected

KEYS = KeyPair.from_seed(bytes(32))


@pytest.mark.rule("R10.3", "R4.2.3")
def test_o10_the_did_of_the_zero_seed():
    """O10: seed 00×32, its public key and its did:key, both ways."""
    assert KEYS.public.hex() == "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    assert did_of_key(KEYS.public) == "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"
    assert key_of_did("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp") == KEYS.public


@pytest.mark.rule("R4.2.3", "R7.9", "R4.2.7")
@pytest.mark.parametrize(
    "ident",
    [
        KEYS.public.hex(),  # bare hex, as one public test has it
        "f" + (ED25519_PREFIX + KEYS.public).hex(),  # multibase letter of hex
        "Z" + base58(ED25519_PREFIX + KEYS.public),
        "z",
        "z" + base58(KEYS.public),  # no codec
        "z" + base58(b"\xe7\x01" + KEYS.public),  # the codec of another curve
        "z" + base58(ED25519_PREFIX + KEYS.public[:-1]),
        "z" + base58(ED25519_PREFIX + KEYS.public + b"\x00"),
        "z1" + base58(ED25519_PREFIX + KEYS.public),  # a leading zero byte
        "z" + base58(ED25519_PREFIX + KEYS.public).replace("M", "0"),  # no digit of base58
        "z" + BASE58 * 3,
    ],
)
def test_what_is_no_did_key_is_refused(ident):
    """Another letter, codec, length or spelling holds no key."""
    with pytest.raises(Rejected):
        key_of_did(f"did:key:{ident}")


@pytest.mark.rule("R4.2.3", "R4.2.7", "R13.1")
def test_a_small_order_key_in_a_did_is_refused():
    """Anybody could sign for it."""
    for point in small_order_points():
        for encoding in encodings(point):
            with pytest.raises(Rejected, match="small order"):
                key_of_did(did_of_key(encoding))


@pytest.mark.rule("R4.2.6")
@pytest.mark.parametrize(
    ("text", "did"),
    [
        ("did:web:example.com:8080/api", Did("web", "example.com:8080")),
        ("did:web:example.com%3A8080", Did("web", "example.com:8080")),
        ("did:web:example.com?version=1#key", Did("web", "example.com")),
        ("did:web:caf%C3%A9", Did("web", "café")),
        ("did:convex:1337", Did("convex", "1337")),
        ("did:convex:#1337", Did("convex", "#1337")),
        ("did:convex:%231337", Did("convex", "#1337")),
        ("did:convex:#1337#key", Did("convex", "#1337")),
        ("did:key:z6Mk#z6Mk", Did("key", "z6Mk")),
    ],
)
def test_an_identity_is_method_and_id(text, did):
    """Path, query and fragment are cut off, and what is percent-encoded is decoded."""
    assert parse_did(text) == did


@pytest.mark.rule("R4.2.6")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "did",
        "did:",
        "did:web",
        "did:web:",
        "did::example.com",
        "did:web:/api",
        "did:web:?query",
        "did:web:#fragment",
        "did:convex:#",
        "DID:web:example.com",
        "http:example.com:80",
        " did:web:a",
        "did:Web:a",
        "did:web:a b",
        "did:web:a%",
        "did:web:a%2",
        "did:web:a%zz",
        "did:web:a%ff",
        "did:web:café",
        "did:web:a\n",
        "did:web:" + "a" * DID_CHARS_MAX,
    ],
)
def test_what_is_no_did_is_refused(text):
    """No scheme, no method, no id, or characters that an identifier does not have."""
    with pytest.raises(Rejected):
        parse_did(text)


@given(st.binary(max_size=40))
def test_base58_goes_both_ways(data):
    """Every leading zero is kept."""
    assert from_base58(base58(data)) == data


@given(st.text(BASE58, max_size=50))
def test_base58_has_one_spelling(text):
    """What decodes encodes to the same text."""
    assert base58(from_base58(text)) == text


@given(st.text(max_size=30))
def test_any_text_is_a_did_or_is_refused(text):
    """Nothing else is raised."""
    for candidate in (text, f"did:{text}", f"did:key:{text}", f"did:key:z{text}"):
        with contextlib.suppress(Rejected):
            assert parse_did(candidate).id
        try:
            key_of_did(candidate)
        except Rejected:
            continue
        raise AssertionError(f"{candidate!r} holds a key")
