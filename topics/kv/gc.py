"""Forgetting: what no reader sees and no honest peer still needs to be told (replication 3.5).

A delete is remembered so that a replica which has not heard of it cannot bring the key back. After `grace_ms`, longer
than any partition that must lose nothing, or below a floor known to be stable everywhere, it may go: the tombstone of
a key, a key that has expired, the removed elements of a structure, what was seen of other replicas' values.

Collecting changes no read at the same time (P23): a key goes only if it shows nothing, not even a conflict. It moves
the state down, so it is never done on a fork, and a replica that held a stale copy for longer than the grace does
bring it back (8.10).

A counter that goes takes this replica's columns with it, which must not start from zero under the same name: see
`Collected.counters`.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.kv.entry import (
    LANE_OF,
    LANE_TAGS,
    NO_LANE,
    ZERO,
    Element,
    Entry,
    Lane,
    Origin,
    Tag,
    is_alive,
    newest_in,
    visible,
)
from topics.kv.store import Keyed, Store, with_parts
from topics.kv.tree import count, sift
from topics.kv.values import conflicted


class Collected(NamedTuple):
    """What one collection took: keys, elements of keys that stay, and how many counters went with their keys."""

    keys: int
    elements: int
    counters: int


def collect(store: Store, *, now_ms: int, grace_ms: int, floor: int = 0) -> tuple[Store, Collected]:
    """The store without what has been dead for longer than the grace, or below its floor, raised to `floor`."""
    floor = max(store.floor, floor)
    sweep = _Sweep(now_ms, max(now_ms - grace_ms, floor))
    keys = sift(store.keys, None, sweep.pick)
    assert count(keys) <= count(store.keys)
    assert sweep.counters <= count(store.keys) - count(keys)
    left = store if keys is store.keys and floor == store.floor else Store(keys, floor)
    return left, Collected(count(store.keys) - count(keys), sweep.elements, sweep.counters)


class _Sweep:
    """One pass over all keys."""

    def __init__(self, now_ms: int, cut: int) -> None:
        assert now_ms >= 0
        self._now_ms = now_ms
        self._cut = cut
        self.elements = 0
        self.counters = 0

    def pick(self, keyed: Keyed, _beside: Keyed | None) -> Keyed | None:
        if self._is_over(keyed.entry):
            self.counters += keyed.entry.lanes[LANE_OF[Tag.COUNTER]].tree is not None
            return None
        entry = self._thinned(keyed.entry)
        assert entry is not ZERO
        return keyed if entry is keyed.entry else Keyed(keyed.key, entry)

    def _is_over(self, entry: Entry) -> bool:
        """Dead since the cut or before, and nothing in it that a reader could be shown."""
        view = visible(entry)
        assert view.utime <= entry.newest
        if view.tag is None:
            dead_since = view.utime
        elif view.expire is not None and self._now_ms >= view.expire:
            dead_since = max(view.expire, view.utime)
        else:
            return False
        return max(dead_since, entry.newest) <= self._cut and not conflicted(entry, self._now_ms)

    def _thinned(self, entry: Entry) -> Entry:
        view = visible(entry)
        before = self.elements
        lanes = []
        for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True):
            tree = lane.tree if tag is Tag.COUNTER else sift(lane.tree, None, self._keep)
            if tree is None and tag != view.tag and lane.utime <= self._cut:
                lanes.append(NO_LANE)  # hidden, old and empty
            else:
                lanes.append(lane if tree is lane.tree else Lane(lane.utime, tree))
        origins = sift(entry.origins, None, self._keep_origin)
        if self.elements == before and origins is entry.origins:
            return entry
        return with_parts(entry, entry.lww, tuple(lanes), entry.expiry, origins)

    def _keep(self, element: Element, _beside: Element | None) -> Element | None:
        if is_alive(element) or newest_in(element) > self._cut:
            return element
        self.elements += 1
        return None

    def _keep_origin(self, origin: Origin, _beside: Origin | None) -> Origin | None:
        return None if origin.event is None and origin.stamp <= self._cut else origin
