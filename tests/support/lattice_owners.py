"""Keys, accounts and a payload for tests of signed slots."""

from __future__ import annotations

from collections.abc import Mapping

from topics.crypto.did import Did
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt
from topics.lattice.owners.authority import Authority, OwnerKeys
from topics.lattice.owners.owner import OwnerLattice
from topics.lattice.values.algebra import LwwLattice, MapLattice
from topics.testing.clock import ManualClock

ALICE, BOB, CAROL, ROGUE = (KeyPair.from_seed(bytes([n]) * 32) for n in (1, 2, 3, 4))
WEB = Did("web", "example.com")
PAYLOADS = MapLattice(LwwLattice())
REGION = "kv"


class Registers:
    """Maps of registers as cells."""

    def to_cell(self, value):
        return value

    def from_cell(self, cell):
        if not isinstance(cell, Mapping):
            raise Corrupt("no map")
        return dict(cell.items())


class Accounts:
    """#42 belongs to Alice and Bob, #7 to Carol, did:web:example.com to Carol."""

    def keys_of(self, who):
        return {
            42: OwnerKeys([ALICE.public, BOB.public]),
            7: OwnerKeys([CAROL.public]),
            WEB: OwnerKeys([CAROL.public]),
        }.get(who)


def authority(clock=None):
    return Authority(clock or ManualClock(), addresses=Accounts(), dids={"web": Accounts()})


def owners(key=None, *, rules=None, region=REGION):
    """The lattice of a node with this key."""
    return OwnerLattice(PAYLOADS, Registers(), region=region, authority=rules or authority(), key=key)


def written(key, owner, value, *, onto=None, region=REGION, rules=None):
    """A map with the owner's slot, in which the key has written the value."""
    slots = onto or {}
    lattice = owners(key, rules=rules or _Anybody(), region=region)
    return {**slots, owner: lattice.slot(owner).sign(slots.get(owner), value)}


class _Anybody:
    """What an attacker's own software allows: everything."""

    def allows(self, owner, key):
        return True
