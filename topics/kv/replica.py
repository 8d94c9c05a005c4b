"""The databases of one owner on this node: one signed envelope goes out, verified ones are absorbed (replication 3.6,
4).

    export     {owner → signed {database → {key → entry}}}, signed when it is asked for and something has changed
    absorb     what authorised signers have signed, joined into the database of the same name

What was absorbed is exported again, so replicas that never meet converge through others. Verification comes first and
is not to be filtered: the predicate of a selective merge only chooses whose state is absorbed, and cannot tell what an
accepted owner has absorbed from a refused one.

Stamps from further ahead than clocks may differ wait, key by key, until this node's clock comes near.

A delta is the same envelope in a region of its own, with only what has changed since a snapshot: it costs what changed,
and whoever keeps newest envelopes never takes it for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from topics.codec.cell import Cell, CellMap, encode_cell
from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.kernel.checks import text_bytes
from topics.kernel.errors import Code, Corrupt, Rejected, WrongState, invalid
from topics.kernel.ports import Clock, Entropy
from topics.kv.bounds import (
    DEFERRED_MAX,
    ENVELOPES_KNOWN_MAX,
    NAME_BYTES_MAX,
    REPLICA_BYTES_MAX,
    REPLICA_ID_SIZE,
    KvLimits,
)
from topics.kv.store import EMPTY, Keyed, Store, StoreLattice, difference, store_from_cell, store_to_cell
from topics.kv.tree import Leaf, Tree, grow, items, leaves, put
from topics.kv.wire import RESET, name_digest
from topics.lattice.algebra import MapKey, MapLattice
from topics.lattice.authority import Authority, Owner, is_owner
from topics.lattice.cursor import Cursor, Root
from topics.lattice.owner import OWNERS_MAX, OwnerLattice
from topics.lattice.signed import Envelope, Slot, envelopes_of
from topics.lattice.stamps import MAX_DRIFT_MS, Deferral, is_future

REGION: Final = "kv"
DELTA_REGION: Final = "kv.delta"
TOKEN_SIZE: Final = 16

Stores: TypeAlias = Mapping[MapKey, Store]
Accept: TypeAlias = Callable[[Owner], bool]


class PayloadCodec:
    """What an owner signs, `{database → {key → entry}}`, as a cell."""

    def __init__(self, limits: KvLimits) -> None:
        self._limits: Final = limits

    def to_cell(self, value: Stores) -> Cell:
        return CellMap((name, store_to_cell(store)) for name, store in value.items())

    def from_cell(self, cell: Cell) -> Stores:
        """The databases; an entry that is none is left out. Raises `Corrupt` if it is no map of databases."""
        if not isinstance(cell, Mapping) or len(cell) > self._limits.databases:
            raise Corrupt("payload: not a map of databases")
        stores: dict[MapKey, Store] = {}
        for name, part in cell.items():
            store = store_from_cell(part, self._limits)
            if store is None or not isinstance(name, str):
                raise Corrupt("payload: not a map of databases by name")
            stores[name] = store
        return stores


class Replica:
    """All databases of one owner here, and its envelope."""

    def __init__(
        self,
        keys: KeyPair,
        *,
        clock: Clock,
        entropy: Entropy,
        owner: Owner | None = None,
        authority: Authority | None = None,
        limits: KvLimits | None = None,
        max_drift_ms: int = MAX_DRIFT_MS,
    ) -> None:
        """`owner`: for whom the key signs, by default for itself. `authority`: who may sign for other owners."""
        self.clock: Final = clock
        self.entropy: Final = entropy
        self.limits: Final = limits or KvLimits()
        self.owner: Final[Owner] = keys.public if owner is None else owner
        self._keys: Final = keys
        self._authority: Final = authority or Authority(clock)
        self._max_drift_ms: Final = max_drift_ms
        self._stores: Final = StoreLattice(self.limits)
        self._lattice: Final = self._region(REGION)
        self._deltas: Final = self._region(DELTA_REGION)
        self._cursors: dict[str, Cursor[Store]] = {}
        self._deferred: dict[str, Deferral[Store]] = {}
        self._known: dict[bytes, bool] = {}  # envelopes absorbed before: whether they held the database
        self._slot: Slot[Stores] | None = None  # as last signed
        self._signed: dict[str, Store] = {}

    # Databases.

    def new_replica_id(self) -> str:
        """The hash of the public key and a new incarnation."""
        return replica_id(self._keys.public, self.entropy.token(TOKEN_SIZE))

    def cursor(self, name: str) -> Cursor[Store]:
        """Where the database's state lives; an empty one in memory if there is none of this name yet."""
        return self._cursors[name] if name in self._cursors else self.adopt(name, Root(self._stores))

    def adopt(self, name: str, cursor: Cursor[Store]) -> Cursor[Store]:
        """Take a database in, by the cursor that holds it."""
        check_database_name(name)
        if name in self._cursors:
            raise WrongState(f"database {name!r} is open already")
        if len(self._cursors) >= self.limits.databases:
            raise Rejected(
                Code.THROTTLED,
                f"an owner has at most {self.limits.databases} databases",
                limit=self.limits.databases,
            )
        self._cursors[name] = cursor
        self._deferred[name] = Deferral(
            self._stores, newest_in_store, max_drift_ms=self._max_drift_ms, room=DEFERRED_MAX
        )
        assert len(self._deferred) == len(self._cursors)
        return cursor

    def names(self) -> list[str]:
        """The databases here, ascending."""
        return sorted(self._cursors)

    # Out.

    def snapshot(self) -> Mapping[str, Store]:
        """All databases as they are: what a later `export_changes` is measured from."""
        return {name: cursor.get() for name, cursor in self._cursors.items()}

    def export(self) -> CellMap:
        """`{owner → signed}`, for everybody. Signed anew only if something has changed since the last time."""
        stores = self.snapshot()
        changed = stores.keys() != self._signed.keys() or any(
            store is not self._signed[name] for name, store in stores.items()
        )
        if self._slot is None or changed:
            seq_least = max(self.clock.now_ms(), 1)
            self._slot = self._lattice.slot(self.owner).sign(self._slot, _keyed(stores), seq_least=seq_least)
            self._signed = dict(stores)
        assert len(self._slot.envelopes) >= 1
        return self._lattice.to_cell({self.owner: self._slot})

    def export_changes(self, since: Mapping[str, Store]) -> CellMap:
        """The same of what has changed since a snapshot, for who has absorbed that.

        It carries no floor, which speaks of what a whole store lacks.
        """
        changed = {
            name: Store(_tree(difference(since.get(name, EMPTY), store)))
            for name, store in self.snapshot().items()
        }
        slot = self._deltas.slot(self.owner).sign(None, _keyed(changed))
        return self._deltas.to_cell({self.owner: slot})

    # In.

    def absorb(
        self, name: str, foreign: object, *, accept: Accept | None = None, changes: bool = False
    ) -> int:
        """Join what others have signed of this database; how many owners' replicas of it were accepted.

        Whatever is forged, misattributed, malformed or not accepted is as if it had not been there. `changes`: the map
        is of `export_changes`.

        Raises:
            Rejected: a replica would pass the limit of keys, or cannot be written; those of the others were absorbed.
        """
        self.settle(name)
        if not isinstance(foreign, Mapping) or len(foreign) > OWNERS_MAX:
            return 0
        lattice = self._deltas if changes else self._lattice
        accepted = 0
        refused: Rejected | None = None
        for owner, entry in foreign.items():
            found = False
            for envelope in (envelopes_of(entry) or ()) if is_owner(owner) else ():
                try:
                    found |= self._absorb(name, lattice, owner, envelope, accept)
                except Rejected as error:  # nobody's replica keeps those of the others out
                    refused = refused or error
            accepted += found
        assert accepted <= len(foreign)
        if refused is not None:
            raise refused
        return accepted

    def settle(self, name: str) -> None:
        """Merge what has waited for this node's clock."""
        deferred = self._deferred[name]
        due_ms = deferred.next_due_ms()
        if due_ms is None:
            return
        now_ms = self.clock.now_ms()
        if due_ms <= now_ms:
            self._known.clear()  # what has waited is worth another look, all the more if this fails
            for store in deferred.release(now_ms):
                self._cursors[name].merge(store)

    def deferred(self, name: str) -> int:
        """How many groups of keys wait for this node's clock."""
        return len(self._deferred[name])

    def _region(self, region: str) -> OwnerLattice[Stores]:
        return OwnerLattice(
            MapLattice(self._stores),
            PayloadCodec(self.limits),
            region=region,
            authority=self._authority,
            key=self._keys,
        )

    def _absorb(
        self,
        name: str,
        lattice: OwnerLattice[Stores],
        owner: Owner,
        envelope: Envelope,
        accept: Accept | None,
    ) -> bool:
        """Whether the envelope is somebody else's good replica of the database."""
        own = owner == self.owner and envelope.signer == self._keys.public
        if own and (lattice is self._deltas or self._is_past(envelope)):
            return False
        mark = blake3(encode_cell((name, lattice.region, owner, envelope.to_cell())))
        if mark in self._known and self._authority.allows(owner, envelope.signer):
            return self._known[mark] and not own and (accept is None or accept(owner))
        slot = lattice.slot(owner).sift(None, (envelope.to_cell(),))
        if slot is None or not (accept is None or accept(owner)):
            return False
        if own:  # signed with this key in another life: go on above it
            self._slot = lattice.slot(owner).join(self._slot, slot)
            self._signed = {}
        store = slot.value.get(name)
        if store is not None:
            self._take(name, store)
        self._remember(mark, held=store is not None)
        return store is not None and not own

    def _is_past(self, envelope: Envelope) -> bool:
        assert envelope.signer == self._keys.public
        mine = None if self._slot is None else self._slot.of_signer(envelope.signer)
        return mine is not None and envelope.seq <= mine.seq

    def _remember(self, mark: bytes, *, held: bool) -> None:
        assert len(self._known) <= ENVELOPES_KNOWN_MAX
        self._known[mark] = held
        if len(self._known) > ENVELOPES_KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _take(self, name: str, store: Store) -> None:
        """Join what may be believed now, and let the rest wait."""
        now_ms = self.clock.now_ms()
        cursor, deferred = self._cursors[name], self._deferred[name]
        if len(cursor.get()) + len(store) > 2 * self.limits.keys:
            raise Rejected(
                Code.THROTTLED,
                f"database {name!r}: with the replica it would pass twice its limit of {self.limits.keys} keys",
                limit=self.limits.keys,
            )
        if not is_future(newest_in_store(store), now_ms, self._max_drift_ms):
            cursor.merge(store)
            return
        present: Tree[Keyed] = None
        own = cursor.get()
        for leaf in leaves(store.keys):
            newest = leaf.item.entry.newest
            # What this node has believed before (under another clock) is no news from the future.
            if is_future(newest, now_ms, self._max_drift_ms) and newest > own.get(leaf.item.key).newest:
                deferred.admit(Store(leaf), now_ms)
            else:
                present = put(present, leaf)
        # The floor speaks of what the whole store lacks, so it comes another time, with the whole.
        cursor.merge(Store(present))


def replica_id(public: bytes, incarnation: bytes) -> str:
    """The hash of a public key and an incarnation (replication 3.3)."""
    assert incarnation
    return blake3(public + incarnation)[:REPLICA_ID_SIZE].hex()


def check_database_name(name: object) -> str:
    """A database's name: text of 1 to 200 bytes."""
    text_bytes("database", name, bytes_max=NAME_BYTES_MAX)
    assert isinstance(name, str)
    return name


def check_replica_id(replica: object) -> str:
    """A replica's id: text of 1 to 128 bytes that is not the name of a reset column."""
    text_bytes("replica", replica, bytes_max=REPLICA_BYTES_MAX)
    assert isinstance(replica, str)
    if replica.startswith(RESET):
        raise invalid("replica", f"must not begin with {RESET!r}, which names what deletes have taken back")
    return replica


def newest_in_store(store: Store) -> int:
    """The highest stamp in a store."""
    newest = max(store.floor, *(keyed.entry.newest for keyed in items(store.keys)), 0)
    assert newest >= store.floor
    return newest


def _keyed(stores: Mapping[str, Store]) -> Stores:
    return {name: store for name, store in stores.items()}  # noqa: C416  # a map whose keys are a wider type


def _tree(changed: Iterable[Keyed]) -> Tree[Keyed]:
    return grow(Leaf(name_digest(keyed.key), keyed) for keyed in changed)
