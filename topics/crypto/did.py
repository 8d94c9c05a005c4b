"""Decentralized identifiers (W3C DID core), as far as owners need them (replication 4.2).

`did:method:id`; a path, query or fragment points into the identified thing and is no part of who it is, so all three
are cut off, and what is percent-encoded is decoded. A `did:key` holds its key: base58btc under the multibase letter z,
of two bytes that say Ed25519 and the 32 of the key. Any other letter, codec, length or spelling is refused, and so is a
key of small order, for which anybody can sign.

`did:convex:#1337` is an address written with its `#`, which elsewhere begins a fragment.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from topics.crypto.keys import KEY_SIZE, is_strong_key
from topics.kernel.errors import invalid

DID_CHARS_MAX: Final = 2048
ED25519_PREFIX: Final = b"\xed\x01"
BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE58_CHARS_MAX: Final = 128  # a key has 48, an invite 116; decoding takes the square of it

_DID: Final = re.compile(r"did:([a-z0-9]+):(#?[^/?#]*)", re.ASCII)
_ID: Final = re.compile(r"#?(?:[A-Za-z0-9._:-]|%[0-9A-Fa-f]{2})+", re.ASCII)
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_DIGITS: Final = {letter: digit for digit, letter in enumerate(BASE58)}


@attrs.frozen
class Did:
    """Who is meant: the method, and the id within it, decoded."""

    method: str
    id: str


def parse_did(text: str) -> Did:
    """The identity in the text. Raises `Rejected` for what is no DID."""
    if len(text) > DID_CHARS_MAX:
        raise invalid("did", f"longer than {DID_CHARS_MAX} characters")
    if not text.isascii():
        raise invalid("did", "its characters are ASCII; others must be percent-encoded")
    found = _DID.match(text)
    if found is None:
        raise invalid("did", "must be did:METHOD:ID")
    method, escaped = found.groups()
    if escaped.startswith("#") and method != "convex":
        escaped = ""  # a fragment of nothing
    if _ID.fullmatch(escaped) is None:
        raise invalid("did", "its id is empty or has characters that must be percent-encoded")
    try:
        name = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), escaped.encode()).decode()
    except UnicodeDecodeError:
        raise invalid("did", "its id is not UTF-8 once decoded") from None
    assert name
    assert method
    return Did(method, name)


def did_of_key(public: bytes) -> str:
    """The `did:key` of an Ed25519 key."""
    assert len(public) == KEY_SIZE
    return f"did:key:z{base58(ED25519_PREFIX + public)}"


def key_of_did(text: str) -> bytes:
    """The Ed25519 key inside a `did:key`. Raises `Rejected` if it is anything else."""
    did = parse_did(text)
    if did.method != "key":
        raise invalid("did", f"did:{did.method} holds no key; only did:key does")
    if not did.id.startswith("z"):
        raise invalid("did", "the key must be in base58btc: did:key:z…")
    data = from_base58(did.id[1:])
    if len(data) != len(ED25519_PREFIX) + KEY_SIZE or not data.startswith(ED25519_PREFIX):
        raise invalid("did", "holds no Ed25519 key, which is the bytes ed 01 and 32 more")
    public = data[len(ED25519_PREFIX) :]
    if not is_strong_key(public):
        raise invalid("did", "the key is not canonical or of small order, so anybody could sign for it")
    return public


def base58(data: bytes) -> str:
    """Base58 in the alphabet of Bitcoin; each leading zero byte is a 1."""
    letters: list[str] = []
    number = int.from_bytes(data, "big")
    while number:
        number, digit = divmod(number, 58)
        letters.append(BASE58[digit])
    zeros = len(data) - len(data.lstrip(b"\x00"))
    assert all(letter in _DIGITS for letter in letters)
    return "1" * zeros + "".join(reversed(letters))


def from_base58(text: str) -> bytes:
    """The bytes of base58 text, which has one spelling. Raises `Rejected`."""
    if len(text) > BASE58_CHARS_MAX:
        raise invalid("base58", f"longer than {BASE58_CHARS_MAX} characters")
    number = 0
    for letter in text:
        digit = _DIGITS.get(letter)
        if digit is None:
            raise invalid("base58", f"{letter!r} is no digit of base58")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
