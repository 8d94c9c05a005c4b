"""The roster: which nodes are peers, and which invites are open (replication 5.2, 5.9).

Being a peer is a gate of its own, beside the one that lets intentions in. An *active* peer may connect, and pruning
waits for its attestation. A *dormant* one may connect and is not waited for. A *revoked* one may not connect, and
gossip that it wrote is refused; its history came before and stays, so syncs and clones carry it like any other.

Each change is one item of a journal of its own: kind, then fields. What may be said twice is said twice without harm.
The first item says whose roster it is: that of another store would let its peers into this one.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from topics.codec.primitives import U64, checksum
from topics.crypto.hashing import HASH_SIZE, blake3
from topics.crypto.keys import KEY_SIZE, is_strong_key
from topics.kernel.errors import Code, Corrupt, Rejected, invalid
from topics.kernel.ports import Clock, Entropy, Journal
from topics.weaver.node.invite import SECRET_SIZE, Invite, is_proven
from topics.weaver.store.intention_store import check_header
from topics.weaver.store.journal_items import JournalHeader
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.sync.messages import Join


class PeerStatus(IntEnum):
    """Of a key that is on the roster."""

    ACTIVE = 1
    DORMANT = 2
    REVOKED = 3


TRANSITIONS: Final[dict[PeerStatus, frozenset[PeerStatus]]] = {
    PeerStatus.ACTIVE: frozenset((PeerStatus.DORMANT, PeerStatus.REVOKED)),
    PeerStatus.DORMANT: frozenset((PeerStatus.ACTIVE, PeerStatus.REVOKED)),
    PeerStatus.REVOKED: frozenset(),  # a revoked key may be in anybody's hands; its owner joins with a new one
}

KIND: Final = "roster"

_STATUS: Final = 1
_ISSUED: Final = 2
_USED: Final = 3
_ITEM: Final = Struct(f"<B{HASH_SIZE}sQ")  # kind; key or hash of the secret; status or expiry
assert _ITEM.size == 41


class Roster:
    """Peers and open invites of one store, as the node with this key sees them.

    Raises:
        Rejected: the journal is that of another store or node.
        Corrupt: it is damaged.
    """

    __slots__ = ("_clock", "_invites", "_journal", "_options", "_peers", "key", "store_id")

    def __init__(
        self, journal: Journal, *, store_id: bytes, key: bytes, clock: Clock, options: ExchangeOptions
    ) -> None:
        self.store_id: Final = store_id
        self.key: Final = key
        self._journal = journal
        self._clock = clock
        self._options = options
        self._peers: dict[bytes, PeerStatus] = {}
        self._invites: dict[bytes, int] = {}  # hash of the secret -> when it ends
        wanted = JournalHeader(store_id, key, KIND)
        items = iter(journal.read())
        first = next(items, None)
        if first is None:
            journal.append([wanted.encode()])
        else:
            check_header(first, wanted)
        for number, item in enumerate(items, 2):
            self._fold(number, item)

    def status(self, key: bytes) -> PeerStatus | None:
        """None for a key that never joined."""
        return self._peers.get(key)

    def may_connect(self, key: bytes) -> bool:
        return self._peers.get(key) in (PeerStatus.ACTIVE, PeerStatus.DORMANT)

    def may_gossip(self, author: bytes) -> bool:
        """Whether a new intention of this author is taken in from gossip."""
        return self._peers.get(author) is not PeerStatus.REVOKED

    def peers(self, status: PeerStatus) -> list[bytes]:
        """Their keys, ascending."""
        return sorted(key for key, found in self._peers.items() if found is status)

    def admit(self, key: bytes) -> None:
        """Make the key an active peer."""
        if self._peers.get(key) is not PeerStatus.ACTIVE:
            self._check_admission(key)
            self._move(key, PeerStatus.ACTIVE)

    def trust(self, invite: Invite) -> None:
        """Make whoever wrote the invite an active peer.

        Raises:
            Rejected: it is to another store, or the inviter was revoked.
        """
        if invite.store_id != self.store_id:
            text = f"the invite is to store {invite.store_id.hex()}, this is {self.store_id.hex()}"
            raise invalid("store_id", text)
        self.admit(invite.inviter)

    def retire(self, key: bytes) -> None:
        """The peer may be away for long: pruning no longer waits for it."""
        self._move(key, PeerStatus.DORMANT)

    def revoke(self, key: bytes) -> None:
        """The peer may not connect any more."""
        self._move(key, PeerStatus.REVOKED)

    def invite(self, entropy: Entropy) -> str:
        """A new token; it can be used once, until it ends."""
        now_ms = self._clock.now_ms()
        self._invites = {name: ends for name, ends in self._invites.items() if ends > now_ms}
        if len(self._invites) >= self._options.invites_open:
            raise Rejected(Code.THROTTLED, f"invites: {len(self._invites)} are open; let some be used or end")
        secret = entropy.token(SECRET_SIZE)
        name, ends_ms = blake3(secret), now_ms + self._options.invite_ttl_ms
        assert len(secret) == SECRET_SIZE
        self._write((_ISSUED, name, ends_ms))
        self._invites[name] = ends_ms
        return Invite(self.store_id, secret, self.key).encode()

    def redeem(self, join: Join) -> None:
        """Make the bearer of an open invite an active peer.

        Raises:
            Rejected: not of this store, not open, or the key is not the bearer's. The invite stays open.
        """
        if join.store_id != self.store_id:
            raise invalid("store_id", f"{join.store_id.hex()} is not the store of this node")
        name = blake3(join.secret)
        if self._invites.get(name, 0) <= self._clock.now_ms():
            raise Rejected(Code.FORBIDDEN, "invite: unknown, used or ended; ask for a new one")
        if not is_proven(join):
            raise Rejected(Code.FORBIDDEN, "invite: the proof is not of the key that it names")
        self._check_admission(join.node)
        # One write: an invite never makes a peer and stays open.
        self._write((_STATUS, join.node, PeerStatus.ACTIVE), (_USED, name, 0))
        self._peers[join.node] = PeerStatus.ACTIVE
        del self._invites[name]
        assert self.may_connect(join.node)

    def _move(self, key: bytes, status: PeerStatus) -> None:
        before = self._peers.get(key)
        if before is status:
            return
        if before is None and status is not PeerStatus.ACTIVE:
            raise invalid("peer", f"{key.hex()} is not on the roster")
        if before is not None and status not in TRANSITIONS[before]:
            raise invalid("peer", f"{key.hex()} is {before.name.lower()} and stays so; join with a new key")
        assert status is not before
        self._write((_STATUS, key, status))
        self._peers[key] = status
        assert len(self._peers) <= self._options.peers

    def _check_admission(self, key: bytes) -> None:
        if len(key) != KEY_SIZE or not is_strong_key(key):
            raise invalid("peer", "is no public key that may sign")
        before = self._peers.get(key)
        if before is PeerStatus.REVOKED:
            raise invalid("peer", f"{key.hex()} is revoked and stays so; join with a new key")
        if before is None and len(self._peers) >= self._options.peers:
            text = f"peers: {self._options.peers} are on the roster, which is its bound"
            raise Rejected(Code.THROTTLED, text)

    def _write(self, *changes: tuple[int, bytes, int]) -> None:
        assert changes
        items = [_ITEM.pack(*change) for change in changes]
        self._journal.append([item + U64.pack(checksum(item)) for item in items])

    def _fold(self, number: int, item: bytes) -> None:
        covered = item[: -U64.size]
        if len(covered) != _ITEM.size or U64.pack(checksum(covered)) != item[-U64.size :]:
            raise Corrupt(f"roster, item {number}: its bytes are damaged", item=number)
        kind, name, value = _ITEM.unpack(covered)
        if kind == _STATUS and value in PeerStatus.__members__.values():
            self._peers[name] = PeerStatus(value)
        elif kind == _ISSUED:
            self._invites[name] = value
        elif kind == _USED:
            self._invites.pop(name, None)
        else:
            raise Corrupt(f"roster, item {number}: kind {kind} with {value} is unknown", item=number)
