"""Forgetting: what no reader sees and no honest peer still needs to be told (replication 3.5).

A delete is remembered so that a replica which has not heard of it cannot bring the key back. After `grace_ms`, longer
than any partition that must lose nothing, or below a floor known to be stable everywhere, it may go: the tombstone of
a key, the removed elements of a structure, what was seen of other replicas' values.

A key that has expired for as long becomes a delete first, of what it held and stamped with its expiry. Peers may have
what it held, and the next life of the key must not inherit it from them. That stamp is old already, so the mark
`EXPIRED` says when it was made: for a grace from then, in which all peers hear of it, nothing of it is forgotten.

Collecting changes no read at the same time (P23): a key goes only if it shows nothing, not even a conflict. It moves
the state down, so it is never done on a fork, and a replica that held a stale copy for longer than the grace does
bring it back (8.10).

A counter that goes takes this replica's columns with it, which must not start from zero under the same name: see
`Collected.counters`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from topics.kv.entries.edit import delete_expired
from topics.kv.entries.entry import (
    LANE_OF,
    LANE_TAGS,
    NO_LANE,
    ZERO,
    Element,
    KvEntry,
    Origin,
    Tag,
    TypeLane,
    is_alive,
    newest_in,
    visible,
)
from topics.kv.entries.store import KeyedEntry, KvStore, with_parts
from topics.kv.entries.tree import count, find, sift
from topics.kv.entries.wire import EXPIRED, name_digest
from topics.kv.operations.keys import conflicted, speaks

_EXPIRED_DIGEST: Final = name_digest(EXPIRED)


class Collected(NamedTuple):
    """What one collection took: keys, elements of keys that stay, and how many counters went with their keys.

    `expired`: keys that had expired and are deletes now, which go a grace later.
    """

    keys: int
    elements: int
    counters: int
    expired: int = 0


def collect(
    store: KvStore, *, now_ms: int, grace_ms: int, floor: int = 0, expired_at_once: bool = False
) -> tuple[KvStore, Collected]:
    """The store without what has been dead for longer than the grace, or below its floor, raised to `floor`.

    `expired_at_once`: drop expired keys, as journals of a time before that became a delete have it.
    """
    floor = max(store.floor, floor)
    sweep = _Sweep(now_ms, max(now_ms - grace_ms, floor), floor)
    keys = sift(store.keys, None, sweep.pick_at_once if expired_at_once else sweep.pick)
    assert count(keys) <= count(store.keys)
    assert sweep.counters <= count(store.keys) - count(keys)
    left = store if keys is store.keys and floor == store.floor else KvStore(keys, floor)
    collected = Collected(count(store.keys) - count(keys), sweep.elements, sweep.counters, sweep.expired)
    return left, collected


class _Sweep:
    """One pass over all keys."""

    def __init__(self, now_ms: int, cut: int, floor: int) -> None:
        assert now_ms >= 0
        self._now_ms = now_ms
        self._cut = cut
        self._floor = floor
        self._kept = 0  # of the entry being thinned: dead elements up to this stamp stay
        self.elements = 0
        self.counters = 0
        self.expired = 0

    def pick(self, keyed: KeyedEntry, _beside: KeyedEntry | None) -> KeyedEntry | None:
        entry = keyed.entry
        if self._is_over(entry):
            expired_at = _expired_at(entry)
            if expired_at is None:
                return self._drop(entry)
            if expired_at <= self._cut:
                self.expired += 1
                entry = delete_expired(entry, max(expired_at, self._floor + 1), self._now_ms)
                return KeyedEntry(keyed.key, entry)
        return self._stays(keyed)

    def pick_at_once(self, keyed: KeyedEntry, _beside: KeyedEntry | None) -> KeyedEntry | None:
        """As `pick`, but an expired key goes."""
        entry, view = keyed.entry, visible(keyed.entry)
        if self._is_over(entry) and max(view.utime, view.expire or 0) <= self._cut:
            return self._drop(entry)
        return self._stays(keyed)

    def _is_over(self, entry: KvEntry) -> bool:
        """Untouched since the cut, and nothing in it that a reader could be shown."""
        view = visible(entry)
        assert view.utime <= entry.newest
        dead = entry.newest <= self._cut and not view.is_live(self._now_ms)
        return dead and not conflicted(entry, self._now_ms)

    def _drop(self, entry: KvEntry) -> KeyedEntry | None:
        self.counters += entry.lanes[LANE_OF[Tag.COUNTER]].tree is not None
        return None

    def _stays(self, keyed: KeyedEntry) -> KeyedEntry:
        entry = self._thinned(keyed.entry)
        assert entry is not ZERO
        return keyed if entry is keyed.entry else KeyedEntry(keyed.key, entry)

    def _thinned(self, entry: KvEntry) -> KvEntry:
        view = visible(entry)
        mark = find(entry.origins, _EXPIRED_DIGEST)
        self._kept = mark.stamp if mark is not None and mark.seen > self._cut else 0
        before = self.elements
        lanes = []
        for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True):
            tree = lane.tree if tag is Tag.COUNTER else sift(lane.tree, None, self._keep)
            if tree is None and tag != view.tag and lane.utime <= self._cut:
                lanes.append(NO_LANE)  # hidden, old and empty
            else:
                lanes.append(lane if tree is lane.tree else TypeLane(lane.utime, tree))
        origins = sift(entry.origins, None, self._keep_origin)
        if self.elements == before and origins is entry.origins:
            return entry
        return with_parts(entry, entry.lww, tuple(lanes), entry.expiry, origins, entry.absent)

    def _keep(self, element: Element, _beside: Element | None) -> Element | None:
        if is_alive(element) or newest_in(element) > self._cut or newest_in(element) <= self._kept:
            return element
        self.elements += 1
        return None

    def _keep_origin(self, origin: Origin, _beside: Origin | None) -> Origin | None:
        forgotten = origin.event is None and origin.seen <= self._cut and origin.stamp > self._kept
        return None if forgotten else origin


def _expired_at(entry: KvEntry) -> int | None:
    """When the last of what a dead key still holds has expired; None if deletes have taken everything."""
    view = visible(entry)
    found = [] if view.tag is None else [view.expire]
    if any(speaks(tag, lane.tree) for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True)):
        found.append(entry.expiry.expire)
    assert None not in found  # or a reader could be shown it
    return max((at for at in found if at is not None), default=None)
