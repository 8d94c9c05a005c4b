"""Invites: how a node that nobody knows becomes a peer (replication 5.9).

A token is Base58Check of store id, secret and the inviter's key, small enough for a chat line: a version byte in
front, four bytes of BLAKE3 behind, which find a slip of the pen. Whoever shows the secret of an open invite, and proves
that it has the key it names, becomes an active peer, once. The inviter keeps the hash of the secret only, so what it
stores opens nothing. The token is a bearer's: send it, and the Join that uses it, over a private channel.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from topics.crypto.did import base58, from_base58
from topics.crypto.hashing import blake3
from topics.crypto.keys import KEY_SIZE, KeyPair, verify
from topics.kernel.errors import invalid
from topics.weaver.model.intention import STORE_ID_SIZE
from topics.weaver.sync.messages import Join

VERSION: Final = 1
SECRET_SIZE: Final = 32
CHECK_SIZE: Final = 4
TOKEN: Final = Struct(f"<B{STORE_ID_SIZE}s{SECRET_SIZE}s{KEY_SIZE}s")
assert TOKEN.size == 81
_PROOF: Final = b"topics.weaver.join\x00"  # so that no other signature of the key can stand for it


class Invite(NamedTuple):
    """What a token says."""

    store_id: bytes
    secret: bytes
    inviter: bytes

    def encode(self) -> str:
        """The token."""
        assert (len(self.store_id), len(self.secret), len(self.inviter)) == (
            STORE_ID_SIZE,
            SECRET_SIZE,
            KEY_SIZE,
        )
        data = TOKEN.pack(VERSION, *self)
        return base58(data + blake3(data)[:CHECK_SIZE])

    @classmethod
    def decode(cls, token: str) -> Invite:
        """Raises `Rejected` for anything that is not exactly a token."""
        data = from_base58(token.strip())
        if len(data) != TOKEN.size + CHECK_SIZE:
            raise invalid("invite", "is no token: its length is wrong; copy all of it")
        body, check = data[: TOKEN.size], data[TOKEN.size :]
        if blake3(body)[:CHECK_SIZE] != check:
            raise invalid("invite", "is mistyped: its check does not fit; copy it again")
        version, store_id, secret, inviter = TOKEN.unpack(body)
        if version != VERSION:
            raise invalid("invite", f"version {version} is not spoken here: use version {VERSION}")
        return cls(store_id, secret, inviter)

    def join(self, node: KeyPair) -> Join:
        """What the bearer says to the inviter."""
        signature = node.sign(_proof_of(self.store_id, self.secret, node.public))
        join = Join(self.store_id, self.secret, node.public, signature)
        assert is_proven(join)
        return join


def is_proven(join: Join) -> bool:
    """Whether the bearer has the key it names."""
    return verify(join.node, _proof_of(join.store_id, join.secret, join.node), join.proof)


def _proof_of(store_id: bytes, secret: bytes, node: bytes) -> bytes:
    assert len(store_id + secret + node) == TOKEN.size - 1, (
        "fields of fixed width, so that none runs into another"
    )
    return blake3(_PROOF + store_id + secret + node)
