"""The stream reader: `readStream.format("topics")` (spark 3).

An offset is `{"quakes": {"epoch": 1, "next": 4711}}`: of each topic the instance, and its first seq that is still to
come. Spark writes it down before a batch is read, so after a crash the same batch is planned again from the same two
offsets, and the log gives the same records for them, or says which are lost. Nothing is kept here.

A topic that the pattern finds later is read from its first record on. One that is deleted and made anew under the same
name has another epoch: what was still to come of the old one is lost. A head below the next seq went back: a backup was
put back, or a crash took what no sync had covered. Its next records get seqs that were read before, so the stream goes
on behind the head. That is seen as long as the head is still below. A deletion that a power cut could still take back
(`PlaceView.may_undelete`) is waited for: the topic keeps its place until its sync is known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from topics.kernel.errors import Corrupt, invalid
from topics.spark.options import Table
from topics.spark.place import (
    DELETED,
    RECREATED,
    WENT_BACK,
    DataLoss,
    Loss,
    PlaceView,
    ReadBounds,
    SeqRange,
    TopicOffsets,
    matching,
    starts_of_stream,
)
from topics.spark.scan import ScanPlan, place_of

Offset = dict[str, dict[str, int]]
_log: Final = logging.getLogger("topics.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream. `target`: where a stream of what is available now ends; None for one that goes on."""

    def __init__(self, scan: ScanPlan) -> None:
        if scan.options.table is Table.LOSSES:
            raise invalid("table", "losses are read as a batch")
        if scan.options.ending is not None or scan.options.ending_ms is not None:
            raise invalid("endingOffsets", "a stream has no end")
        self._scan = scan
        self._target: Mapping[str, TopicOffsets] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name, as those below
        with closing(self._look()) as view:
            starts = starts_of_stream(view, self._scan.options)
        return {name: {"epoch": at.epoch, "next": at.start} for name, at in starts.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        options = self._scan.options
        if options.offsets_per_trigger is not None:
            return ReadMaxRows(options.offsets_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where the next batch ends: all that is there, or as much of it as the limit lets in."""
        with closing(self._look()) as view:
            wanted = self._ahead(view, start)
            if isinstance(limit, ReadMaxRows):
                wanted = _share_offsets(wanted, limit.max_rows)
            bytes_max = (
                limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._scan.options.bytes_per_trigger
            )
            if bytes_max is not None and not isinstance(limit, ReadAllAvailable):
                wanted = _share_bytes(view, wanted, bytes_max)
        return {each.topic: {"epoch": each.epoch, "next": each.stop} for each in wanted}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        there = self._matching()
        return {name: {"epoch": offsets.epoch, "next": offsets.stop} for name, offsets in there.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        self._target = self._matching()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with closing(self._look()) as view:
            wanted = self._checked(view, _between(start, end))
            return [
                InputPartition(partition) for partition in self._scan.partitions(view, wanted, ReadBounds())
            ]

    def _checked(self, view: PlaceView, ranges: Sequence[SeqRange]) -> list[SeqRange]:
        """What of the ranges is still there to be read. Raises `DataLoss` if anything is lost, and that is an error."""
        options = self._scan.options
        there = view.topics()
        wanted = []
        for each in ranges:
            offsets = there.get(each.topic)
            if offsets is None or offsets.epoch != each.epoch:
                self._lose(
                    Loss(each.topic, each.start, each.stop - 1, DELETED if offsets is None else RECREATED)
                )
                continue
            if options.fail_on_loss:
                view.refuse_damage({each.topic: offsets})
            if offsets.end < each.stop:
                self._lose(Loss(each.topic, max(offsets.end, each.start), each.stop - 1, WENT_BACK))
                each = attrs.evolve(each, stop=max(offsets.end, each.start))  # noqa: PLW2901 -- what is left of it
            for loss in view.losses(each):
                if options.fail_on_loss:
                    raise DataLoss(loss)
                _log.warning("%s", loss)
            wanted.append(each)
        return wanted

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # what Spark makes of no partitions at all
            yield from self._scan.batches(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark keeps the offsets."""

    def stop(self) -> None:
        """Nothing is held."""

    def _matching(self) -> Mapping[str, TopicOffsets]:
        with closing(self._look()) as view:
            return matching(view, self._scan.options)

    def _look(self) -> PlaceView:
        return place_of(self._scan.options).look()

    def _ahead(self, view: PlaceView, start: Offset) -> list[SeqRange]:
        """All that is there behind `start`, one range a topic."""
        there = matching(view, self._scan.options)
        waits = (
            [] if not view.may_undelete() else [name for name in start if not _goes_on(name, start, there)]
        )
        found = [
            SeqRange(name, start[name]["epoch"], start[name]["next"], start[name]["next"]) for name in waits
        ]
        for name, at in start.items():
            if name not in there and name not in waits:  # nor in the next offset: it is told once
                self._lose(Loss(name, at["next"], at["next"], DELETED))
        for name, offsets in there.items():
            if name in waits:
                continue
            at = start.get(name, {"epoch": offsets.epoch, "next": 1})
            if at["epoch"] != offsets.epoch:
                self._lose(Loss(name, at["next"], at["next"], RECREATED))
                at = {"epoch": offsets.epoch, "next": 1}
            elif offsets.end < at["next"] and self._is_whole(view, offsets):
                self._lose(Loss(name, offsets.end, at["next"] - 1, WENT_BACK))
                at = {"epoch": offsets.epoch, "next": offsets.end}
            found.append(SeqRange(name, offsets.epoch, at["next"], max(at["next"], self._stop(offsets))))
        return found

    def _is_whole(self, view: PlaceView, offsets: TopicOffsets) -> bool:
        """Whether the end of a topic is its end: the head of a damaged log says nothing."""
        try:
            view.refuse_damage({offsets.name: offsets})
        except Corrupt as damage:
            if self._scan.options.fail_on_loss:
                raise
            _log.warning("topic %r: no further than before: %s", offsets.name, damage)
            return False
        return True

    def _stop(self, offsets: TopicOffsets) -> int:
        """Where what may be read of a topic ends; nothing of one that came, or came anew, behind the target."""
        if self._target is None:
            return offsets.stop
        target = self._target.get(offsets.name)
        return 1 if target is None or target.epoch != offsets.epoch else min(offsets.stop, target.stop)

    def _lose(self, loss: Loss) -> None:
        if self._scan.options.fail_on_loss:
            raise DataLoss(loss)
        _log.warning("topic %r: what begins with seq %d is lost: %s", loss.topic, loss.first, loss.reason)


def _goes_on(name: str, start: Offset, there: Mapping[str, TopicOffsets]) -> bool:
    """Whether a topic is still the instance that was read."""
    return name in there and there[name].epoch == start[name]["epoch"]


def _between(start: Offset, end: Offset) -> list[SeqRange]:
    """The ranges of a batch. A topic that is new in it, or made anew, begins with its first record."""
    found = []
    for name, at in end.items():
        before = start.get(name)
        first = before["next"] if before is not None and before["epoch"] == at["epoch"] else 1
        if first < at["next"]:
            found.append(SeqRange(name, at["epoch"], first, at["next"]))
    return found


def _share_offsets(wanted: Sequence[SeqRange], rows_max: int) -> list[SeqRange]:
    """Cut to so many offsets in all, each topic by its share of what there is. None is left out again and again: where
    there are more topics than offsets, they take turns.
    """
    total = sum(each.stop - each.start for each in wanted)
    if total <= rows_max:
        return list(wanted)
    behind = [each for each in wanted if each.stop > each.start]
    if len(behind) > rows_max:
        turn = sum(each.start for each in behind) // rows_max % len(behind)
        served = {each.topic for each in (behind * 2)[turn : turn + rows_max]}
        return [
            SeqRange(each.topic, each.epoch, each.start, each.start + (each.topic in served))
            for each in wanted
        ]
    found, left, ahead = [], rows_max, total
    for each in sorted(wanted, key=lambda each: (each.stop - each.start, each.topic)):
        size = each.stop - each.start
        share = min(size, -(-left * size // ahead)) if ahead else 0
        found.append(SeqRange(each.topic, each.epoch, each.start, each.start + share))
        left, ahead = left - share, ahead - size
    assert left >= 0
    return found


def _share_bytes(view: PlaceView, wanted: Sequence[SeqRange], bytes_max: int) -> list[SeqRange]:
    """The same by bytes; of each topic that has anything at least one record, so that it comes to an end."""
    sizes = [view.size(each) if each.start < each.stop else 0 for each in wanted]
    total = sum(sizes)
    if total <= bytes_max:
        return list(wanted)
    return [
        each
        if not size
        else SeqRange(each.topic, each.epoch, each.start, view.stop_within(each, bytes_max * size // total))
        for each, size in zip(wanted, sizes, strict=True)
    ]
