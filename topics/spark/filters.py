"""Filters that Spark pushes down, as bounds on topic, offset and timestamp.

A filter on topic or offset is kept exactly, so Spark need not look again. A filter on the timestamp narrows what is
read and goes back to Spark, which has the last word on what two times compare like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from topics.spark.place import ReadBounds

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def pushed(filters: Iterable[Filter]) -> tuple[ReadBounds, Sequence[Filter]]:
    """The bounds that all of the filters together set, and those that Spark must apply itself."""
    bounds, rest = ReadBounds(), []
    for each in filters:
        narrower = _narrowed(bounds, each)
        if narrower is None:
            rest.append(each)
            continue
        bounds = narrower
        if _column(each) == "timestamp":
            rest.append(each)
    return bounds, rest


def _column(each: Filter) -> str | None:
    path = getattr(each, "attribute", None)
    return path[0] if isinstance(path, tuple) and len(path) == 1 else None


def _narrowed(bounds: ReadBounds, each: Filter) -> ReadBounds | None:
    """The bounds with this filter, None if they cannot say it."""
    column, value = _column(each), getattr(each, "value", None)
    if value is None:
        return None
    if column == "topic":
        return _of_topic(bounds, each, value)
    if column == "offset" and type(value) is int:
        return _of_offset(bounds, each, value)
    if column == "timestamp" and isinstance(value, datetime):
        return _of_time(bounds, each, value)
    return None


def _of_topic(bounds: ReadBounds, each: Filter, value: object) -> ReadBounds | None:
    if isinstance(each, EqualTo | EqualNullSafe):
        named = frozenset([value])
    elif isinstance(each, In) and isinstance(value, Sequence):
        named = frozenset(value)
    else:
        return None
    names = frozenset(name for name in named if isinstance(name, str))
    return attrs.evolve(bounds, topics=names if bounds.topics is None else names & bounds.topics)


def _of_offset(bounds: ReadBounds, each: Filter, value: int) -> ReadBounds | None:
    match each:
        case EqualTo() | EqualNullSafe():
            start, stop = value, value + 1
        case GreaterThan():
            start, stop = value + 1, bounds.seq_stop
        case GreaterThanOrEqual():
            start, stop = value, bounds.seq_stop
        case LessThan():
            start, stop = 1, value
        case LessThanOrEqual():
            start, stop = 1, value + 1
        case _:
            return None
    return attrs.evolve(bounds, seq_start=max(bounds.seq_start, start), seq_stop=min(bounds.seq_stop, stop))


def _of_time(bounds: ReadBounds, each: Filter, value: datetime) -> ReadBounds | None:
    """To the millisecond around it: Spark's own comparison follows."""
    ms = ((value if value.tzinfo is not None else value.astimezone(UTC)) - EPOCH).total_seconds() * 1000
    least, most = max(0, math.floor(ms) - 1), max(0, math.ceil(ms) + 1)
    before = most if bounds.ts_ms_max is None else min(most, bounds.ts_ms_max)
    match each:
        case EqualTo() | EqualNullSafe():
            return attrs.evolve(bounds, ts_ms_min=max(least, bounds.ts_ms_min), ts_ms_max=before)
        case GreaterThan() | GreaterThanOrEqual():
            return attrs.evolve(bounds, ts_ms_min=max(least, bounds.ts_ms_min))
        case LessThan() | LessThanOrEqual():
            return attrs.evolve(bounds, ts_ms_max=before)
        case _:
            return None
