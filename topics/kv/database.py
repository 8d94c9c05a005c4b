"""`Database`: every operation of the seed on one named database, and how it meets others (replication 3).

A database stands alone or is connected. Alone, it is part of a `Replica`, the databases of one owner on this node: it
can be exported in the owner's signed envelope and absorbs what other owners have exported. Connected, its state lives
at a cursor that a parent supplies, which signs and replicates; a fork is connected to the database it was forked from.
"""

from __future__ import annotations

from collections.abc import Mapping

from topics.codec.cell import CellMap
from topics.crypto.keys import KeyPair
from topics.kernel.checks import text_bytes, whole_number
from topics.kernel.errors import WrongState, invalid
from topics.kernel.ports import Clock, Entropy
from topics.kv.bounds import GRACE_MS, KvLimits
from topics.kv.entries.edit import Edit
from topics.kv.entries.store import KvStore
from topics.kv.future.report import DeferredWrite, MergeReport
from topics.kv.garbage import Collected, collect
from topics.kv.journaled import Journaled
from topics.kv.operations.counters import CounterOperations
from topics.kv.operations.hashes import HashOperations
from topics.kv.operations.keys import KeyOperations
from topics.kv.operations.keyspace import Looked
from topics.kv.operations.lists import ListOperations
from topics.kv.operations.sets import SetOperations
from topics.kv.operations.sorted_sets import SortedSetOperations
from topics.kv.replica import TOKEN_SIZE, Accept, Replica, check_database_name, check_replica_id, replica_id
from topics.lattice.owners.authority import Authority, Owner
from topics.lattice.values.cursor import Cursor, Fork
from topics.lattice.values.stamps import MAX_DRIFT_MS, is_future


class Database(
    KeyOperations, HashOperations, SetOperations, SortedSetOperations, ListOperations, CounterOperations
):
    """One named database. See the modules of its operations for what each does."""

    def __init__(
        self,
        name: str,
        cursor: Cursor[KvStore],
        *,
        clock: Clock,
        entropy: Entropy,
        replica: str | None = None,
        limits: KvLimits | None = None,
    ) -> None:
        """Connected to a parent's cursor. `replica`: the id of its counters; a new one if it is not given."""
        made = sub_replica("", entropy) if replica is None else check_replica_id(replica)
        super().__init__(cursor, clock=clock, replica=made, limits=limits or KvLimits())
        self.name = check_database_name(name)
        self._entropy = entropy
        self._home: Replica | None = None

    @classmethod
    def create(
        cls,
        name: str,
        keys: KeyPair,
        *,
        clock: Clock,
        entropy: Entropy,
        owner: Owner | None = None,
        authority: Authority | None = None,
        limits: KvLimits | None = None,
    ) -> Database:
        """A database in memory that stands alone, the only one of its owner's `Replica`, which see."""
        home = Replica(keys, clock=clock, entropy=entropy, owner=owner, authority=authority, limits=limits)
        return cls.of(home, name)

    @classmethod
    def of(cls, home: Replica, name: str, *, replica: str | None = None) -> Database:
        """One of the databases of an owner."""
        made = cls(
            name,
            home.cursor(name),
            clock=home.clock,
            entropy=home.entropy,
            replica=replica or home.new_replica_id(),
            limits=home.limits,
        )
        made._home = home
        return made

    @property
    def owner(self) -> Owner:
        """For whom its envelope is signed. Raises `WrongState` if it is connected."""
        return self._alone("owner").owner

    def export_replica(self) -> CellMap:
        """`{owner → signed {database → {key → entry}}}` with all databases of this owner.

        Raises:
            WrongState: connected, so there is no key; or the key may not sign for the owner.
        """
        return self._alone("export").export()

    def export_changes(self, since: Mapping[str, KvStore]) -> CellMap:
        """The same of what has changed since a `mark`: for who has absorbed all before it."""
        return self._alone("export").export_changes(since)

    def mark(self) -> Mapping[str, KvStore]:
        """What `export_changes` starts from."""
        return self._alone("mark").snapshot()

    def merge_replicas(
        self, replicas: object, accept: Accept | None = None, *, accept_floor: Accept | None = None
    ) -> MergeReport:
        """Verify and absorb the replicas of other owners. `.accepted` are those that hold this database, `.deferred` is
        what waits for this node's clock, `.refused` what was not taken, and why.

        `accept`: whose state is absorbed, by owner. Verification is not its business: what is not authorised and signed
        is never taken. `accept_floor`: whose floor is believed, by owner; nobody's if it is not given. What is stamped
        below a floor and not there was collected: whose floor is believed may take away everything up to it.

        Raises:
            WrongState: connected.
            Rejected: a replica would pass the limit of keys, or cannot be written; those of the others were absorbed.
        """
        return self._alone("merge").absorb(self.name, replicas, accept=accept, accept_floor=accept_floor)

    def merge_changes(self, replicas: object, accept: Accept | None = None) -> MergeReport:
        """The same for what `export_changes` has made, which carries no floor."""
        return self._alone("merge").absorb(self.name, replicas, accept=accept, changes=True)

    def future(self) -> tuple[DeferredWrite, ...]:
        """What waits because it is stamped more than an hour ahead of this node's clock: writes of peers, and this
        node's own from a time when its clock was wrong. Each is merged at its `due_ms`.

        Raises:
            WrongState: connected.
        """
        return self._alone("future").future(self.name)

    def withdraw(self, key: str, *, restamp: bool = False) -> bool:
        """Give up what waits of the key, so that it is not merged when its time comes; False if nothing waits.

        `restamp`: write it again as of now, instead. Peers that hold the old stamps withdraw them for themselves.

        Raises:
            WrongState: connected.
        """
        home = self._alone("withdraw")
        text_bytes("key", key, bytes_max=self.limits.key_bytes)
        return home.withdraw(self.name, key, replica=self._replica if restamp else None)

    def fork(self) -> Database:
        """A database apart from this one until its `sync`, with a replica id of its own."""
        self._refuse_in_batch("fork")
        return Database(
            self.name,
            self._cursor.fork(),
            clock=self._clock,
            entropy=self._entropy,
            replica=sub_replica(self._replica, self._entropy),
            limits=self.limits,
        )

    def sync(self) -> None:
        """Bring the work of this fork to where it was forked from, and what happened there to this fork."""
        self._refuse_in_batch("sync")
        if not isinstance(self._cursor, Fork):
            raise WrongState(f"database {self.name!r} is no fork, so there is nothing to sync it with")
        self._cursor.sync()

    def gc(self, grace_ms: int = GRACE_MS, *, stable_ms: int = 0) -> Collected:
        """Forget what has been deleted or expired for longer than the grace, the longest partition that may lose
        nothing.

        `stable_ms`: a stamp up to which every active owner is known to have everything; it becomes the floor, below
        which nothing comes back and no grace is needed. It cannot be lowered.

        Raises:
            Rejected: `stable_ms` is more than an hour ahead of the clock; nothing was changed.
            WrongState: on a fork, whose sync could bring everything back.
        """
        self._refuse_in_batch("gc")
        grace, floor = whole_number("grace_ms", grace_ms), whole_number("stable_ms", stable_ms)
        now_ms = self._clock.now_ms()
        if is_future(floor, now_ms):
            raise invalid(
                "stable_ms",
                f"{floor} ms is more than {MAX_DRIFT_MS} ms ahead of the clock, which says {now_ms}; it is a stamp in "
                "milliseconds since 1970 that every owner has reached",
                limit=now_ms + MAX_DRIFT_MS,
            )
        replica = sub_replica(self._replica, self._entropy)
        if isinstance(self._cursor, Journaled):
            collected = self._cursor.collect(now_ms=now_ms, grace_ms=grace, floor=floor, replica=replica)
        else:
            collected = _collect_at(self._cursor, now_ms=now_ms, grace_ms=grace, floor=floor)
        assert replica != self._replica
        if collected.counters:
            self._replica = (
                replica  # its columns went too: they must not start again from zero under the old id
            )
        return collected

    def snapshot(self) -> KvStore:
        """The state, as a value that no later edit changes."""
        return self._store()

    def _alone(self, what: str) -> Replica:
        if self._home is None:
            raise WrongState(
                f"{what}: database {self.name!r} is connected, so its parent signs and replicates; ask the parent"
            )
        self._refuse_in_batch(what)
        return self._home

    def _edit(self, looked: Looked) -> Edit:
        edit = super()._edit(looked)
        if self._home is not None:
            self._home.check_stamp(self.name, looked.key, edit.stamp, looked.now_ms)
        return edit

    def _catch_up(self) -> None:
        if self._home is not None and self._working is None:
            self._home.settle(self.name)

    def _refuse_in_batch(self, what: str) -> None:
        if self._working is not None:
            raise WrongState(f"{what}: a batch is open; end it first")


def sub_replica(parent: str, entropy: Entropy) -> str:
    """An id that no other replica has, derived from its parent's."""
    made = replica_id(parent.encode(), entropy.token(TOKEN_SIZE))
    assert made != parent
    return made


def _collect_at(cursor: Cursor[KvStore], *, now_ms: int, grace_ms: int, floor: int) -> Collected:
    found = Collected(0, 0, 0)

    def change(store: KvStore) -> KvStore:
        nonlocal found
        left, found = collect(store, now_ms=now_ms, grace_ms=grace_ms, floor=floor)
        return left

    left = cursor.shrink(change)
    assert left.floor >= floor
    return found
