"""Places of columns that are read and written together: in one piece where they lie side by side.

A group is a list of places in any order, or a `range`: a place alone is one. Most jobs come, are handed out and are
done in the order in which they were put, so most groups are ranges, and one of a hundred costs what one of a few does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Group: TypeAlias = "range | list[int]"
Column: TypeAlias = "array[int] | bytearray"


def grouped(places: Sequence[int]) -> Group:
    """The same places: a range if each is one above the one before."""
    if isinstance(places, range):
        return places
    count = len(places)
    if count == 1:
        return range(places[0], places[0] + 1)
    if count and places[-1] - places[0] == count - 1:
        side_by_side = range(places[0], places[-1] + 1)
        if list(places) == list(side_by_side):
            return side_by_side
    return list(places)


def values_at(column: Column, group: Group) -> Sequence[int]:
    """What stands there."""
    if isinstance(group, range):
        return column[group.start : group.stop]
    return [column[place] for place in group]


def scatter(column: Column, group: Group, values: array[int] | bytes) -> None:
    """Put these there, of the column's type."""
    if isinstance(group, range):
        column[group.start : group.stop] = values  # type: ignore[assignment]  # as the caller says
    else:
        for place, value in zip(group, values, strict=True):
            column[place] = value


def fill(column: Column, group: Group, value: int) -> None:
    """Put the same everywhere."""
    if not isinstance(group, range):
        for place in group:
            column[place] = value
    elif len(group) == 1:
        column[group.start] = value
    elif isinstance(column, bytearray):
        column[group.start : group.stop] = bytes((value,)) * len(group)
    else:
        column[group.start : group.stop] = array(column.typecode, (value,)) * len(group)


def clear(columns: Iterable[Column], group: Group) -> None:
    """Put 0 everywhere in all of them."""
    if len(group) == 1:
        place = group[0]
        for column in columns:
            column[place] = 0
    else:
        for column in columns:
            fill(column, group, 0)


def grown(
    column: array[int] | None, typecode: str, before: int, more: list[int] | None, count: int
) -> array[int] | None:
    """An optional column of `before` slots with `count` more; None if neither those nor these need it."""
    if column is None:
        if more is None:
            return None
        column = array(typecode, bytes(before * array(typecode).itemsize))
    column.fromlist([0] * count if more is None else more)
    return column
