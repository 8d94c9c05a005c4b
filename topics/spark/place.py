"""What a driver asks of the place that holds the topics, be it a directory or a server; and what a read of it covers.

A `ReadPlace` is looked at once a plan: a `PlaceView` is what was there then. Seqs are inclusive at the start and
exclusive at the stop, as Kafka's offsets are. A seq that is lost is never passed without a word: it is an error, or a
`Loss`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import attrs
import pyarrow as pa

from topics.audit.columnar.arrow_batches import Verify
from topics.kernel.errors import TopicsError, invalid
from topics.log.floors import Reason
from topics.spark.options import EARLIEST, LATEST, ReadOptions

SEQ_MAX: Final = 2**63 - 1  # Spark's long
DELETED: Final = "the topic was deleted"  # reasons of a loss besides those of the log
RECREATED: Final = Reason.RECREATED.value
WENT_BACK: Final = "its head went back"


class DataLoss(TopicsError):
    """Seqs that a read covers are lost, and the reader did not say that this is fine."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(
            f"{loss}; start above them, or set failOnDataLoss to false: then topics.spark.losses(df) lists them",
            topic=loss.topic,
            first=loss.first,
            last=loss.last,
        )


@attrs.frozen
class Loss:
    """Seqs [first, last] of a topic, both inclusive, that nobody can read any more, and why."""

    topic: str
    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        return f"topic {self.topic!r}: seqs {self.first} to {self.last} are lost ({self.reason})"


@attrs.frozen(kw_only=True)
class TopicOffsets:
    """One topic at the time of the view. `earliest`: its first live seq. `stop`: behind the last that may be read.
    `end`: behind the last that is there; it is above `stop` while what it ends with could still be taken back.
    """

    name: str
    epoch: int
    earliest: int
    stop: int
    end: int


@attrs.frozen
class SeqRange:
    """Seqs [start, stop) of one instance of a topic."""

    topic: str
    epoch: int
    start: int
    stop: int


@attrs.frozen(kw_only=True)
class ReadBounds:
    """What filters leave of a read. None: no bound. `ts_ms_max` is inclusive, `seq_stop` is not."""

    topics: frozenset[str] | None = None
    seq_start: int = 1
    seq_stop: int = SEQ_MAX
    ts_ms_min: int = 0
    ts_ms_max: int | None = None


class TopicPart(Protocol):
    """What a place can read of one topic, of a kind of its own. Pickled to executors."""

    @property
    def size(self) -> int:
        """Bytes of its records; of a server, about."""
        ...


@attrs.frozen
class Partition:
    """What one task reads: parts in their order."""

    parts: Sequence[TopicPart]


@attrs.frozen(kw_only=True)
class ReadForm:
    """How an executor reads, whatever it reads: the columns, and what becomes of damage and loss."""

    schema: pa.Schema
    verify: Verify
    fail_on_loss: bool


class PlaceView(Protocol):
    """The topics of a place at one time, to be closed."""

    def close(self) -> None:
        """Let go of what it asks, if it holds anything. Twice is fine."""
        ...

    def topics(self) -> Mapping[str, TopicOffsets]:
        """By name, those that an option could name."""
        ...

    def may_undelete(self) -> bool:
        """Whether a power cut could bring a topic back that is gone from the view, or was made anew: nobody knows yet
        that its deletion is synced.
        """
        ...

    def refuse_damage(self, topics: Mapping[str, TopicOffsets]) -> None:
        """Raises `Corrupt` if acknowledged data is damaged, and it is, or may be, of these topics."""
        ...

    def seq_at(self, topic: str, ts_ms: int) -> int:
        """The first seq at or after that time, with what is lost directly in front of it and may have been as late.

        Behind the last one if there is none.
        """
        ...

    def losses(self, wanted: SeqRange) -> Sequence[Loss]:
        """What of the range is lost, ascending."""
        ...

    def stop_within(self, wanted: SeqRange, bytes_max: int) -> int:
        """How far a read of so many bytes gets: behind the last record of it, at least one."""
        ...

    def parts(self, wanted: SeqRange, bounds: ReadBounds, *, target_bytes: int) -> Sequence[TopicPart]:
        """What tasks can read, in the order of their seqs."""
        ...

    def size(self, wanted: SeqRange) -> int:
        """Bytes of the records of the range; of a server, about."""
        ...


class ReadPlace(Protocol):
    """Where topics are. Pickled to executors."""

    def look(self) -> PlaceView:
        """What is there now."""
        ...

    def read(self, parts: Sequence[TopicPart], how: ReadForm) -> Iterator[pa.RecordBatch]:
        """The records of parts that a view of this place has made.

        Raises:
            Corrupt: one is damaged, and `how.verify` is not FLAG.
            DataLoss: one was lost since the view, and `how.fail_on_loss` is on.
        """
        ...


def subscribed(view: PlaceView, options: ReadOptions) -> Mapping[str, TopicOffsets]:
    """The topics that the options name. Raises `Rejected` for one that is not there."""
    found = matching(view, options)
    for name in options.topics:
        if name not in found:
            raise invalid("subscribe", f"topic {name!r} is not there")
    return found


def matching(view: PlaceView, options: ReadOptions) -> Mapping[str, TopicOffsets]:
    """Those of the topics that the options name that are there."""
    topics = view.topics()
    if options.pattern is not None:
        wanted = re.compile(options.pattern)
        return {name: offsets for name, offsets in sorted(topics.items()) if wanted.fullmatch(name)}
    return {name: topics[name] for name in options.topics if name in topics}


def ranges_of_batch(
    view: PlaceView, options: ReadOptions, only: frozenset[str] | None = None
) -> list[SeqRange]:
    """What a batch covers, one range a topic; with `only`, of these topics and no others.

    Raises:
        Rejected: an offset of a topic that is not read, or above its head.
        DataLoss: of a range something is lost, and `failOnDataLoss` is on.
    """
    topics = subscribed(view, options)
    found = []
    for name, offsets in topics.items():
        if only is not None and name not in only:
            continue
        start = _seq(
            view, offsets, "startingOffsets", options.starting or "earliest", options.starting_ms, topics
        )
        stop = _seq(view, offsets, "endingOffsets", options.ending or "latest", options.ending_ms, topics)
        found.append(SeqRange(name, offsets.epoch, start, max(start, stop)))
    if options.fail_on_loss:
        view.refuse_damage({wanted.topic: topics[wanted.topic] for wanted in found})
        for wanted in found:
            refuse_losses(view, wanted)
    return found


def refuse_losses(view: PlaceView, wanted: SeqRange) -> None:
    """Raises `DataLoss` if anything of the range is lost."""
    for loss in view.losses(wanted):
        raise DataLoss(loss)


def starts_of_stream(view: PlaceView, options: ReadOptions) -> dict[str, SeqRange]:
    """Where a new stream begins in each topic that is there when it begins: empty ranges."""
    topics = subscribed(view, options)
    found = {}
    for name, offsets in topics.items():
        seq = _seq(
            view, offsets, "startingOffsets", options.starting or "latest", options.starting_ms, topics
        )
        found[name] = SeqRange(name, offsets.epoch, seq, seq)
    return found


def _seq(
    view: PlaceView,
    offsets: TopicOffsets,
    field: str,
    bound: str | Mapping[str, int],
    ts_ms: int | None,
    topics: Mapping[str, TopicOffsets],
) -> int:
    if ts_ms is not None:
        return view.seq_at(offsets.name, ts_ms)
    if not isinstance(bound, str):
        for name in bound:
            if name not in topics:
                raise invalid(field, f"topic {name!r} is not among those that are read")
    seq = bound if isinstance(bound, str) else bound.get(offsets.name)
    if seq is None:
        raise invalid(field, f"says nothing of topic {offsets.name!r}; name each (-2 earliest, -1 latest)")
    if seq in ("earliest", EARLIEST):
        return offsets.earliest
    if seq in ("latest", LATEST):
        return offsets.stop
    assert isinstance(seq, int)
    if seq > offsets.stop:
        raise invalid(field, f"topic {offsets.name!r}: {seq} is above its end, {offsets.stop}")
    return seq


def pack_into_tasks(parts: Sequence[TopicPart], *, target_bytes: int) -> list[Partition]:
    """Parts to tasks, each of about `target_bytes`: a task costs 90 ms before it reads anything."""
    partitions: list[Partition] = []
    held: list[TopicPart] = []
    size = 0
    for part in parts:
        if held and size + part.size > target_bytes:
            partitions.append(Partition(held))
            held, size = [], 0
        held.append(part)
        size += part.size
    if held:
        partitions.append(Partition(held))
    return partitions
