"""Whole keys: get, set, delete, exists, keys, type, expire, ttl, and reading with all conflicts (replication 3.3).

What a key can tell of its conflicts follows from what a write has seen. A write marks the values it replaces as seen
and removes the elements it replaces, so a value or an element that is alive beside the visible entry was written by
somebody who did not know of it. `read` lists those. Within one field of a hash and the score of a member the later
write wins and the other one is not kept: nothing can be listed there.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.codec.cell import Cell, CellMap, encode_cell
from topics.kernel.checks import json_kind, whole_number
from topics.kernel.errors import invalid
from topics.kv.bounds import TTL_MS_MAX
from topics.kv.entries.entry import (
    LANE_TAGS,
    Element,
    Field,
    KvEntry,
    Member,
    Ranked,
    Tag,
    View,
    alive,
    event_order,
    total_of,
    visible,
)
from topics.kv.entries.tree import Tree, items
from topics.kv.entries.wire import LANE_NAMES, TYPE_NAMES
from topics.kv.operations.keyspace import Keyspace, Looked

ABSENT: Final = -2
NO_EXPIRY: Final = -1


@attrs.frozen
class Conflict:
    """A write that a concurrent one has hidden. `type` None: it deleted the key."""

    type: str | None
    value: Cell
    utime: int
    expires_at: int | None


@attrs.frozen
class KeyReading:
    """All there is to say of a key. `type` None: nothing is visible, but there are conflicts.

    `value` of a hash is a map, of a set a tuple of members, of a sorted set a tuple of (member, score) by score, of a
    list a tuple, of a counter its total.
    """

    key: str
    type: str | None
    value: Cell
    expires_at: int | None
    conflicts: tuple[Conflict, ...]


class KeyOperations(Keyspace):
    """The core table of the seed."""

    def get(self, key: str) -> Cell:
        """The value; None if the key is absent. Of any other type `wrong_type`: `read` renders all types."""
        looked = self._look(key, Tag.VALUE)
        return looked.view.value if looked.live else None

    def read(self, key: str) -> KeyReading | None:
        """The key whatever its type, with every value a concurrent write has hidden; None if there is neither."""
        looked = self._look(key)
        conflicts = _conflicts(looked)
        if not looked.live and not conflicts:
            return None
        if not looked.live:
            return KeyReading(key, None, None, None, conflicts)
        view = looked.view
        assert view.tag is not None
        return KeyReading(key, TYPE_NAMES[view.tag], rendered(view), view.expire, conflicts)

    def set(self, key: str, value: Cell, ttl_ms: int | None = None) -> None:
        """Write a value over whatever is there. Without `ttl_ms` it does not expire."""
        stored = self._cell("value", value)
        looked = self._look(key)
        assert looked.now_ms >= 0
        expire = None if ttl_ms is None else looked.now_ms + _ttl(ttl_ms, least=1)
        edit = self._edit(looked)
        edit.erase()
        edit.write(Tag.VALUE, stored, expire)
        self._commit(looked, edit)

    def delete(self, key: str) -> bool:
        """Delete the key, with all this replica has seen of it. False if it was not live."""
        looked = self._look(key)
        if not looked.live:
            return False
        edit = self._edit(looked)
        edit.erase()
        edit.write(None, None, None)
        self._commit(looked, edit)
        return True

    def exists(self, key: str) -> bool:
        return self._look(key).live

    def type(self, key: str) -> str | None:
        """value, hash, set, zset, list or counter; None if the key is absent."""
        looked = self._look(key)
        return TYPE_NAMES[looked.view.tag] if looked.live and looked.view.tag is not None else None

    def keys(self, prefix: str = "") -> list[str]:
        """The live keys that start so, ascending."""
        if not isinstance(prefix, str):
            raise invalid("prefix", f"must be a string, not {json_kind(prefix)}")
        self._catch_up()
        now_ms = self._clock.now_ms()
        return sorted(
            keyed.key
            for keyed in items(self._store().keys)
            if keyed.key.startswith(prefix) and visible(keyed.entry).is_live(now_ms)
        )

    def expire(self, key: str, ttl_ms: int) -> int:
        """Let the key expire `ttl_ms` from now: 1, or 0 if it is absent."""
        ttl = _ttl(ttl_ms, least=0)
        looked = self._look(key)
        if not looked.live:
            return 0
        edit, view = self._edit(looked), looked.view
        assert view.tag is not None
        if view.tag in LANE_NAMES:
            edit.expire(looked.now_ms + ttl)
        else:  # a value's expiry is part of its event, so this is a new one, made from the visible one
            edit.write(view.tag, view.value, looked.now_ms + ttl, over=looked.entry.lww)
        self._commit(looked, edit)
        return 1

    def ttl(self, key: str) -> int:
        """What is left in ms; -1 if the key does not expire, -2 if it is absent."""
        looked = self._look(key)
        if not looked.live:
            return ABSENT
        expire = looked.view.expire
        if expire is None:
            return NO_EXPIRY
        assert expire > looked.now_ms  # or it would not be live
        return expire - looked.now_ms


def _ttl(ttl_ms: int, *, least: int) -> int:
    ttl = whole_number("ttl_ms", ttl_ms)
    if not least <= ttl <= TTL_MS_MAX:
        raise invalid("ttl_ms", f"must be from {least} to {TTL_MS_MAX}, not {ttl}")
    return ttl


def conflicted(entry: KvEntry, now_ms: int) -> bool:
    """Whether a reader would be shown a conflict."""
    view = visible(entry)
    return bool(_conflicts(Looked("", entry, view, view.is_live(now_ms), now_ms)))


def _conflicts(looked: Looked) -> tuple[Conflict, ...]:
    """Newest first. A value equal to the visible one is no conflict, nor is a delete where nothing is visible, or one
    from before this life of the key: whoever began it may have forgotten that there had been another.
    """
    entry, view = looked.entry, looked.view
    events = [origin.event for origin in items(entry.origins) if origin.event is not None]
    shown = {_mark(view.tag, view.value)} if looked.live else {_mark(None, None)}
    found = []
    for event in sorted(events, key=event_order, reverse=True):
        mark = _mark(event.tag, event.value)
        expired = event.expire is not None and looked.now_ms >= event.expire
        former = event.tag is None and event.utime < entry.absent
        if mark not in shown and not expired and not former:
            shown.add(mark)
            name = None if event.tag is None else TYPE_NAMES[event.tag]
            found.append(Conflict(name, event.value, event.utime, event.expire))
    expire = entry.expiry.expire
    if expire is None or looked.now_ms < expire:
        for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True):
            if not (looked.live and tag == view.tag) and speaks(tag, lane.tree):
                value = rendered(View(tag, lane.utime, expire, tree=lane.tree))
                found.append(Conflict(TYPE_NAMES[tag], value, lane.utime, expire))
    return tuple(sorted(found, key=lambda conflict: -conflict.utime))


def _mark(tag: Tag | None, value: Cell) -> bytes:
    plain = tag in (None, Tag.VALUE, Tag.LIST)
    return encode_cell((None if tag is None else int(tag), value if plain else None))


def speaks(tag: Tag, tree: Tree[Element]) -> bool:
    """Whether a lane holds something nobody has removed."""
    assert tag in LANE_TAGS
    return total_of(tree) != 0 if tag is Tag.COUNTER else next(alive(tree), None) is not None


def rendered(view: View) -> Cell:
    """What a reader is shown of a view that is no delete."""
    assert view.tag is not None
    if view.tag is Tag.COUNTER:
        return total_of(view.tree)
    if view.tag is Tag.HASH:
        return CellMap(fields_of(view.tree).items())
    if view.tag is Tag.SET:
        return tuple(members_of(view.tree))
    if view.tag is Tag.ZSET:
        return tuple((ranked.value, ranked.score) for ranked in ranked_of(view.tree))
    return view.value


def fields_of(tree: Tree[Element]) -> dict[str, Cell]:
    """The live fields, ascending by name."""
    found = [field for field in alive(tree) if isinstance(field, Field)]
    return {field.name: field.value for field in sorted(found, key=lambda field: field.name)}


def members_of(tree: Tree[Element]) -> list[Cell]:
    """The members, ascending by their canonical bytes."""
    return sorted((m.value for m in alive(tree) if isinstance(m, Member)), key=encode_cell)


def ranked_of(tree: Tree[Element]) -> list[Ranked]:
    """The members of a sorted set, ascending by score; equal scores by the canonical bytes."""
    found = [ranked for ranked in alive(tree) if isinstance(ranked, Ranked)]
    return sorted(found, key=lambda ranked: (ranked.score, encode_cell(ranked.value)))
