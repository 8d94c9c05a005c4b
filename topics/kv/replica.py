"""The databases of one owner on this node: one signed envelope goes out, verified ones are absorbed (replication 3.6,
4).

    export     {owner → signed {database → {key → entry}}}, signed when it is asked for and something has changed
    absorb     what authorised signers have signed, joined into the database of the same name

What was absorbed is exported again, so replicas that never meet converge through others. Verification comes first and
is not to be filtered: the predicate of a selective merge only chooses whose state is absorbed, and cannot tell what an
accepted owner has absorbed from a refused one.

Stamps from further ahead than clocks may differ wait, key by key, until this node's clock comes near: see `gate`.

A delta is the same envelope in a region of its own, with only what has changed since a snapshot: it costs what changed,
and whoever keeps newest envelopes never takes it for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from topics.codec.cell import Cell, CellMap, encode_cell
from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.kernel.checks import text_bytes
from topics.kernel.errors import Code, Corrupt, Rejected, WrongState, invalid
from topics.kernel.ports import Clock, Entropy
from topics.kv.bounds import (
    ENVELOPES_KNOWN_MAX,
    NAME_BYTES_MAX,
    REPLICA_BYTES_MAX,
    REPLICA_ID_SIZE,
    KvLimits,
)
from topics.kv.entries.store import (
    EMPTY,
    KeyedEntry,
    KvStore,
    StoreLattice,
    changed_entries,
    store_from_cell,
    store_to_cell,
)
from topics.kv.entries.tree import Leaf, Tree, grow
from topics.kv.entries.wire import RESET, name_digest
from topics.kv.future.gate import FutureGate
from topics.kv.future.report import DeferredWrite, MergeReport, Refused, deferred_write
from topics.lattice.owners.authority import Authority, Owner, is_owner
from topics.lattice.owners.owner import OWNERS_MAX, OwnerLattice
from topics.lattice.owners.signed import Slot, SlotEnvelope, envelopes_of
from topics.lattice.values.algebra import MapKey, MapLattice
from topics.lattice.values.cursor import Cursor, Root
from topics.lattice.values.stamps import MAX_DRIFT_MS, is_future

REGION: Final = "kv"
DELTA_REGION: Final = "kv.delta"
TOKEN_SIZE: Final = 16

Stores: TypeAlias = Mapping[MapKey, KvStore]
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
        stores: dict[MapKey, KvStore] = {}
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
        self._cursors: dict[str, Cursor[KvStore]] = {}
        self._gates: dict[str, FutureGate] = {}
        self._known: dict[bytes, _KnownEnvelope] = {}  # envelopes absorbed before, whole
        self._slot: Slot[Stores] | None = None  # as last signed
        self._signed: dict[str, KvStore] = {}

    # Databases.

    def new_replica_id(self) -> str:
        """The hash of the public key and a new incarnation."""
        return replica_id(self._keys.public, self.entropy.token(TOKEN_SIZE))

    def cursor(self, name: str) -> Cursor[KvStore]:
        """Where the database's state lives; an empty one in memory if there is none of this name yet."""
        return self._cursors[name] if name in self._cursors else self.adopt(name, Root(self._stores))

    def adopt(self, name: str, cursor: Cursor[KvStore]) -> Cursor[KvStore]:
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
        self._gates[name] = FutureGate(cursor, self._max_drift_ms)
        assert len(self._gates) == len(self._cursors)
        return cursor

    def names(self) -> list[str]:
        """The databases here, ascending."""
        return sorted(self._cursors)

    # Out.

    def snapshot(self) -> Mapping[str, KvStore]:
        """All databases as they are: what a later `export_changes` is measured from."""
        return {name: cursor.get() for name, cursor in self._cursors.items()}

    def export(self) -> CellMap:
        """`{owner → signed}`, for everybody. Signed anew only if something has changed since the last time."""
        self._settle_all()
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

    def export_changes(self, since: Mapping[str, KvStore]) -> CellMap:
        """The same of what has changed since a snapshot, for who has absorbed that.

        It carries no floor, which speaks of what a whole store lacks.
        """
        self._settle_all()
        changed = {
            name: KvStore(_tree(changed_entries(since.get(name, EMPTY), store)))
            for name, store in self.snapshot().items()
        }
        slot = self._deltas.slot(self.owner).sign(None, _keyed(changed))
        return self._deltas.to_cell({self.owner: slot})

    # In.

    def absorb(
        self,
        name: str,
        foreign: object,
        *,
        accept: Accept | None = None,
        accept_floor: Accept | None = None,
        changes: bool = False,
    ) -> MergeReport:
        """Join what others have signed of this database; what was accepted, what waits, what was refused and why.

        Whatever is forged, misattributed, malformed or not accepted is as if it had not been there. A floor, which says
        what everybody has and so takes away what is not there, is taken of those owners only that `accept_floor` says.
        `changes`: the map is of `export_changes`.

        Raises:
            Rejected: a replica would pass the limit of keys, or cannot be written; those of the others were absorbed.
        """
        self.settle(name)
        if not isinstance(foreign, Mapping) or len(foreign) > OWNERS_MAX:
            return MergeReport(refused=(Refused(None, f"it is no map of at most {OWNERS_MAX} owners"),))
        merge = _Merge(name, self._deltas if changes else self._lattice, accept, accept_floor)
        failed: Rejected | None = None
        for owner, entry in foreign.items():
            envelopes = envelopes_of(entry) if is_owner(owner) else None
            if envelopes is None:
                merge.refused.append(Refused(owner, "it is no owner with a slot of envelopes"))
                continue
            for envelope in envelopes:
                try:
                    self._absorb(merge, owner, envelope)
                except Rejected as error:  # nobody's replica keeps those of the others out
                    failed = failed or error
        assert len(merge.accepted) <= len(foreign)
        if failed is not None:
            raise failed
        deferred = tuple(deferred_write(keyed, self._max_drift_ms) for keyed in merge.deferred)
        return MergeReport(tuple(merge.accepted), deferred, tuple(merge.refused))

    def settle(self, name: str) -> None:
        """Merge what has waited for this node's clock, and let wait what is ahead of it."""
        if self._gates[name].settle(self.clock.now_ms()):
            self._known.clear()  # what was taken out had replaced something that those envelopes may hold

    def future(self, name: str) -> tuple[DeferredWrite, ...]:
        """What waits for this node's clock, in the order of its stamps: of peers, and of this node's own."""
        self.settle(name)
        return tuple(deferred_write(keyed, self._max_drift_ms) for keyed in self._gates[name].deferred)

    def withdraw(self, name: str, key: str, *, replica: str | None) -> bool:
        """Give up what waits of the key, or write it again as of now in the name of `replica`. False: nothing waits."""
        self.settle(name)
        return self._gates[name].withdraw(key, self.clock.now_ms(), replica)

    def check_stamp(self, name: str, key: str, stamp: int, now_ms: int) -> None:
        """Raises `Rejected` if nobody would believe a write with this stamp."""
        self._gates[name].check_stamp(key, stamp, now_ms)

    def _settle_all(self) -> None:
        for name in self._gates:
            self.settle(name)

    def _region(self, region: str) -> OwnerLattice[Stores]:
        return OwnerLattice(
            MapLattice(self._stores),
            PayloadCodec(self.limits),
            region=region,
            authority=self._authority,
            key=self._keys,
        )

    def _absorb(self, merge: _Merge, owner: Owner, envelope: SlotEnvelope) -> None:
        """Take in one envelope, and tell what became of it."""
        lattice = merge.lattice
        own = owner == self.owner and envelope.signer == self._keys.public
        if own and (lattice is self._deltas or self._is_past(envelope)):
            return
        mark = blake3(encode_cell((merge.name, lattice.region, owner, envelope.to_cell())))
        known = self._known.get(mark) if self._authority.allows(owner, envelope.signer) else None
        if known is not None and not (known.floor and merge.accept_floor):
            if merge.accepts(owner) and not own:
                merge.tell(owner, held=known.held, floor=known.floor)
            return
        slot = lattice.slot(owner).sift(None, (envelope.to_cell(),))
        if slot is None:
            why = "its signature or its payload is not good, or the signer may not sign for it"
            merge.refused.append(Refused(owner, f"the envelope of {envelope.signer.hex()}: {why}"))
            return
        if not merge.accepts(owner):
            return
        if own:  # signed with this key in another life: go on above it
            self._slot = lattice.slot(owner).join(self._slot, slot)
            self._signed = {}
        store = slot.value.get(merge.name)
        floor, whole = 0, True
        if store is not None:
            floor = self._floor_refused(merge, owner, store, own=own)
            whole = self._take(merge, KvStore(store.keys) if floor else store)
        if whole:
            self._remember(mark, _KnownEnvelope(store is not None, floor))
        if not own:
            merge.tell(owner, held=store is not None, floor=floor)

    def _floor_refused(self, merge: _Merge, owner: Owner, store: KvStore, *, own: bool) -> int:
        """The floor of a replica that is not taken; 0 if it is, or there is none."""
        if store.floor == 0:
            return 0
        believed = not is_future(store.floor, self.clock.now_ms(), self._max_drift_ms)
        allowed = own or (merge.accept_floor is not None and merge.accept_floor(owner))
        return 0 if believed and allowed else store.floor

    def _is_past(self, envelope: SlotEnvelope) -> bool:
        assert envelope.signer == self._keys.public
        mine = None if self._slot is None else self._slot.of_signer(envelope.signer)
        return mine is not None and envelope.seq <= mine.seq

    def _remember(self, mark: bytes, known: _KnownEnvelope) -> None:
        assert len(self._known) <= ENVELOPES_KNOWN_MAX
        self._known[mark] = known
        if len(self._known) > ENVELOPES_KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _take(self, merge: _Merge, store: KvStore) -> bool:
        """Join what may be believed now, and let the rest wait. Whether it was all."""
        name = merge.name
        gate, held = self._gates[name], len(self._gates[name].deferred)
        if len(self._cursors[name].get()) + held + len(store) > 2 * self.limits.keys:
            raise Rejected(
                Code.THROTTLED,
                f"database {name!r}: with the replica it would pass twice its limit of {self.limits.keys} keys",
                limit=self.limits.keys,
            )
        deferred = gate.admit(store, self.clock.now_ms())
        merge.deferred += deferred
        return not deferred


class _KnownEnvelope(NamedTuple):
    """Of an envelope absorbed before: whether it held the database, and the floor that was not taken."""

    held: bool
    floor: int


class _Merge:
    """One merge on its way: whom it listens to, and what it has to tell."""

    def __init__(
        self, name: str, lattice: OwnerLattice[Stores], accept: Accept | None, accept_floor: Accept | None
    ) -> None:
        self.name: Final = name
        self.lattice: Final = lattice
        self.accept_floor: Final = accept_floor
        self._accept: Final = accept
        self.accepted: list[Owner] = []
        self.deferred: list[KeyedEntry] = []
        self.refused: list[Refused] = []

    def accepts(self, owner: Owner) -> bool:
        """Whether the owner's state is absorbed."""
        if self._accept is None or self._accept(owner):
            return True
        self.refused.append(Refused(owner, "accept= does not allow it"))
        return False

    def tell(self, owner: Owner, *, held: bool, floor: int) -> None:
        """The owner's envelope was good; `floor` was not taken."""
        if not held:
            self.refused.append(Refused(owner, f"it holds no database {self.name!r}"))
        elif owner not in self.accepted:
            self.accepted.append(owner)
        if floor:
            reason = (
                "accept_floor= does not allow it"
                if self.accept_floor is None
                else f"more than {MAX_DRIFT_MS} ms ahead of the clock, or accept_floor= does not allow it"
            )
            self.refused.append(Refused(owner, f"its floor {floor} was not taken: {reason}"))


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


def _keyed(stores: Mapping[str, KvStore]) -> Stores:
    return {name: store for name, store in stores.items()}  # noqa: C416  # a map whose keys are a wider type


def _tree(changed: Iterable[KeyedEntry]) -> Tree[KeyedEntry]:
    return grow(Leaf(name_digest(keyed.key), keyed) for keyed in changed)
