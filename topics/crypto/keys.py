"""Ed25519 keys, and what a valid signature is (RFC 8032; replication 5.1, 13).

Signing is the library's. Verifying is the library's and more: OpenSSL refuses an S that is not below the group's order,
but takes a point in a second spelling, and a key or commitment of small order, under which one signature fits many
messages. `verify` is strict: every encoding is the only one of its point, and no point has small order, so the bytes of
a signature name one key and one message. `verify_plain` is the library's answer, for records whose author is ourselves.

No function here raises for bytes that a peer chose: a key or signature that is no such thing verifies nothing.
"""

from __future__ import annotations

from typing import Final

from topics.kernel.extras import Needs

with Needs("replicated values", "kv"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEED_SIZE: Final = 32
KEY_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64

FIELD_PRIME: Final = 2**255 - 19
GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_SIGN_BIT: Final = 1 << 255

# The y of every point whose order divides 8: of order 1, 2, 4, and two of order 8. A test computes them from the curve.
SMALL_ORDER_Y: Final = (
    1,
    FIELD_PRIME - 1,
    0,
    int.from_bytes(
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
    ),
    int.from_bytes(
        bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
    ),
)
assert all(0 <= y < FIELD_PRIME for y in SMALL_ORDER_Y)


class KeyPair:
    """A private key and its public half. Only `sign` ever touches the private one; it is never printed."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: Final[bytes] = private.public_key().public_bytes_raw()
        assert len(self.public) == KEY_SIZE

    @classmethod
    def from_seed(cls, seed: bytes) -> KeyPair:
        """The pair of a 32-byte secret, which the caller takes from its `Entropy`."""
        assert len(seed) == SEED_SIZE
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature; the same message always gives the same one."""
        signature = self._private.sign(message)
        assert len(signature) == SIGNATURE_SIZE
        return signature

    def __repr__(self) -> str:
        return f"KeyPair({self.public.hex()})"


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's over the message, strictly."""
    if not is_strong_key(public) or len(signature) != SIGNATURE_SIZE:
        return False
    if not is_strong_point(signature[:KEY_SIZE]):
        return False
    if int.from_bytes(signature[KEY_SIZE:], "little") >= GROUP_ORDER:
        return False
    return verify_plain(public, message, signature)


def verify_plain(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the library accepts the signature."""
    if len(public) != KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_strong_key(public: bytes) -> bool:
    """Whether the bytes could be somebody's key: the right size, canonical, not of small order."""
    return len(public) == KEY_SIZE and is_strong_point(public)


def is_strong_point(encoded: bytes) -> bool:
    """Whether 32 bytes are a canonical encoding that is not of small order. Whether the point is on the curve is left
    to the library.

    All points with x = 0 have small order, so a canonical y also rules out the second sign of zero.
    """
    assert len(encoded) == KEY_SIZE
    y = int.from_bytes(encoded, "little") & (_SIGN_BIT - 1)
    return y < FIELD_PRIME and y not in SMALL_ORDER_Y
