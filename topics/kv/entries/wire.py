"""Entries as cells: four slots that every peer understands, and one that only this product does (replication 3.1, 3.4).

    [value, type, utime, expire]            the visible entry, as in the seed
    [value, type, utime, expire, absent]    a structure whose last write said when it expires, and nothing is hidden
    [value, type, utime, expire, hidden]    hidden: a map of what else there is to say

    hidden: lww → [value, type, utime, expire] · hash, set, zset, counter → [utime, elements]
            exp → [etime, expire] · seen → {replica → [stamp, event]} · absent → stamp

An event in `seen` is the stamp of the later write that has seen it (nil: a write that did not say when), true (the one
in `lww` or in the visible slots), or `[value, type, expire]`. `absent` is left out, and 0 in the fifth slot, where no
write has found the key absent.

A plain peer ignores the fifth slot; a plain entry has none, and its structures expire as said at its `utime`. Any other
fifth slot is somebody else's extension and is ignored.

Reading trusts nothing: an entry that breaks any rule is None, and never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from topics.codec.cell import INT_MAX, VALUE_DEPTH_MAX, Cell, CellMap, digest_of, encode_cell
from topics.crypto.hashing import blake3
from topics.kernel.errors import Rejected
from topics.kv.bounds import REPLICA_BYTES_MAX, STAMP_MAX, KvLimits
from topics.kv.entries.entry import (
    LANE_OF,
    LANE_TAGS,
    NO_EVENT,
    NO_EXPIRY,
    NO_LANES,
    Column,
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
    visible,
)
from topics.kv.entries.merge import join_events
from topics.kv.entries.tree import Leaf, Tree, count, grow, items, leaves

LANE_NAMES: Final = {Tag.HASH: "hash", Tag.SET: "set", Tag.ZSET: "zset", Tag.COUNTER: "counter"}
TYPE_NAMES: Final = {Tag.VALUE: "value", Tag.LIST: "list", **LANE_NAMES}
RESET: Final = "reset:"  # before a replica id: the column that takes back what a delete has seen
EXPIRED: Final = RESET + "expired"  # an origin that is no replica: gc has made a delete of an expired key
SLOTS: Final = 4


class _Malformed(Exception):
    """Within this module: the cell is no entry."""


def name_digest(name: str) -> bytes:
    """What a key, a field or a replica is found by."""
    assert name
    return blake3(name.encode())


# --- writing


def entry_to_cell(entry: KvEntry) -> Cell:
    """The entry in its wire form; equal entries give equal bytes."""
    view = visible(entry)
    hidden: dict[Cell, Cell] = {}
    if view.tag in LANE_OF:
        value: Cell = elements_to_cell(view.tree)
        if entry.lww is not NO_EVENT:
            hidden["lww"] = (entry.lww.value, _tag_cell(entry.lww.tag), entry.lww.utime, entry.lww.expire)
    else:
        value = view.value
    for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True):
        if tag != view.tag and (lane.utime or lane.tree is not None):
            hidden[LANE_NAMES[tag]] = (lane.utime, elements_to_cell(lane.tree))
    if entry.expiry != _expiry_of(view.tag, view.utime, view.expire):
        hidden["exp"] = tuple(entry.expiry)
    if entry.origins is not None:
        hidden["seen"] = CellMap(
            (origin.replica, (origin.stamp, _origin_cell(origin, entry.lww)))
            for origin in items(entry.origins)
        )
    plain = (value, _tag_cell(view.tag), view.utime, view.expire)
    assert len(plain) == SLOTS
    assert view.utime <= entry.newest
    if view.tag in LANE_OF and entry.expiry == (view.utime, view.expire) and hidden.keys() <= {"exp"}:
        return (*plain, entry.absent) if hidden or entry.absent else plain
    if entry.absent:
        hidden["absent"] = entry.absent
    return (*plain, CellMap(hidden)) if hidden else plain


def elements_to_cell(tree: Tree[Element]) -> CellMap:
    """A structure as in the seed's table."""
    cells = CellMap(_element_cell(leaf) for leaf in leaves(tree))
    assert len(cells) == count(tree)
    return cells


def _element_cell(leaf: Leaf[Element]) -> tuple[Cell, Cell]:
    element = leaf.item
    if isinstance(element, Field):
        return element.name, (element.value, element.stamp)
    if isinstance(element, Column):
        return element.replica, (element.pos, element.neg)
    return leaf.digest, tuple(element)


def _origin_cell(origin: Origin, lww: WriteEvent) -> Cell:
    event = origin.event
    if event is None:
        return origin.seen if origin.seen > origin.stamp else None
    if event is lww or encode_event(event) == encode_event(lww):
        return True
    return event.value, _tag_cell(event.tag), event.expire


def encode_event(event: WriteEvent) -> bytes:
    """Bytes that two events share iff they are the same."""
    return encode_cell((event.value, _tag_cell(event.tag), event.utime, event.expire))


def _tag_cell(tag: Tag | None) -> int | None:
    return None if tag is None else int(tag)


def _expiry_of(tag: Tag | None, utime: int, expire: int | None) -> Expiry:
    """What a plain entry says of its structures: their expiry was set with its last write, or never."""
    return Expiry(utime, expire) if tag in LANE_OF and expire is not None else NO_EXPIRY


# --- reading


def entry_from_cell(cell: object, limits: KvLimits) -> KvEntry | None:
    """The entry that a cell is, or None if it is none."""
    try:
        return _entry(cell, limits)
    except (_Malformed, Rejected):
        return None


def _entry(cell: object, limits: KvLimits) -> KvEntry:
    if not isinstance(cell, tuple) or len(cell) < SLOTS:
        raise _Malformed
    value, tag_cell, utime, expire = cell[:SLOTS]
    tag = _tag(tag_cell)
    lww, lanes = NO_EVENT, list(NO_LANES)
    if tag in LANE_OF:
        lanes[LANE_OF[tag]] = TypeLane(_written(utime), _elements(tag, value, limits))
        expire = _expire(expire)
    else:
        lww = _event(value, tag, utime, expire, limits)
    hidden = cell[SLOTS] if len(cell) > SLOTS else None
    if type(hidden) is int and tag in LANE_OF:
        expiry = Expiry(_written(utime), expire)
        return _checked(make_entry(lww, tuple(lanes), expiry, None, _whole(hidden)))
    expiry = _expiry_of(tag, _stamp(utime), expire)
    if hidden is None or not isinstance(hidden, Mapping):
        return _checked(make_entry(lww, tuple(lanes), expiry))
    parts: dict[str, object] = {name: part for name, part in hidden.items() if isinstance(name, str)}
    for other, name in LANE_NAMES.items():
        if (lane := parts.get(name)) is not None:
            lanes[LANE_OF[other]] = _lane(other, lane, lanes[LANE_OF[other]], limits)
    if (said := parts.get("exp")) is not None:
        etime, until = _row(said, 2)
        expiry = Expiry(_written(etime), _expire(until))
    if (written := parts.get("lww")) is not None:
        event, tag_cell, utime, expire = _row(written, 4)
        lww = join_events(lww, _event(event, _tag(tag_cell), utime, expire, limits))
    origins = _origins(parts.get("seen"), lww, limits)
    found = parts.get("absent")
    absent = 0 if found is None else _written(found)
    return _checked(make_entry(lww, tuple(lanes), expiry, origins, absent))


def _checked(entry: KvEntry) -> KvEntry:
    """A counter's resets never exceed what they reset: no delete has seen more than was counted."""
    counter = entry.lanes[LANE_OF[Tag.COUNTER]]
    if counter.tree is None:
        return entry
    columns = {column.replica: column for column in items(counter.tree) if isinstance(column, Column)}
    for name, reset in columns.items():
        if name.startswith(RESET):
            column = columns.get(name[len(RESET) :])
            if column is None or column.pos < reset.neg or column.neg < reset.pos:
                raise _Malformed
    return entry


def _event(value: object, tag: Tag | None, utime: object, expire: object, limits: KvLimits) -> WriteEvent:
    stamp, until = _stamp(utime), _expire(expire)
    if tag in LANE_OF or (tag is None and value is not None):
        raise _Malformed
    if tag is None and stamp == 0:
        return NO_EVENT
    if tag is not None and stamp == 0:
        raise _Malformed
    if tag is Tag.LIST and not isinstance(value, tuple):
        raise _Malformed
    _bounded(value, limits)
    return WriteEvent(stamp, tag, cast("Cell", value), until if tag is not None else None)


def _lane(tag: Tag, cell: object, present: TypeLane, limits: KvLimits) -> TypeLane:
    assert tag in LANE_OF
    utime, elements = _row(cell, 2)
    if present.utime:
        raise _Malformed  # the visible lane has no second place
    return TypeLane(_written(utime), _elements(tag, elements, limits))


def _origins(cell: object, lww: WriteEvent, limits: KvLimits) -> Tree[Origin]:
    if cell is None:
        return None
    if not isinstance(cell, Mapping):
        raise _Malformed
    found: list[Leaf[Origin]] = []
    for name, row in cell.items():
        replica = _text(name, REPLICA_BYTES_MAX)
        stamp, event = _row(row, 2)
        found.append(Leaf(name_digest(replica), _origin(replica, _written(stamp), event, lww, limits)))
    return grow(found)


def _origin(replica: str, stamp: int, cell: object, lww: WriteEvent, limits: KvLimits) -> Origin:
    if cell is None or type(cell) is int:
        return Origin(replica, stamp, None, stamp if cell is None else max(stamp, _whole(cell)))
    if cell is True:
        if lww is NO_EVENT or lww.utime != stamp:
            raise _Malformed
        return Origin(replica, stamp, lww)
    value, tag, expire = _row(cell, 3)
    return Origin(replica, stamp, _event(value, _tag(tag), stamp, expire, limits))


def _elements(tag: Tag, cell: object, limits: KvLimits) -> Tree[Element]:
    if not isinstance(cell, Mapping):
        raise _Malformed
    read = _READERS[tag]
    return grow([read(name, row, limits) for name, row in cell.items()])


def _field(name: object, row: object, limits: KvLimits) -> Leaf[Element]:
    value, stamp = _row(row, 2)
    _bounded(value, limits)
    text = _text(name, limits.field_bytes)
    return Leaf(name_digest(text), Field(text, cast("Cell", value), _stamp(stamp)))


def _member(name: object, row: object, limits: KvLimits) -> Leaf[Element]:
    value, add, rem = _row(row, 3)
    return Leaf(_digest(name, value, limits), Member(cast("Cell", value), _stamp(add), _stamp(rem)))


def _ranked(name: object, row: object, limits: KvLimits) -> Leaf[Element]:
    value, score, add, rem = _row(row, 4)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _Malformed
    ranked = Ranked(cast("Cell", value), float(score) + 0.0, _stamp(add), _stamp(rem))
    return Leaf(_digest(name, value, limits), ranked)


def _column(name: object, row: object, limits: KvLimits) -> Leaf[Element]:
    del limits  # a replica id has its own bound
    pos, neg = _row(row, 2)
    replica = _text(name, REPLICA_BYTES_MAX + len(RESET))
    # What a delete here would name after it must be readable: a reset of a reset, or of a longer id, is none.
    _text(replica.removeprefix(RESET), REPLICA_BYTES_MAX)
    if replica.startswith(RESET + RESET):
        raise _Malformed
    return Leaf(name_digest(replica), Column(replica, _whole(pos), _whole(neg)))


_READERS: Final[Mapping[Tag, Callable[[object, object, KvLimits], Leaf[Element]]]] = {
    Tag.HASH: _field,
    Tag.SET: _member,
    Tag.ZSET: _ranked,
    Tag.COUNTER: _column,
}


def _digest(name: object, value: object, limits: KvLimits) -> bytes:
    _bounded(value, limits)
    if not isinstance(name, bytes) or name != digest_of(cast("Cell", value)):
        raise _Malformed
    return name


def _row(cell: object, size: int) -> tuple[object, ...]:
    if not isinstance(cell, tuple) or len(cell) != size:
        raise _Malformed
    return cell


def _tag(cell: object) -> Tag | None:
    if cell is None:
        return None
    if _whole(cell) > Tag.COUNTER:
        raise _Malformed
    return Tag(_whole(cell))


def _stamp(cell: object) -> int:
    stamp = _whole(cell)
    assert stamp <= STAMP_MAX
    return stamp


def _written(cell: object) -> int:
    """The stamp of what somebody wrote. 0 is before every write: what is there at 0 would lose to its own absence."""
    stamp = _stamp(cell)
    if stamp == 0:
        raise _Malformed
    return stamp


def _expire(cell: object) -> int | None:
    return None if cell is None else _whole(cell)


def _whole(cell: object) -> int:
    if isinstance(cell, bool) or not isinstance(cell, int) or not 0 <= cell <= INT_MAX:
        raise _Malformed
    return cell


def _text(cell: object, bytes_max: int) -> str:
    if not isinstance(cell, str) or not cell or len(encode_cell(cell)) > 2 * bytes_max + 2:
        raise _Malformed
    if len(cell.encode()) > bytes_max:
        raise _Malformed
    return cell


def _bounded(cell: object, limits: KvLimits) -> None:
    if value_size(cast("Cell", cell)) > limits.value_bytes:
        raise _Malformed


def value_size(value: Cell) -> int:
    """What a value counts against its limit: the bytes of text or bytes, the canonical bytes of anything else.

    Raises:
        Rejected: it is no cell, or nested too deep.
    """
    if isinstance(value, bytes):
        return len(value)
    encoded = encode_cell(value, depth_max=VALUE_DEPTH_MAX)
    return len(value.encode()) if isinstance(value, str) else len(encoded)
