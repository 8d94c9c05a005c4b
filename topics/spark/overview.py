"""What is in topics, by Spark, as a page of figures; and their records as Parquet (spark 4).

The records know neither who reads them nor how long their producer waited: lags come from the checkpoints of streams,
latency, from producer to acknowledgement, from a client's own log of these, where it is given.

The records are read once, so that all figures are of the same ones; what the figures need of them is kept by Spark
until they are made, in memory and then on disk.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from topics.audit.checks.acks import Acks
from topics.audit.report.html_page import bars, document, table
from topics.spark.lags import ConsumerLag, Lag, Lags
from topics.spark.options import read_options
from topics.spark.place import TopicOffsets, matching
from topics.spark.scan import place_of
from topics.spark.session import losses, reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

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


TOP: Final = 15
HOURS_MAX: Final = 48
_BLUE: Final = "#3367a8"
_RED: Final = "#b3261e"


@attrs.frozen(kw_only=True)
class TopicFigures:
    """One topic. `per_second`: over the time from its first record to its last."""

    topic: str
    records: int
    bytes: int
    first: str
    last: str
    per_second: float


@attrs.frozen(kw_only=True)
class Overview:
    """Of the records of a frame. `zone`: of all times. `hours`: records by hour, the last ones. `fresh`: checkpoints of
    streams that have not committed a batch. `lags`, `latency`: None if there was nothing to tell them from.
    """

    zone: str
    topics: Sequence[TopicFigures]
    hours: Mapping[str, int]
    keys: Mapping[str, int]
    tags: Mapping[str, int]
    losses: Sequence[tuple[str, int, int, str]]
    lags: Sequence[Lag] | None
    fresh: Sequence[str]
    latency: Latencies | None


def overview(df: DataFrame, *, consumers: Sequence[ConsumerLag] = (), acks: Acks | None = None) -> Overview:
    """The figures of a frame that was read from topics, read once. `consumers`: whose lags are told.

    Raises:
        Rejected: a consumer reads none of these topics.
    """
    from pyspark.sql import functions as f

    there = topics_of(df) if consumers or acks is not None else {}
    lags = Lags(consumers, there)
    size = f.coalesce(f.length("value"), f.lit(0)) + f.coalesce(f.length("key"), f.lit(0))
    key = f.col("key").cast("string").alias("key")
    kept = df.select("topic", "offset", "timestamp", key, "tag", size.alias("size")).persist()
    try:
        counted = _by_topic(kept, lags)
        return Overview(
            zone=df.sparkSession.conf.get("spark.sql.session.timeZone") or "",
            topics=[_figures(row) for row in counted],
            hours=_by_hour(kept),
            keys=_top(kept, "key"),
            tags=_top(kept, "tag"),
            losses=[(row["topic"], row["first"], row["last"], row["reason"]) for row in losses(df).collect()],
            lags=lags.of(counted) if consumers else None,
            fresh=[one.checkpoint for one in consumers if one.batch is None],
            latency=None if acks is None else latencies(acks, there.keys()),
        )
    finally:
        kept.unpersist()


def overview_page(title: str, found: Overview) -> bytes:
    """The figures as one HTML page that needs no network."""
    head = ("topic", "records", "bytes", "first", "last", "records a second")
    rows = [attrs.astuple(one) for one in found.topics]
    sizes = {one.topic: one.bytes for one in found.topics}
    lost = (
        table(("topic", "first", "last", "reason"), found.losses)
        if found.losses
        else "<p>Nothing is lost.</p>"
    )
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<h2>Topics</h2><p>Times are of the zone {escape(found.zone)}.</p>" + table(head, rows),
        "<h2>Bytes by topic</h2>" + bars(sizes, _BLUE),
        "<h2>Records by hour</h2>" + bars(dict(found.hours), _BLUE),
        "<h2>How far behind streams are</h2>" + _lags(found),
        "<h2>From produce to acknowledgement</h2>" + _latency(found.latency),
        "<h2>Most frequent keys</h2>" + bars(dict(found.keys), _BLUE),
        "<h2>Most frequent tags</h2>" + bars(dict(found.tags), _BLUE),
        "<h2>Lost</h2>" + lost + bars(_lost_by_topic(found), _RED),
    ]
    return document(title, parts)


def json_lines(found: Overview) -> Iterator[bytes]:
    """The figures for machines: a line a topic that has records, then one with all that the page says besides."""
    for one in found.topics:
        yield msgspec.json.encode(attrs.asdict(one)) + b"\n"
    rest = {
        "zone": found.zone,
        "topics": len(found.topics),
        "records": sum(one.records for one in found.topics),
        "hours": found.hours,
        "keys": found.keys,
        "tags": found.tags,
        "losses": [loss_fields(loss) for loss in found.losses],
        "lags": None if found.lags is None else [attrs.asdict(one) for one in found.lags],
        "no_batch_committed": found.fresh,
        "latency": None if found.latency is None else attrs.asdict(found.latency),
    }
    yield msgspec.json.encode(rest) + b"\n"


def loss_fields(loss: tuple[str, int, int, str]) -> dict[str, object]:
    """A lost range as the row it is in `losses(df)`."""
    return dict(zip(("topic", "first", "last", "reason"), loss, strict=True))


def export(df: DataFrame, out: str) -> None:
    """Write the records as Parquet, a folder a topic and day, into a folder that is not there yet."""
    from pyspark.sql import functions as f

    days = df.withColumn("day", f.to_date("timestamp"))
    days.write.mode("error").partitionBy("topic", "day").parquet(out)


def topics_of(df: DataFrame) -> dict[str, TopicOffsets]:
    """The topics that a frame was read from, as they are now."""
    found: dict[str, TopicOffsets] = {}
    for given in reads(df):
        options = read_options(given)
        found |= matching(place_of(options).look(), options)
    return found


def _by_topic(kept: DataFrame, lags: Lags) -> Sequence[Row]:
    """A row a topic. Spark writes the times: a driver that got them would take them to a zone of its own."""
    from pyspark.sql import functions as f

    first, last = f.min("timestamp"), f.max("timestamp")
    by_topic = kept.groupBy("topic").agg(
        f.count("*").alias("records"),
        f.sum("size").alias("bytes"),
        f.date_format(first, "yyyy-MM-dd HH:mm:ss").alias("first"),
        f.date_format(last, "yyyy-MM-dd HH:mm:ss").alias("last"),
        f.unix_millis(first).alias("first_ms"),
        f.unix_millis(last).alias("last_ms"),
        *lags.columns(),
    )
    return by_topic.orderBy("topic").collect()


def _figures(row: Row) -> TopicFigures:
    seconds = max(1, row["last_ms"] - row["first_ms"]) / 1000
    return TopicFigures(
        topic=row["topic"],
        records=row["records"],
        bytes=row["bytes"],
        first=row["first"],
        last=row["last"],
        per_second=round(row["records"] / seconds, 3),
    )


def _by_hour(kept: DataFrame) -> Mapping[str, int]:
    from pyspark.sql import functions as f

    hour = f.date_format(f.date_trunc("hour", "timestamp"), "yyyy-MM-dd HH:00")
    rows = kept.groupBy(hour.alias("name")).count().orderBy(f.desc("name")).limit(HOURS_MAX).collect()
    return {row["name"]: row["count"] for row in reversed(rows)}


def _top(kept: DataFrame, column: str) -> Mapping[str, int]:
    from pyspark.sql import functions as f

    named = kept.select(f.col(column).alias("name")).where("name is not null")
    rows = named.groupBy("name").count().orderBy(f.desc("count"), "name").limit(TOP).collect()
    return {row["name"]: row["count"] for row in rows}


def _lost_by_topic(found: Overview) -> dict[str, int]:
    sums: dict[str, int] = {}
    for topic, first, last, _ in found.losses:
        sums[topic] = sums.get(topic, 0) + last - first + 1
    return sums


def _lags(found: Overview) -> str:
    if found.lags is None:
        return "<p>To see it, give --checkpoint PATH for each stream that reads these topics.</p>"
    head = ("checkpoint", "topic", "next seq", "seqs behind", "records behind", "seconds behind")
    waiting: dict[str, int] = {}
    for one in found.lags:
        name = same = f"{one.topic} < {_base(one.checkpoint)}"
        number = 1
        while name in waiting:  # the folders of most checkpoints are called alike
            number += 1
            name = f"{same} ({number})"
        waiting[name] = one.records
    fresh = [f"<p>{escape(path)}: no batch is committed yet.</p>" for path in found.fresh]
    return table(head, map(attrs.astuple, found.lags)) + bars(waiting, _BLUE) + "".join(fresh)


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _latency(found: Latencies | None) -> str:
    if found is None:
        how = "give --acks FILE, a client's log of acknowledgements with sent_ms and acked_ms"
        return f"<p>To see it, {how}.</p>"
    if not found.topics:
        return f"<p>{escape(found.file)} has no record of these topics with sent_ms and acked_ms.</p>"
    head = ("topic", "acknowledged", "p50 ms", "p90 ms", "p99 ms", "longest ms", "clock set back")
    return table(head, map(attrs.astuple, found.topics)) + bars(dict(found.histogram), _BLUE)
