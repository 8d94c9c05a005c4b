"""Two ways to merge: the literal rule of the seed on plain entries, and the join that converges (replication 3.2, 3.4).

`merge_cad` is the text of the seed, first operand winning ties. It is neither commutative (ties) nor associative (a
type conflict discards a structure), so nothing that replicates calls it; it is here to be compared with.

`join` is lane by lane, so its laws are those of max and of "the greatest wins". Stamps decide; where they tie, the
larger canonical bytes do, a field's tombstone and a delete being the largest, and the larger score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from topics.codec.cell import Cell, encode_cell
from topics.kv.entries.entry import (
    NEVER,
    NO_LANE,
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
    event_order,
)
from topics.kv.entries.tree import unite

# --- the join of the normal form


def join(own: KvEntry, other: KvEntry) -> KvEntry:
    """The least entry above both. The very `own` if the other one says nothing new."""
    if own is other:
        return own
    lww = join_events(own.lww, other.lww)
    lanes = _join_lanes(own.lanes, other.lanes)
    expiry = join_expiries(own.expiry, other.expiry)
    origins = unite(own.origins, other.origins, join_origins)
    absent = max(own.absent, other.absent)
    for side in (own, other):
        if (
            lww is side.lww
            and lanes is side.lanes
            and expiry is side.expiry
            and origins is side.origins
            and absent == side.absent
        ):
            return side
    assert lww.utime >= max(own.lww.utime, other.lww.utime)
    assert expiry.etime >= max(own.expiry.etime, other.expiry.etime)
    return KvEntry(lww, lanes, expiry, origins, max(own.newest, other.newest), absent)


def join_events(own: WriteEvent, other: WriteEvent) -> WriteEvent:
    """The greater event; encoded only where stamp and rank tie."""
    if own is other:
        return own
    left, right = (own.utime, own.rank), (other.utime, other.rank)
    if left == right:
        left, right = event_order(own), event_order(other)  # type: ignore[assignment]  # longer orders of one kind
    return own if left >= right else other


def join_expiries(own: Expiry, other: Expiry) -> Expiry:
    """What was said last; of two at once the later expiry, never being the latest."""
    if own.etime != other.etime:
        return own if own.etime > other.etime else other
    left = NEVER if own.expire is None else own.expire
    right = NEVER if other.expire is None else other.expire
    return own if left >= right else other


def join_fields(own: Field, other: Field) -> Field:
    assert own.name == other.name
    if own.stamp != other.stamp:
        return own if own.stamp > other.stamp else other
    return own if _value_order(own.value) >= _value_order(other.value) else other


def join_members(own: Member, other: Member) -> Member:
    add, rem = max(own.add, other.add), max(own.rem, other.rem)
    for side in (own, other):
        if (add, rem) == (side.add, side.rem):
            return side
    assert add >= own.add
    assert rem >= own.rem
    return Member(own.value, add, rem)


def join_ranked(own: Ranked, other: Ranked) -> Ranked:
    add, rem = max(own.add, other.add), max(own.rem, other.rem)
    if own.add == other.add:
        score = max(own.score, other.score)
    else:
        score = own.score if own.add > other.add else other.score
    for side in (own, other):
        if (score, add, rem) == (side.score, side.add, side.rem):
            return side
    assert score in (own.score, other.score)
    return Ranked(own.value, score, add, rem)


def join_columns(own: Column, other: Column) -> Column:
    assert own.replica == other.replica
    pos, neg = max(own.pos, other.pos), max(own.neg, other.neg)
    for side in (own, other):
        if (pos, neg) == (side.pos, side.neg):
            return side
    return Column(own.replica, pos, neg)


def join_origins(own: Origin, other: Origin) -> Origin:
    """The later one; of one event, that it has been seen, and the latest time it was."""
    assert own.replica == other.replica
    if own.stamp != other.stamp:
        return own if own.stamp > other.stamp else other
    if own.seen != other.seen:
        return own if own.seen > other.seen else other
    if own.event is None or other.event is None:
        return own  # seen by the same write
    return own if event_order(own.event) >= event_order(other.event) else other


LANE_JOINS: Final = cast(
    "tuple[Callable[[Element, Element], Element], ...]",
    (join_fields, join_members, join_ranked, join_columns),
)


def _join_lanes(own: tuple[TypeLane, ...], other: tuple[TypeLane, ...]) -> tuple[TypeLane, ...]:
    if own is other:
        return own
    joined = tuple(
        _join_lane(left, right, step) for left, right, step in zip(own, other, LANE_JOINS, strict=True)
    )
    for side in (own, other):
        if all(lane is was for lane, was in zip(joined, side, strict=True)):
            return side
    return joined


def _join_lane(own: TypeLane, other: TypeLane, step: Callable[[Element, Element], Element]) -> TypeLane:
    if own is other or other is NO_LANE:
        return own
    if own is NO_LANE:
        return other
    utime, tree = max(own.utime, other.utime), unite(own.tree, other.tree, step)
    for side in (own, other):
        if utime == side.utime and tree is side.tree:
            return side
    return TypeLane(utime, tree)


def _value_order(value: Cell) -> tuple[bool, bytes]:
    return value is None, encode_cell(value)


# --- the literal rule

Plain: TypeAlias = "tuple[Cell, int | None, int, int | None]"  # value, type, utime, expire

PLAIN_ZERO: Final[Plain] = (None, None, 0, None)
_STRUCTURES: Final = (Tag.HASH, Tag.SET, Tag.ZSET, Tag.COUNTER)


def merge_cad(
    own: Plain | None, other: Plain | None, check_foreign: Callable[[object], bool]
) -> Plain | None:
    """The rules of the seed in order, on entries of four slots; `check_foreign` judges what fills an empty one."""
    if other is None:
        return own
    if own is None:
        return other if check_foreign(other) else PLAIN_ZERO
    assert len(own) == len(other) == len(PLAIN_ZERO)
    if encode_cell(own) == encode_cell(other):
        return own
    if own[1] == other[1] and own[1] in _STRUCTURES:
        left, right = own[0], other[0]
        assert isinstance(left, Mapping)
        assert isinstance(right, Mapping)
        merged = {**left, **right}
        for name in left:
            if name in right:
                merged[name] = _CAD_ELEMENT[Tag(own[1])](left[name], right[name])
        expire = None if own[3] is None or other[3] is None else max(own[3], other[3])
        return merged, own[1], max(own[2], other[2]), expire
    return own if own[2] >= other[2] else other


def _cad_field(own: Cell, other: Cell) -> Cell:
    left, right = cast("tuple[Cell, int]", own), cast("tuple[Cell, int]", other)
    return left if left[1] >= right[1] else right


def _cad_member(own: Cell, other: Cell) -> Cell:
    left, right = cast("tuple[Cell, int, int]", own), cast("tuple[Cell, int, int]", other)
    return left[0], max(left[1], right[1]), max(left[2], right[2])


def _cad_ranked(own: Cell, other: Cell) -> Cell:
    left = cast("tuple[Cell, float, int, int]", own)
    right = cast("tuple[Cell, float, int, int]", other)
    added = left if left[2] >= right[2] else right
    return added[0], added[1], max(left[2], right[2]), max(left[3], right[3])


def _cad_column(own: Cell, other: Cell) -> Cell:
    left, right = cast("tuple[int, int]", own), cast("tuple[int, int]", other)
    return max(left[0], right[0]), max(left[1], right[1])


_CAD_ELEMENT: Final[Mapping[Tag, Callable[[Cell, Cell], Cell]]] = {
    Tag.HASH: _cad_field,
    Tag.SET: _cad_member,
    Tag.ZSET: _cad_ranked,
    Tag.COUNTER: _cad_column,
}
