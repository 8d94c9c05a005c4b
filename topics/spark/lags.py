"""How far behind the head the streams are that read topics: the places that their checkpoints hold (spark 4).

Spark writes a file a batch into a checkpoint's `offsets` before it reads the batch, and one into `commits` when the
sink has it all. So where a stream is, say the offsets of the last batch that is in `commits`, whether the stream runs
or not. A file of offsets has a line of version, one of settings and one for each source; what is no offset of ours (see
`spark.stream`) is of another source, and passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from topics.kernel.errors import invalid
from topics.kernel.ports import Disk
from topics.spark.directory import open_disk
from topics.spark.options import located
from topics.spark.place import TopicOffsets

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

VERSION: Final = b"v1"
_HEAD_LINES: Final = 2  # the version and the settings


class StreamPosition(msgspec.Struct, forbid_unknown_fields=True):
    """Where a stream is in one instance of a topic: the first seq that is still to come."""

    epoch: int
    next: int


@attrs.frozen(kw_only=True)
class ConsumerLag:
    """One stream by its checkpoint. `batch`: the last that it committed; None, and no places, before the first."""

    checkpoint: str
    batch: int | None
    places: Mapping[str, StreamPosition]


@attrs.frozen(kw_only=True)
class Lag:
    """One stream and one topic. `next`: the seq that it reads next. `seqs`: from there to the head; `records`: those of
    them that are still there. `seconds`: from the last record that it has read to the last one there is.
    """

    checkpoint: str
    topic: str
    next: int
    seqs: int
    records: int
    seconds: float


def read_checkpoint(path: str) -> ConsumerLag:
    """Where the stream with this checkpoint is; a folder or an fsspec URL.

    Raises:
        Rejected: it is no checkpoint, one of a form that is not known, or of a stream that reads no topics.
        OSError: it cannot be read.
    """
    disk = open_disk(located(path))
    if not disk.names("offsets"):
        raise invalid("checkpoint", f"{path} is no checkpoint of a stream: it has no offsets")
    batches = [int(name) for name in disk.names("commits") if name.isdecimal()]
    if not batches:
        return ConsumerLag(checkpoint=path, batch=None, places={})
    batch = max(batches)
    places: dict[str, StreamPosition] = {}
    for source in _sources(disk, path, batch):
        for topic, at in source.items():
            held = places.get(topic)
            if held is None or (at.epoch, at.next) < (held.epoch, held.next):
                places[topic] = at
    if not places:
        raise invalid("checkpoint", f"{path} is of a stream that reads no topics")
    return ConsumerLag(checkpoint=path, batch=batch, places=places)


def _sources(disk: Disk, path: str, batch: int) -> Iterator[Mapping[str, StreamPosition]]:
    """The offsets of each source that is ours."""
    name = f"offsets/{batch}"
    size = disk.size(name)
    if size is None:
        raise invalid("checkpoint", f"{path}: batch {batch} is committed, and {name} is not there")
    lines = disk.read(name, 0, size).split(b"\n")
    if lines[0].strip() != VERSION:
        version = lines[0][:20].decode(errors="replace")
        raise invalid("checkpoint", f"{path}: {name} is of version {version!r}; only v1 is known")
    for line in lines[_HEAD_LINES:]:
        try:
            yield msgspec.json.decode(line, type=dict[str, StreamPosition])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # of another source, or - where a source has no offset yet


class Lags:
    """What a query over the records of topics must count for these streams, and what comes of it.

    `topics`: what is there now. A stream that has not heard yet that a topic was made anew begins it at its first seq.
    """

    def __init__(self, consumers: Sequence[ConsumerLag], topics: Mapping[str, TopicOffsets]) -> None:
        self._topics = topics
        self._places = [_places(consumer, topics) for consumer in consumers]
        self._checkpoints = [consumer.checkpoint for consumer in consumers]

    def columns(self) -> list[Column]:
        """Aggregates of a frame of records that is grouped by topic."""
        from pyspark.sql import functions as f

        found = []
        for i, places in enumerate(self._places):
            start = f.lit(None).cast("long")
            for topic, seq in places.items():
                start = f.when(f.col("topic") == topic, f.lit(seq)).otherwise(start)
            waits = f.col("offset") >= start
            found += [
                f.count_if(waits).alias(f"waiting_{i}"),
                f.unix_millis(f.max(f.when(~waits, f.col("timestamp")))).alias(f"read_ms_{i}"),
                f.unix_millis(f.min(f.when(waits, f.col("timestamp")))).alias(f"next_ms_{i}"),
            ]
        return found

    def of(self, rows: Sequence[Row]) -> list[Lag]:
        """From a row a topic, with those columns and `last_ms`, the time of its last record. A topic without a record
        has no row.
        """
        by_topic = {row["topic"]: row for row in rows}
        return [
            self._lag(i, topic, seq, by_topic.get(topic))
            for i, places in enumerate(self._places)
            for topic, seq in places.items()
        ]

    def _lag(self, i: int, topic: str, seq: int, row: Row | None) -> Lag:
        waiting = row[f"waiting_{i}"] if row is not None else 0
        seconds = 0.0
        if row is not None and waiting:
            # What it has read may be gone by now: then from the first that it has not.
            read_ms = row[f"next_ms_{i}"] if row[f"read_ms_{i}"] is None else row[f"read_ms_{i}"]
            seconds = (row["last_ms"] - read_ms) / 1000
        return Lag(
            checkpoint=self._checkpoints[i],
            topic=topic,
            next=seq,
            seqs=max(0, self._topics[topic].stop - seq),
            records=waiting,
            seconds=seconds,
        )


def _places(consumer: ConsumerLag, topics: Mapping[str, TopicOffsets]) -> dict[str, int]:
    """The next seq of each topic that there is.

    Raises:
        Rejected: it has read none of them, so it is hardly the checkpoint that was meant.
    """
    found = {
        topic: at.next if topics[topic].epoch == at.epoch else 1
        for topic, at in sorted(consumer.places.items())
        if topic in topics
    }
    if consumer.places and not found:
        read = ", ".join(sorted(consumer.places))
        raise invalid(
            "checkpoint", f"{consumer.checkpoint} is of a stream that reads {read}, and none of these topics"
        )
    return found
