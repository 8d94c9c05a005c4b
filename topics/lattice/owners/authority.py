"""Who may sign for an owner (replication 4.1, 4.2).

An owner is claimed in one of four forms, and kept as it was claimed, so that forms of one key are different slots:

    32 bytes                  an Ed25519 key, which signs for itself
    5, "#5", did:convex:5     an address; the address resolver knows its keys
    did:convex:NAME           a name; the name resolver knows its address
    did:key:z…                the key inside signs for itself
    did:METHOD:…              the resolver of that method knows its keys

Whatever is not known to be authorised is not: no resolver, a resolver that fails or says nothing, a form that is none
of these. A resolver answers at once, from what it knows; who has to ask the network does so beforehand. Answers are
kept for a time, because they are asked for at each merge, and dropped when somebody learns that a key was revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeGuard

import attrs

from topics.codec.cell import INT_MAX
from topics.crypto.did import DID_CHARS_MAX, Did, key_of_did, parse_did
from topics.crypto.keys import KEY_SIZE, is_strong_key
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ports import Clock

Owner: TypeAlias = bytes | int | str
Identity: TypeAlias = bytes | int | Did

ANSWER_TTL_MS: Final = 300_000
ANSWERS_MAX: Final = 10_000
KEYS_PER_OWNER_MAX: Final = 64
REVOKED_MAX: Final = 100_000

_NOBODY: Final[frozenset[bytes]] = frozenset()


@attrs.frozen
class OwnerKeys:
    """A resolver's answer: who may sign, and until when that may be believed (None: as long as answers are kept)."""

    keys: Collection[bytes]
    until_ms: int | None = None


class AddressResolver(Protocol):
    """Knows the keys of addresses. An account may have several."""

    def keys_of(self, address: int) -> OwnerKeys | None:
        """The keys that may sign for the address now; None if there is no such address."""
        ...


class NameResolver(Protocol):
    """Knows the addresses of names."""

    def address_of(self, name: str) -> int | None:
        """The address that the name stands for; None if it stands for none."""
        ...


class DidResolver(Protocol):
    """Knows the keys of the DIDs of one method."""

    def keys_of(self, did: Did) -> OwnerKeys | None:
        """The keys that may sign for the identity now; None if it is not known."""
        ...


class Fate(Enum):
    """What becomes of a slot one of whose keys was revoked."""

    DROP = "drop"  # what the key signed goes
    FREEZE = "freeze"  # the slot stays as it is and takes nothing more


@attrs.frozen
class _ResolverAnswer:
    """What a resolver said, and when: while the clock is between the two times, it is not asked again."""

    asked_ms: int
    until_ms: int
    keys: frozenset[bytes]


class Authority:
    """Answers which key may sign for which owner, and remembers the answers for a time."""

    def __init__(
        self,
        clock: Clock,
        *,
        addresses: AddressResolver | None = None,
        names: NameResolver | None = None,
        dids: Mapping[str, DidResolver] | None = None,
        answer_ttl_ms: int = ANSWER_TTL_MS,
        on_revoked: Callable[[Owner, bytes, Fate], None] | None = None,
    ) -> None:
        assert answer_ttl_ms >= 0
        assert "key" not in (dids or {}), "a did:key needs no resolver, and must not get one"
        assert "convex" not in (dids or {}), "addresses and names have resolvers of their own"
        self._clock: Final = clock
        self._addresses: Final = addresses
        self._names: Final = names
        self._dids: Final = dict(dids or {})
        self._answer_ttl_ms: Final = answer_ttl_ms
        self._on_revoked: Final = on_revoked
        self._answers: dict[Owner, _ResolverAnswer] = {}  # oldest first
        self._revoked: dict[tuple[Identity, bytes], Fate] = {}
        self._frozen: dict[Owner, Fate] = {}

    def allows(self, owner: Owner, key: bytes) -> bool:
        """Whether the key may sign for the owner now."""
        if not is_owner(owner) or not is_strong_key(key) or self.is_frozen(owner):
            return False
        if self._revoked and (identity_of(owner), key) in self._revoked:
            return False
        return key in self._keys(owner)

    def is_frozen(self, owner: Owner) -> bool:
        """Whether the owner's slot takes nothing more."""
        return owner in self._frozen

    def revoke(self, owner: Owner, key: bytes, fate: Fate) -> None:
        """Called by whoever learns that the key may no longer sign for the owner. It never may again, in whatever form
        the owner is claimed. `Fate.FREEZE` is for the slot under this form.

        Every cached answer is dropped, for another owner may rest on the same account.
        """
        assert is_owner(owner)
        if len(self._revoked) >= REVOKED_MAX:
            raise invalid(
                "revoke", f"at most {REVOKED_MAX} revocations are kept; stop trusting the resolver instead"
            )
        self._answers.clear()
        self._revoked[identity_of(owner), key] = fate
        if fate is Fate.FREEZE:
            self._frozen[owner] = fate
        if self._on_revoked is not None:
            self._on_revoked(owner, key, fate)
        assert not self.allows(owner, key)

    def _keys(self, owner: Owner) -> frozenset[bytes]:
        if isinstance(owner, bytes):
            return frozenset((owner,))
        now_ms = self._clock.now_ms()
        cached = self._answers.get(owner)
        if cached is not None and cached.asked_ms <= now_ms < cached.until_ms:
            return cached.keys
        try:
            answer = self._judged(self._ask(owner), now_ms)
        except Exception:  # noqa: BLE001  # a plugged-in resolver may fail in any way, and then its answer is no
            return _NOBODY
        if answer is None:
            return _NOBODY
        self._remember(owner, answer)
        return answer.keys

    def _judged(self, answer: OwnerKeys | None, now_ms: int) -> _ResolverAnswer | None:
        """Whom an answer allows, and until when it is kept; None if it allows nobody now."""
        until_ms = now_ms + self._answer_ttl_ms
        assert until_ms >= now_ms
        if answer is None or len(answer.keys) > KEYS_PER_OWNER_MAX:
            return None
        if answer.until_ms is not None:
            until_ms = min(until_ms, answer.until_ms)
            if answer.until_ms <= now_ms:
                return None
        return _ResolverAnswer(now_ms, until_ms, frozenset(key for key in answer.keys if is_strong_key(key)))

    def _remember(self, owner: Owner, answer: _ResolverAnswer) -> None:
        self._answers.pop(owner, None)
        self._answers[owner] = answer
        if len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        assert len(self._answers) <= ANSWERS_MAX

    def _ask(self, owner: int | str) -> OwnerKeys | None:
        """The answer of whoever knows. A form that nobody knows has none."""
        if isinstance(owner, int):
            return self._of_address(owner)
        if (address := address_of(owner)) is not None:
            return self._of_address(address)
        did = parse_did(owner)
        if did.method == "key":
            return OwnerKeys((key_of_did(owner),))
        if did.method == "convex":
            return self._of_convex(did.id)
        resolver = self._dids.get(did.method)
        return None if resolver is None else resolver.keys_of(did)

    def _of_address(self, address: int) -> OwnerKeys | None:
        return None if self._addresses is None else self._addresses.keys_of(address)

    def _of_convex(self, name: str) -> OwnerKeys | None:
        number = name.removeprefix("#")
        address = address_of(f"#{number}")
        if address is None and self._names is not None and number == name and not name.isdecimal():
            address = self._names.address_of(name)
        return None if address is None else self._of_address(address)


def is_owner(value: object) -> TypeGuard[Owner]:
    """Whether the value has the form of a claimed owner. Whether there is such an owner is another question."""
    if isinstance(value, bytes):
        return is_strong_key(value)
    if isinstance(value, int):
        return not isinstance(value, bool) and 0 <= value <= INT_MAX
    if not isinstance(value, str) or len(value) > DID_CHARS_MAX:
        return False
    if address_of(value) is not None:
        return True
    try:
        return parse_did(value).method != "key" or len(key_of_did(value)) == KEY_SIZE
    except Rejected:
        return False


def identity_of(owner: Owner) -> Identity:
    """Who is meant, as far as that can be told without asking: one value for all forms of a key or an address."""
    assert is_owner(owner)
    if not isinstance(owner, str):
        return owner
    if (address := address_of(owner)) is not None:
        return address
    did = parse_did(owner)
    if did.method == "key":
        return key_of_did(owner)
    address = address_of(f"#{did.id.removeprefix('#')}") if did.method == "convex" else None
    return did if address is None else address


def address_of(text: str) -> int | None:
    """The n of `#n`, in its only spelling; None if the text is no address."""
    digits = text[1:]
    if not text.startswith("#") or not digits.isascii() or not digits.isdecimal() or len(digits) > 19:
        return None
    address = int(digits)
    return address if str(address) == digits and address <= INT_MAX else None
