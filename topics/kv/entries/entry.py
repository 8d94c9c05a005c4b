"""What is kept of one key: its normal form, a product of independent joins (replication 3.4).

The pairwise rule of the seed throws a structure away when a newer value of another type meets it, and a later merge
would have needed it. So each kind has its own lane here and nothing is thrown away by meeting something newer:

    lww       the greatest of all values, lists and deletes
    lanes     hash, set, sorted set, counter: each with the stamp of its last write and its elements
    expiry    when the structures expire, as the last write of one said
    origins   for each replica, the last value, list or delete it wrote, until another write has seen it
    absent    when a write last found nothing here: deletes before it were of something else

What a reader sees is the lane written last. A write removes what it has seen in the other lanes, element by element;
what is still alive in a lane or an origin that is not visible was therefore written concurrently: a conflict, readable.

An entry is immutable. `newest` is the highest stamp in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import attrs

from topics.codec.cell import Cell, encode_cell
from topics.kv.entries.tree import Tree, items

NEVER: Final = float("inf")


class Tag(IntEnum):
    """The type tags of the seed."""

    VALUE = 0
    HASH = 1
    SET = 2
    ZSET = 3
    LIST = 4
    COUNTER = 5


TOMBSTONE_RANK: Final = 6
LANE_TAGS: Final = (Tag.HASH, Tag.SET, Tag.ZSET, Tag.COUNTER)
LANE_OF: Final = {tag: i for i, tag in enumerate(LANE_TAGS)}


class WriteEvent(NamedTuple):
    """A value, a list or a delete (`tag` None), and when it expires."""

    utime: int
    tag: Tag | None
    value: Cell
    expire: int | None

    @property
    def rank(self) -> int:
        return TOMBSTONE_RANK if self.tag is None else self.tag


class Field(NamedTuple):
    """A field of a hash; `value` None is its tombstone."""

    name: str
    value: Cell
    stamp: int


class Member(NamedTuple):
    """A member of a set: there iff `add > rem`."""

    value: Cell
    add: int
    rem: int


class Ranked(NamedTuple):
    """A member of a sorted set; the score is that of the add."""

    value: Cell
    score: float
    add: int
    rem: int


class Column(NamedTuple):
    """What one replica has added to a counter and taken from it."""

    replica: str
    pos: int
    neg: int


class Origin(NamedTuple):
    """The last event one replica wrote at `stamp`; None once another write has seen it, which was at `seen`."""

    replica: str
    stamp: int
    event: WriteEvent | None
    seen: int = 0


Element: TypeAlias = Field | Member | Ranked | Column


class TypeLane(NamedTuple):
    """One structure: the stamp of its last write (0: never written) and its elements."""

    utime: int
    tree: Tree[Element]


class Expiry(NamedTuple):
    """When the structures of the key expire (None: never), as said at `etime`."""

    etime: int
    expire: int | None


NO_EVENT: Final = WriteEvent(0, None, None, None)
NO_LANE: Final = TypeLane(0, None)
NO_LANES: Final = (NO_LANE, NO_LANE, NO_LANE, NO_LANE)
NO_EXPIRY: Final = Expiry(0, None)
assert len(NO_LANES) == len(LANE_TAGS)


@attrs.frozen(eq=False)
class KvEntry:
    """The normal form of one key. Two entries are the same iff their cells are (`wire`)."""

    lww: WriteEvent = NO_EVENT
    lanes: tuple[TypeLane, ...] = NO_LANES
    expiry: Expiry = NO_EXPIRY
    origins: Tree[Origin] = None
    newest: int = 0
    absent: int = 0

    def __attrs_post_init__(self) -> None:
        assert len(self.lanes) == len(LANE_TAGS)
        assert self.newest >= max(self.lww.utime, self.expiry.etime, self.absent)


ZERO: Final = KvEntry()


class View(NamedTuple):
    """The visible entry: what the first four slots say. A structure's elements are in `tree`."""

    tag: Tag | None
    utime: int
    expire: int | None
    value: Cell = None
    tree: Tree[Element] = None

    def is_live(self, now_ms: int) -> bool:
        """Not deleted, and not expired: exactly at its stamp it is (replication 3.3)."""
        assert self.tag is not None or self.expire is None  # a delete does not expire
        return self.tag is not None and (self.expire is None or now_ms < self.expire)


def visible(entry: KvEntry) -> View:
    """The lane with the greatest (utime, rank)."""
    lww = entry.lww
    best: TypeLane | None = None
    best_tag = None
    highest = (lww.utime, lww.rank)
    for tag, lane in zip(LANE_TAGS, entry.lanes, strict=True):
        if lane.utime and (lane.utime, tag) > highest:
            best, best_tag, highest = lane, tag, (lane.utime, tag)
    assert highest >= (lww.utime, lww.rank)
    if best is None:
        return View(lww.tag, lww.utime, lww.expire, value=lww.value)
    return View(best_tag, best.utime, entry.expiry.expire, tree=best.tree)


def is_alive(element: Element) -> bool:
    """Whether a reader of the structure sees the element. A counter's columns always count."""
    if isinstance(element, Field):
        return element.value is not None
    if isinstance(element, Member | Ranked):
        return element.add > element.rem
    return True


def alive(tree: Tree[Element]) -> Iterator[Element]:
    """The elements a reader sees, ascending by digest."""
    return (element for element in items(tree) if is_alive(element))


def newest_in(element: Element) -> int:
    """The highest stamp in an element; a counter's columns have none."""
    if isinstance(element, Field):
        return element.stamp
    if isinstance(element, Member | Ranked):
        return max(element.add, element.rem)
    return 0


def newest_of(
    lww: WriteEvent, lanes: tuple[TypeLane, ...], expiry: Expiry, origins: Tree[Origin], absent: int
) -> int:
    """The highest stamp of all parts."""
    found = max(lww.utime, expiry.etime, absent)
    for lane in lanes:
        if lane is not NO_LANE:
            found = max(found, lane.utime, *map(newest_in, items(lane.tree)))
    assert found >= lww.utime
    for origin in items(origins):
        found = max(found, origin.stamp, origin.seen)
    return found


def make_entry(
    lww: WriteEvent = NO_EVENT,
    lanes: tuple[TypeLane, ...] = NO_LANES,
    expiry: Expiry = NO_EXPIRY,
    origins: Tree[Origin] = None,
    absent: int = 0,
) -> KvEntry:
    """An entry of these parts, its newest stamp looked for."""
    return KvEntry(lww, lanes, expiry, origins, newest_of(lww, lanes, expiry, origins, absent), absent)


def total_of(tree: Tree[Element]) -> int:
    """A counter's total."""
    return sum(column.pos - column.neg for column in items(tree) if isinstance(column, Column))


def event_order(event: WriteEvent) -> tuple[int, int, bytes, float]:
    """What decides between two events: the later, then the higher rank, the larger value, the later expiry."""
    assert event.tag not in LANE_OF
    expire = NEVER if event.expire is None else event.expire
    return event.utime, event.rank, encode_cell(event.value), expire
