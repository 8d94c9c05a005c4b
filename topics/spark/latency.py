"""How long writes took from their producer to their acknowledgement, as a client's own log tells it (spark 4)."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs

from topics.audit.acks import Acks

# Upper bounds in ms: 1, 2, 5 of each power of ten from a hundredth of a ms to 500 s.
BOUNDS: Final = tuple(first * 10.0**power for power in range(-2, 6) for first in (1, 2, 5))


@attrs.frozen(kw_only=True)
class Latency:
    """Of one topic, in ms: a quantile is the shortest that at least so many hundredths took no longer than. `fell`: how
    many were left out, because the client's clock was set back meanwhile.
    """

    topic: str
    count: int
    p50: float
    p90: float
    p99: float
    longest: float
    fell: int


@attrs.frozen(kw_only=True)
class Latencies:
    """`histogram`: how many of all took so long, from the shortest to the longest that there is."""

    file: str
    topics: Sequence[Latency]
    histogram: Mapping[str, int]


def latencies(acks: Acks, topics: Collection[str]) -> Latencies:
    """Of the acknowledgements that are of these topics and have both times."""
    wanted = {
        topic: array("d", sorted(acks.took_ms[topic])) for topic in sorted(topics) if topic in acks.took_ms
    }
    found = [
        Latency(
            topic=topic,
            count=len(took),
            p50=_quantile(took, 50),
            p90=_quantile(took, 90),
            p99=_quantile(took, 99),
            longest=round(took[-1], 3),
            fell=acks.fell.get(topic, 0),
        )
        for topic, took in wanted.items()
    ]
    return Latencies(file=acks.file, topics=found, histogram=_histogram(wanted.values()))


def _quantile(took: array[float], hundredths: int) -> float:
    return round(took[math.ceil(len(took) * hundredths / 100) - 1], 3)


def _histogram(columns: Collection[array[float]]) -> dict[str, int]:
    counts = [0] * (len(BOUNDS) + 1)
    for took in columns:
        before = 0
        for bucket, bound in enumerate((*BOUNDS, math.inf)):
            behind = bisect_right(took, bound)
            counts[bucket] += behind - before
            before = behind
    filled = [bucket for bucket, count in enumerate(counts) if count]
    if not filled:
        return {}
    return {_name(bucket): counts[bucket] for bucket in range(filled[0], filled[-1] + 1)}


def _name(bucket: int) -> str:
    return f"up to {BOUNDS[bucket]:g} ms" if bucket < len(BOUNDS) else f"above {BOUNDS[-1]:g} ms"
