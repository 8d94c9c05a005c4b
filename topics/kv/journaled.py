"""A database that outlives its process: each change goes to a journal before it is there to be read.

The journal holds cells. `["open", version, name, replica]` says whose it is and under which id this replica counts; it
is written again when the id changes. `["change", up, down]`: `up` is a store to be joined, what an edit or a merge has
added; `down` is a map from key to the entry that takes its place, or nil, for the rare change that is no join (a
peer's floor told that something was collected). `["forget", now, grace, floor]` repeats a collection; `["collect", …]`
is one of a time when expired keys went at once. `["wait", store]` holds entries that wait for the clock, each on its
own; `["due", stamp]` says that those stamped up to there were merged, `["withdraw", key]` that what waits of the key
was given up. `["aside", now, limit]` repeats that what the state held above the limit was let wait.

Opening is folding all items from the beginning. Joins may be repeated, so a snapshot is nothing but the state written
once more, in pieces, and what stands before it may be cut off at any time after it: no moment of that is special.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol, runtime_checkable

import attrs

from topics.codec.cell import INT_MAX, Cell, CellMap, decode_cell, encode_cell
from topics.kernel.errors import Corrupt, Fatal, Rejected, WrongState
from topics.kernel.ports import Journal
from topics.kv.bounds import COMPACT_BYTES_MIN, JOURNAL_ITEM_BYTES, KvLimits
from topics.kv.entries.entry import LANE_OF, LANE_TAGS, NO_LANE, ZERO, Tag, TypeLane, make_entry
from topics.kv.entries.merge import join
from topics.kv.entries.store import (
    EMPTY,
    KeyedEntry,
    KvStore,
    StoreLattice,
    changed_entries,
    join_keyed,
    store_from_cell,
    store_to_cell,
)
from topics.kv.entries.tree import Leaf, Tree, changes, items, leaves, put, unite, without
from topics.kv.entries.wire import entry_from_cell, entry_to_cell, name_digest
from topics.kv.future.deferred import DeferredEntries, split_future
from topics.kv.garbage import Collected, collect
from topics.lattice.values.cursor import Cursor, Root

VERSION: Final = 1
ANY: Final = KvLimits(  # what has once been accepted is read back, whatever the limits are today
    key_bytes=INT_MAX, field_bytes=INT_MAX, value_bytes=INT_MAX, elements=INT_MAX, keys=INT_MAX
)


@attrs.frozen
class DatabaseHeader:
    """Whose journal it is: the database's name, the key that signs, and the id under which this replica counts."""

    name: str
    signer: bytes
    replica: str


@runtime_checkable
class Cuttable(Protocol):
    """A journal that can forget its beginning."""

    @property
    def position(self) -> int:
        """Of the last item."""
        ...

    def cut(self, position: int) -> None:
        """Forget the items up to this position."""
        ...


class Journaled(Cursor[KvStore]):
    """A root whose changes are durable. A journal that can forget is compacted when it is long."""

    def __init__(
        self,
        journal: Journal,
        limits: KvLimits,
        store: KvStore,
        header: DatabaseHeader,
        *,
        journal_bytes: int = 0,
        deferred: DeferredEntries | None = None,
    ) -> None:
        self.deferred: Final = DeferredEntries() if deferred is None else deferred
        self._journal = journal
        self._cuttable = journal if isinstance(journal, Cuttable) else None
        self._root = Root(StoreLattice(limits), store)
        self._header = header
        self._failed: Fatal | None = None
        self._position = self._position_now()
        self._written_bytes = journal_bytes
        self._snapshot_bytes = 0

    @property
    def lattice(self) -> StoreLattice:
        lattice = self._root.lattice
        assert isinstance(lattice, StoreLattice)
        return lattice

    @property
    def is_forked(self) -> bool:
        return False

    @property
    def header(self) -> DatabaseHeader:
        return self._header

    def get(self) -> KvStore:
        return self._root.get()

    def update(self, change: Callable[[KvStore], KvStore]) -> KvStore:
        """Write what the change does, then let it be seen.

        Raises:
            Rejected: of the journal; nothing was written.
            Fatal: whether it was written is known after the next opening; until then nothing more is taken.
        """
        old = self._root.get()
        new = change(old)
        assert new.floor >= old.floor
        if new is not old:
            self._append([_change(old, new)])
            self._root.update(lambda _: new)
            self._shorten()
        return new

    def merge(self, external: object) -> KvStore:
        """Join a store; a large one in several writes, each of which leaves a state between the two."""
        if not isinstance(external, KvStore):
            return self.get()
        joined = self.lattice.join(self.get(), external)
        assert joined.floor >= external.floor
        pieces = list(cut(changed_entries(self.get(), joined)))
        if len(pieces) > 1:
            for piece in pieces:
                self.update(lambda own, piece=piece: own.with_entries(items(piece)))  # type: ignore[misc]  # bound now
        return self.update(lambda own: self.lattice.join(own, external))

    def shrink(self, change: Callable[[KvStore], KvStore]) -> KvStore:
        return self.update(change)

    def collect(self, *, now_ms: int, grace_ms: int, floor: int, replica: str) -> Collected:
        """Raise the floor and forget, in one small write. If counters go, count as `replica` from here on."""
        old = self._root.get()
        new, collected = collect(old, now_ms=now_ms, grace_ms=grace_ms, floor=floor)
        if new is not old:
            header = attrs.evolve(self._header, replica=replica) if collected.counters else self._header
            self._append([encode_cell(("forget", now_ms, grace_ms, floor)), opening_item(header)])
            self._header = header
            self._root.update(lambda _: new)
        return collected

    def defer(self, entries: Iterable[KeyedEntry]) -> None:
        """Let entries wait, each on its own, as long as the journal holds them too."""
        fresh = [keyed for keyed in entries if not self.deferred.has(keyed)]
        for group in _grouped(_deferred_items(fresh)):
            self._append(group)
        self.deferred.add(fresh)

    def defer_future(self, limit: int, now_ms: int) -> None:
        """Take out of the state what is stamped above the limit and let it wait, in one small write."""
        left, ahead = split_future(self._root.get(), limit, now_ms)
        self._append([encode_cell(("aside", now_ms, limit))])
        self.deferred.add(ahead)
        self._root.update(lambda _: left)

    def admit_due(self, limit: int) -> None:
        """What waited with stamps up to the limit was merged."""
        self._append([encode_cell(("due", limit))])
        self.deferred.drop_due(limit)

    def withdraw(self, key: str) -> None:
        """What waits of the key is given up."""
        self._append([encode_cell(("withdraw", key))])
        self.deferred.drop(key)

    def begin(self, header: DatabaseHeader) -> None:
        """Write a header: of a new journal, or of another life of the replica."""
        assert header.name == self._header.name
        self._append([opening_item(header)])
        self._header = header

    def compact(self) -> None:
        """Write the state once more and forget everything before it."""
        assert self._cuttable is not None
        position = self._cuttable.position
        self._snapshot_bytes = 0
        for item in self.snapshot():
            self._append([item])
            self._snapshot_bytes += len(item)
        assert self._cuttable.position > position  # or the cut would take what it should keep
        self._cuttable.cut(position)
        self._written_bytes = 0

    @property
    def is_long(self) -> bool:
        """Whether the journal has grown so much that compacting it pays."""
        return self._written_bytes > max(COMPACT_BYTES_MIN, 2 * self._snapshot_bytes)

    def snapshot(self) -> Iterator[bytes]:
        """Items that fold to the state as it is: appended, they let everything before them be cut off."""
        yield opening_item(self._header)
        yield from _pieces(self._root.get())
        yield from _deferred_items(self.deferred)

    def _shorten(self) -> None:
        """Compact a long journal. A refusal (no space, say) is not the business of the change that was written."""
        if self.is_long and self._cuttable is not None:
            try:
                self.compact()
            except Rejected:
                self._snapshot_bytes = self._written_bytes  # tried again when it is twice as long

    def _append(self, items_: list[bytes]) -> None:
        if self._failed is not None:
            raise WrongState(f"the journal failed ({self._failed.message}); open the database again")
        if (
            self._position_now() != self._position
        ):  # two writers count under one id, and cut what they have not read
            raise WrongState(
                f"somebody else has written database {self._header.name!r}; open it again, and only once at a time"
            )
        try:
            self._journal.append(items_)
        except Fatal as failed:
            self._failed = failed
            raise
        self._position = self._position_now()
        self._written_bytes += sum(map(len, items_))

    def _position_now(self) -> int:
        return 0 if self._cuttable is None else self._cuttable.position


class Replayed(NamedTuple):
    """The state, the last header (None of an empty journal), how many bytes were read, and what waits for the clock."""

    store: KvStore
    header: DatabaseHeader | None
    size: int
    deferred: DeferredEntries


def replay(journal: Journal) -> Replayed:
    """Fold a journal.

    Raises:
        Corrupt: an item is none of ours.
    """
    store, header, size, deferred = EMPTY, None, 0, DeferredEntries()
    for number, item in enumerate(journal.read()):
        size += len(item)
        try:
            cell = decode_cell(item)
        except Corrupt as damage:
            raise _foreign_item(number) from damage
        match cell:
            case ("open", int(version), str(name), bytes(signer), str(replica)) if (
                version == VERSION and replica
            ):
                header = DatabaseHeader(name, signer, replica)
            case ("change", up, down):
                store = _folded(store, up, down, number)
            case ("forget" | "collect" as verb, int(now), int(grace), int(low)) if min(now, grace, low) >= 0:
                at_once = verb == "collect"
                store, _ = collect(store, now_ms=now, grace_ms=grace, floor=low, expired_at_once=at_once)
            case ("wait", part):
                deferred.add(items(_store_of(part, number).keys))
            case ("aside", int(now_ms), int(limit)):
                store, ahead = split_future(store, limit, now_ms)
                deferred.add(ahead)
            case ("due", int(limit)):
                deferred.drop_due(limit)
            case ("withdraw", str(key)):
                deferred.drop(key)
            case _:
                raise _foreign_item(number)
    if header is None and size:
        raise _foreign_item(0)
    return Replayed(store, header, size, deferred)


def opening_item(header: DatabaseHeader) -> bytes:
    assert header.name
    assert header.replica
    return encode_cell(("open", VERSION, header.name, header.signer, header.replica))


def _change(old: KvStore, new: KvStore) -> bytes:
    """One item that takes the old store to the new one."""
    assert new is not old
    up: Tree[KeyedEntry] = None
    down: dict[Cell, Cell] = {}
    for keyed in changed_entries(old, new):
        was, now = old.get(keyed.key), new.get(keyed.key)
        if was is ZERO or join(was, now) is now:
            up = put(up, Leaf(name_digest(keyed.key), keyed))
        else:
            down[keyed.key] = entry_to_cell(now)
    for now_keyed, leaf in changes(new.keys, old.keys):
        if now_keyed is None:
            down[leaf.item.key] = None
    floor = new.floor if new.floor != old.floor else 0
    return encode_cell(("change", store_to_cell(KvStore(up, floor)), CellMap(down)))


def _folded(store: KvStore, up: Cell, down: Cell, number: int) -> KvStore:
    added = _store_of(up, number)
    if not isinstance(down, Mapping):
        raise _foreign_item(number)
    store = store.with_entries(items(added.keys))
    keys = store.keys
    for key, cell in down.items():
        entry = ZERO if cell is None else entry_from_cell(cell, ANY)
        if entry is None or not isinstance(key, str) or not key:
            raise _foreign_item(number)
        digest = name_digest(key)
        keys = without(keys, digest) if entry is ZERO else put(keys, Leaf(digest, KeyedEntry(key, entry)))
    return attrs.evolve(store, keys=keys, floor=max(store.floor, added.floor))


def _store_of(cell: Cell, number: int) -> KvStore:
    """A store all of whose entries are good."""
    store = store_from_cell(cell, ANY)
    if store is None or not isinstance(cell, Mapping) or len(cell) != len(store) + (store.floor > 0):
        raise _foreign_item(number)
    return store


def _deferred_items(entries: Iterable[KeyedEntry]) -> Iterator[bytes]:
    """An item each: two that wait for different times stay apart, and one is there whole or not at all."""
    for keyed in entries:
        yield encode_cell(("wait", store_to_cell(KvStore(Leaf(name_digest(keyed.key), keyed)))))


def _grouped(encoded: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Items in writes of bounded size."""
    group, size = list[bytes](), 0
    for item in encoded:
        if group and size + len(item) > JOURNAL_ITEM_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item)
    if group:
        yield group


def _pieces(store: KvStore) -> Iterator[bytes]:
    """The store as changes of bounded size; a single large key has a piece of its own."""
    for part in cut(items(store.keys)):
        yield encode_cell(("change", store_to_cell(KvStore(part)), CellMap()))
    if store.floor:
        yield encode_cell(("change", store_to_cell(KvStore(None, store.floor)), CellMap()))


def cut(given: Iterable[KeyedEntry]) -> Iterator[Tree[KeyedEntry]]:
    """Entries in groups of about `JOURNAL_ITEM_BYTES`; of a larger one some elements in each of several groups."""
    tree: Tree[KeyedEntry] = None
    size = 0
    for keyed in given:
        for part, encoded in _parts(keyed):
            if tree is not None and size + encoded > JOURNAL_ITEM_BYTES:
                yield tree
                tree, size = None, 0
            tree = unite(tree, Leaf(name_digest(part.key), part), join_keyed)
            size += encoded
    if tree is not None:
        yield tree


def _parts(keyed: KeyedEntry) -> Iterator[tuple[KeyedEntry, int]]:
    """Entries whose join is this one, and about how many bytes each takes."""
    entry, size = keyed.entry, len(encode_cell(entry_to_cell(keyed.entry))) + len(keyed.key)
    if size <= JOURNAL_ITEM_BYTES:
        yield keyed, size
        return
    for i, (tag, lane) in enumerate(zip(LANE_TAGS, entry.lanes, strict=True)):
        if tag is not Tag.COUNTER:  # a reset travels with its column, and columns are few
            for leaf in leaves(lane.tree):
                lanes = [NO_LANE] * len(LANE_TAGS)
                lanes[i] = TypeLane(lane.utime, leaf)
                part = make_entry(lanes=tuple(lanes))
                yield KeyedEntry(keyed.key, part), len(encode_cell(entry_to_cell(part)))
    counter = entry.lanes[LANE_OF[Tag.COUNTER]]
    rest = make_entry(entry.lww, (NO_LANE, NO_LANE, NO_LANE, counter), entry.expiry, None, entry.absent)
    for part in (*(make_entry(origins=origin) for origin in leaves(entry.origins)), rest):
        yield KeyedEntry(keyed.key, part), len(encode_cell(entry_to_cell(part)))


def _foreign_item(number: int) -> Corrupt:
    return Corrupt(
        f"journal of a database: item {number} was not written by one; restore it from a backup", item=number
    )
