"""Entries from the future: what waits for this node's clock, and what is left of an entry without it (replication 1.3).

A stamp further ahead of the clock than clocks may differ is not believed, whoever wrote it: a peer, or this node before
its clock was corrected. Such an entry waits as it is, key by key, and is merged when the clock comes near. Of an
entry of this node's own, what is stamped earlier stays to be read.

What a later write has replaced is not kept by a node, so it is gone here until a peer that has it is merged. The
columns of a counter carry no stamps; they stay, and count.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from heapq import heappop, heappush
from typing import Final

from topics.kv.entries.entry import (
    LANE_TAGS,
    NO_EVENT,
    NO_EXPIRY,
    NO_LANE,
    ZERO,
    Element,
    Expiry,
    Field,
    KvEntry,
    Member,
    Origin,
    Ranked,
    Tag,
    TypeLane,
    WriteEvent,
    make_entry,
    newest_in,
)
from topics.kv.entries.merge import join, join_events
from topics.kv.entries.store import KeyedEntry, KvStore, entry_difference, with_parts
from topics.kv.entries.tree import Leaf, Tree, items, put, sift, without
from topics.kv.entries.wire import name_digest

VERSIONS_MAX: Final = 64  # of one key that wait on their own; above that the two latest wait as one


class DeferredEntries:
    """Entries by key and newest stamp. Those of one key wait apart: one of the year 3000 holds up no other."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[KeyedEntry]] = {}  # of each key in the order of their stamps
        self._stamps: list[tuple[int, str]] = []  # a heap; what is gone leaves it when it comes up
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[KeyedEntry]:
        """In the order of their stamps."""
        every = (keyed for same in self._by_key.values() for keyed in same)
        return iter(sorted(every, key=lambda keyed: (keyed.entry.newest, keyed.key)))

    def of(self, key: str) -> tuple[KeyedEntry, ...]:
        """What waits of the key."""
        return tuple(self._by_key.get(key, ()))

    def has(self, keyed: KeyedEntry) -> bool:
        """Whether all that the entry says waits already, for its own time."""
        return any(
            each.entry.newest == keyed.entry.newest and join(each.entry, keyed.entry) is each.entry
            for each in self.of(keyed.key)
        )

    def first(self) -> int | None:
        """The stamp of what is due first; None if nothing waits."""
        while self._stamps:
            stamp, key = self._stamps[0]
            if any(keyed.entry.newest == stamp for keyed in self.of(key)):
                return stamp
            heappop(self._stamps)
        assert self._count == 0
        return None

    def add(self, entries: Iterable[KeyedEntry]) -> None:
        """Let entries wait."""
        for keyed in entries:
            if not self.has(keyed):
                self._add(keyed)

    def _add(self, keyed: KeyedEntry) -> None:
        same = self._by_key.setdefault(keyed.key, [])
        if len(same) >= VERSIONS_MAX:
            keyed = KeyedEntry(keyed.key, join(same.pop().entry, keyed.entry))
            self._count -= 1
        insort(same, keyed, key=lambda each: each.entry.newest)
        heappush(self._stamps, (keyed.entry.newest, keyed.key))
        self._count += 1
        assert len(same) <= VERSIONS_MAX

    def due(self, limit: int) -> list[KeyedEntry]:
        """What is stamped at or below the limit."""
        return [keyed for keyed in self if keyed.entry.newest <= limit]

    def drop_due(self, limit: int) -> None:
        """Forget what is stamped at or below the limit: it was merged."""
        for key, same in list(self._by_key.items()):
            self._keep(key, [keyed for keyed in same if keyed.entry.newest > limit])
        assert not self.due(limit)

    def drop(self, key: str) -> None:
        """Forget what waits of the key."""
        self._keep(key, [])

    def _keep(self, key: str, kept: list[KeyedEntry]) -> None:
        self._count += len(kept) - len(self._by_key.pop(key, ()))
        if kept:
            self._by_key[key] = kept


def split_future(store: KvStore, limit: int, now_ms: int) -> tuple[KvStore, list[KeyedEntry]]:
    """The store without what is stamped above the limit, and that: what of each such key has to wait."""
    keys, ahead = store.keys, []
    for keyed in items(store.keys):
        if keyed.entry.newest > limit:
            left = until(keyed.entry, limit, now_ms)
            digest = name_digest(keyed.key)
            keys = (
                without(keys, digest)
                if left is ZERO
                else put(keys, Leaf(digest, KeyedEntry(keyed.key, left)))
            )
            ahead.append(KeyedEntry(keyed.key, entry_difference(left, keyed.entry)))
    assert all(keyed.entry.newest > limit for keyed in ahead)
    return (KvStore(keys, store.floor) if ahead else store), ahead


def until(entry: KvEntry, limit: int, now_ms: int) -> KvEntry:
    """What is left of the entry without its stamps above the limit; zero if nothing is."""
    origins = sift(entry.origins, None, lambda origin, _: _origin_until(origin, limit))
    lww = entry.lww
    if lww.utime > limit:
        events = [origin.event for origin in items(origins) if origin.event is not None]
        lww = reduce(join_events, events, NO_EVENT)
    lanes = tuple(
        _lane_until(tag, lane, limit, now_ms) for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True)
    )
    expiry = entry.expiry if entry.expiry.etime <= limit else NO_EXPIRY
    absent = entry.absent if entry.absent <= limit else 0
    left = with_parts(entry, lww, lanes, expiry, origins, absent)
    assert left.newest <= max(limit, now_ms)
    return left


def _origin_until(origin: Origin, limit: int) -> Origin | None:
    if origin.stamp > limit:
        return None
    if origin.seen <= limit:
        return origin
    return origin._replace(seen=origin.stamp)  # seen, and nobody says when


def _lane_until(tag: Tag, lane: TypeLane, limit: int, now_ms: int) -> TypeLane:
    if tag is Tag.COUNTER:
        return lane if lane.utime <= limit else TypeLane(max(now_ms, 1), lane.tree)

    def earlier(element: Element, _beside: Element | None) -> Element | None:
        if newest_in(element) <= limit:
            return element
        if isinstance(element, Member | Ranked):
            add, rem = (stamp if stamp <= limit else 0 for stamp in (element.add, element.rem))
            return element._replace(add=add, rem=rem) if add or rem else None
        return None

    tree = sift(lane.tree, None, earlier)
    utime = lane.utime if lane.utime <= limit else max(map(newest_in, items(tree)), default=0)
    if tree is lane.tree and utime == lane.utime:
        return lane
    return TypeLane(utime, tree) if utime else NO_LANE


def restamped(entry: KvEntry, now_ms: int, first: int, replica: str) -> KvEntry:
    """The entry as if `replica` wrote now what is stamped above `now_ms`: those stamps in their order, from `first`.

    An expiry keeps its distance from the write that set it.
    """
    moved = {stamp: first + i for i, stamp in enumerate(sorted(s for s in _stamps(entry) if s > now_ms))}

    def move(stamp: int) -> int:
        return moved.get(stamp, stamp)

    def shifted(expire: int | None, stamp: int) -> int | None:
        return None if expire is None else max(expire - stamp + move(stamp), 0)

    lww, expiry = entry.lww, entry.expiry
    origins = sift(
        entry.origins,
        None,
        lambda origin, _: None if origin.stamp in moved else origin._replace(seen=move(origin.seen)),
    )
    if lww.utime in moved:
        lww = WriteEvent(move(lww.utime), lww.tag, lww.value, shifted(lww.expire, lww.utime))
        origins = put(origins, Leaf(name_digest(replica), Origin(replica, lww.utime, lww)))
    lanes = tuple(TypeLane(move(lane.utime), _moved(lane.tree, move)) for lane in entry.lanes)
    stated = Expiry(move(expiry.etime), shifted(expiry.expire, expiry.etime))
    return make_entry(lww, lanes, stated, origins, move(entry.absent))


def _moved(tree: Tree[Element], move: Callable[[int], int]) -> Tree[Element]:
    def change(element: Element, _beside: Element | None) -> Element:
        if isinstance(element, Field):
            return element._replace(stamp=move(element.stamp))
        if isinstance(element, Member | Ranked):
            return element._replace(add=move(element.add), rem=move(element.rem))
        return element

    return sift(tree, None, change)


def _stamps(entry: KvEntry) -> set[int]:
    """Every stamp that is in the entry."""
    found = {entry.lww.utime, entry.expiry.etime, entry.absent}
    found.update(stamp for origin in items(entry.origins) for stamp in (origin.stamp, origin.seen))
    for lane in entry.lanes:
        found.add(lane.utime)
        for element in items(lane.tree):
            if isinstance(element, Member | Ranked):
                found |= {element.add, element.rem}
            else:
                found.add(newest_in(element))
    assert max(found) == entry.newest
    return found
