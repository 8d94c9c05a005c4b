"""All keys of one database as one immutable value with a join (replication 3.1, 3.5).

A store is a map from key to entry and a floor. The floor G says: every event stamped at or below it is known to all
active owners, and what of them is gone here was collected. So where two stores meet, an event at or below the other
side's floor that the other side lacks is dropped, and an event both have is kept: what was collected does not come
back from a replica that was away. Events are taken element by element. The floor is only ever raised, by whoever knows
what is stable.

On the wire the floor is an entry under the empty key, which is no key: a plain value written at G. Plain peers carry it
along and keep the newest, which is the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import attrs

from topics.codec.cell import Cell, CellMap, encode_cell
from topics.kernel.errors import Rejected
from topics.kv.bounds import KvLimits
from topics.kv.entries.entry import (
    LANE_OF,
    LANE_TAGS,
    NO_EVENT,
    NO_EXPIRY,
    NO_LANE,
    NO_LANES,
    ZERO,
    Element,
    Expiry,
    KvEntry,
    Origin,
    Tag,
    TypeLane,
    WriteEvent,
    make_entry,
    newest_in,
    visible,
)
from topics.kv.entries.merge import join, merge_cad
from topics.kv.entries.tree import Leaf, Tree, changes, count, find, grow, items, sift, unite
from topics.kv.entries.wire import elements_to_cell, entry_from_cell, entry_to_cell, name_digest

T = TypeVar("T")

FLOOR_KEY: Final = ""


class KeyedEntry(NamedTuple):
    """A key and its entry."""

    key: str
    entry: KvEntry


@attrs.frozen(eq=False)
class KvStore:
    """The keys of one database, and the floor below which all events are known everywhere."""

    keys: Tree[KeyedEntry] = None
    floor: int = 0
    _newest: int | None = attrs.field(init=False, default=None, repr=False)  # found when it is asked for

    @property
    def newest(self) -> int:
        """The highest stamp of its keys."""
        if self._newest is None:
            self._remember(max((keyed.entry.newest for keyed in items(self.keys)), default=0))
        assert self._newest is not None
        return self._newest

    def _remember(self, newest: int) -> None:
        object.__setattr__(self, "_newest", newest)  # of a value that is frozen, and says the same afterwards

    def get(self, key: str) -> KvEntry:
        """The entry of the key, zero if there is none."""
        found = find(self.keys, name_digest(key))
        return ZERO if found is None else found.entry

    def with_entries(self, deltas: Iterable[KeyedEntry]) -> KvStore:
        """The join with these entries."""
        keys, newest = self.keys, 0
        for keyed in deltas:
            keys = unite(keys, _leaf(keyed), join_keyed)
            newest = max(newest, keyed.entry.newest)
        assert count(keys) >= len(self)
        if keys is self.keys:
            return self
        joined = attrs.evolve(self, keys=keys)
        if self._newest is not None:
            joined._remember(max(self._newest, newest))  # noqa: SLF001  # of one class
        return joined

    def __len__(self) -> int:
        return count(self.keys)


EMPTY: Final = KvStore()


def join_keyed(own: KeyedEntry, other: KeyedEntry) -> KeyedEntry:
    assert own.key == other.key
    entry = join(own.entry, other.entry)
    if entry is own.entry:
        return own
    return other if entry is other.entry else KeyedEntry(own.key, entry)


def join_stores(own: KvStore, other: KvStore) -> KvStore:
    """The least store above both, but for what the floor of one says was collected."""
    if own is other:
        return own
    left = _above(own.keys, other.keys, other.floor)
    right = _above(other.keys, own.keys, own.floor)
    keys, floor = unite(left, right, join_keyed), max(own.floor, other.floor)
    assert floor or count(keys) >= max(len(own), len(other))
    for side in (own, other):
        if keys is side.keys and floor == side.floor:
            return side
    joined = KvStore(keys, floor)
    if floor == 0 and own._newest is not None:  # noqa: SLF001  # of one class
        joined._remember(max(own._newest, other.newest))  # noqa: SLF001  # as above
    return joined


def changed_entries(old: KvStore, new: KvStore) -> Iterable[KeyedEntry]:
    """What of `new` is not the very same as in `old`: entries whose join with the old store is the new one."""
    for before, leaf in changes(old.keys, new.keys):
        after = leaf.item
        assert before is None or before.key == after.key
        yield after if before is None else KeyedEntry(after.key, entry_difference(before.entry, after.entry))


class StoreLattice:
    """A `Lattice` of stores. What comes from outside comes as a cell: see `store_from_cell`."""

    def __init__(self, limits: KvLimits) -> None:
        self._limits = limits

    def zero(self) -> KvStore:
        return EMPTY

    def join(self, own: KvStore, other: KvStore) -> KvStore:
        return join_stores(own, other)

    def merge_cad(self, own: KvStore, other: KvStore) -> KvStore:
        """Key by key the literal rule, on what plain peers see of each entry."""
        return KvStore(unite(own.keys, other.keys, self._merge_keyed), max(own.floor, other.floor))

    def check_foreign(self, value: object) -> bool:
        return isinstance(value, KvStore)

    def _merge_keyed(self, own: KeyedEntry, other: KeyedEntry) -> KeyedEntry:
        merged = merge_cad(_plain(own.entry), _plain(other.entry), self._is_entry)
        entry = entry_from_cell(merged, self._limits)
        assert entry is not None
        return KeyedEntry(own.key, entry)

    def _is_entry(self, cell: object) -> bool:
        return entry_from_cell(cell, self._limits) is not None


# --- cells


def store_to_cell(store: KvStore) -> CellMap:
    """`{key → entry}`; equal stores give equal bytes."""
    pairs: list[tuple[Cell, Cell]] = [(keyed.key, entry_to_cell(keyed.entry)) for keyed in items(store.keys)]
    if store.floor:
        pairs.append((FLOOR_KEY, (None, int(Tag.VALUE), store.floor, None)))
    assert len(pairs) == len(store) + (store.floor > 0)
    return CellMap(pairs)


def store_from_cell(cell: object, limits: KvLimits) -> KvStore | None:
    """The store that a cell is; a key or entry that is none is left out. None if it is no map at all.

    Where something was left out the floor is, too: it speaks of what the whole store lacks.
    """
    if not isinstance(cell, Mapping):
        return None
    found: list[Leaf[KeyedEntry]] = []
    floor, whole = 0, True
    for key, part in cell.items():
        entry = entry_from_cell(part, limits)
        if entry is None or not isinstance(key, str):
            whole = False
        elif key == FLOOR_KEY:
            floor = entry.lww.utime
        elif is_key(key, limits):
            found.append(_leaf(KeyedEntry(key, entry)))
        else:
            whole = False
    assert len(found) <= len(cell)
    return KvStore(grow(found), floor if whole else 0)


def is_key(key: str, limits: KvLimits) -> bool:
    """Whether the text may be a key."""
    try:
        encode_cell(key)
    except Rejected:
        return False  # a lone surrogate
    return 0 < len(key.encode()) <= limits.key_bytes


def _leaf(keyed: KeyedEntry) -> Leaf[KeyedEntry]:
    return Leaf(name_digest(keyed.key), keyed)


def _plain(entry: KvEntry) -> tuple[Cell, int | None, int, int | None]:
    view = visible(entry)
    value = elements_to_cell(view.tree) if view.tag in LANE_OF else view.value
    return value, None if view.tag is None else int(view.tag), view.utime, view.expire


# --- the floor


def _above(keys: Tree[KeyedEntry], beside: Tree[KeyedEntry], floor: int) -> Tree[KeyedEntry]:
    """The keys without what is stamped at or below the other side's floor and lacking there."""
    if floor == 0:
        return keys

    def pick(keyed: KeyedEntry, other: KeyedEntry | None) -> KeyedEntry | None:
        entry = _entry_above(keyed.entry, ZERO if other is None else other.entry, floor)
        if entry is keyed.entry:
            return keyed
        return None if entry is ZERO else KeyedEntry(keyed.key, entry)

    return sift(keys, beside, pick)


def _entry_above(entry: KvEntry, other: KvEntry, floor: int) -> KvEntry:
    assert floor > 0

    def lacking(element: Element, beside: Element | None) -> Element | None:
        return None if beside is None and newest_in(element) <= floor else element

    def unseen(origin: Origin, beside: Origin | None) -> Origin | None:
        return None if beside is None and origin.stamp <= floor else origin

    lww = entry.lww
    if lww.utime <= floor and other.lww is NO_EVENT:
        lww = NO_EVENT
    lanes = []
    for tag, lane, beside in zip(LANE_TAGS, entry.lanes, other.lanes, strict=True):
        if beside.utime == 0 and lane.utime <= floor:
            lanes.append(NO_LANE)
        elif tag is Tag.COUNTER and entry.newest > floor:
            lanes.append(lane)  # a column has no stamp, and some of these may be new: counted or taken back
        else:
            lanes.append(_lane(lane, lane.utime, sift(lane.tree, beside.tree, lacking)))
    expiry = entry.expiry
    if expiry.etime <= floor and other.expiry.etime == 0:
        expiry = NO_EXPIRY
    absent = 0 if entry.absent <= floor and other.absent == 0 else entry.absent
    origins = sift(entry.origins, other.origins, unseen)
    return with_parts(entry, lww, tuple(lanes), expiry, origins, absent)


def with_parts(
    entry: KvEntry,
    lww: WriteEvent,
    lanes: tuple[TypeLane, ...],
    expiry: Expiry,
    origins: Tree[Origin],
    absent: int,
) -> KvEntry:
    """The entry with these parts: the very same if they are its own, zero if nothing is left."""
    if all(lane is was for lane, was in zip(lanes, entry.lanes, strict=True)):
        lanes = entry.lanes
    same = lww is entry.lww and lanes is entry.lanes and expiry is entry.expiry and origins is entry.origins
    if same and absent == entry.absent:
        return entry
    if (lww, lanes, expiry, origins) == (NO_EVENT, NO_LANES, NO_EXPIRY, None):
        return ZERO
    assert len(lanes) == len(LANE_TAGS)
    return make_entry(lww, lanes, expiry, origins, absent)


def _lane(lane: TypeLane, utime: int, tree: Tree[Element]) -> TypeLane:
    return lane if tree is lane.tree and utime == lane.utime else TypeLane(utime, tree)


# --- what changed


def entry_difference(old: KvEntry, new: KvEntry) -> KvEntry:
    """The part of the new entry that the old one does not hold: their join is the new one."""
    lanes = []
    for tag, before, after in zip(LANE_TAGS, old.lanes, new.lanes, strict=True):
        if after is before:
            lanes.append(NO_LANE)
        elif tag is Tag.COUNTER:
            lanes.append(after)  # a reset travels with the column it resets
        else:
            lanes.append(TypeLane(after.utime, _changed(before.tree, after.tree)))
    return make_entry(
        NO_EVENT if new.lww is old.lww else new.lww,
        tuple(lanes),
        NO_EXPIRY if new.expiry is old.expiry else new.expiry,
        _changed(old.origins, new.origins),
        0 if new.absent == old.absent else new.absent,
    )


def _changed(old: Tree[T], new: Tree[T]) -> Tree[T]:
    return grow(leaf for _, leaf in changes(old, new))
