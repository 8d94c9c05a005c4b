"""Spark's two writers, batch and stream, over the sink.

Spark makes a writer on the driver each time it plans the write of a batch, and hands a copy of it to every task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from topics.host.clock import SystemClock
from topics.kernel.errors import TopicsError, invalid
from topics.kernel.ports import Clock
from topics.spark.note import keep_note
from topics.spark.options import SinkOptions
from topics.spark.run import Run, window_of
from topics.spark.sink import Written, check_columns, connected_to, write_partition

QUERY_ID: Final = "sql.streaming.queryId"  # local properties of a task, as Spark's micro-batches set them
BATCH_ID: Final = "streaming.sql.batchId"


@attrs.frozen
class TaskWritten(WriterCommitMessage):
    """What Spark hands from a task to the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """One run of `df.write`. Without a `writeId` it gets a name of its own, so that only its own retries are known."""

    def __init__(
        self, options: SinkOptions, names: Sequence[str], *, overwrite: bool, clock: Clock | None = None
    ) -> None:
        if overwrite:
            raise invalid("mode", "is append: what a topic holds is not written over")
        check_columns(names, options)
        self._options = options
        began_ms = (clock or SystemClock()).now_ms()
        name = options.write_id or f"spark-{uuid.uuid4().hex}"
        self.run = Run(name=name, began_ms=began_ms, window_ms=_window_ms(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        partition = _task().partitionId()
        return TaskWritten(write_partition(iterator, self._options, run=self.run, partition=partition))


class StreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch of a stream. One that is run again, after a restart too, has the keys that it had, and began when
    it did. `batch`: its number; None if nobody can run it again after a restart, for Spark chose the checkpoint.
    """

    def __init__(
        self, options: SinkOptions, names: Sequence[str], *, overwrite: bool, clock: Clock | None = None
    ) -> None:
        if overwrite:
            raise invalid("outputMode", "is append: what a topic holds is not written over")
        check_columns(names, options)
        self._options = options
        now_ms = (clock or SystemClock()).now_ms
        self.batch: int | None = None
        if options.checkpoint is None:
            if options.query is not None:
                raise invalid(
                    "checkpointLocation", "give it as an option of the stream: the sink keeps a note there"
                )
            self.began_ms = now_ms()
            self.window_ms = _window_ms(options)
            return
        note = keep_note(
            options.checkpoint, options.write_id, now_ms=now_ms, window_ms=lambda: _window_ms(options)
        )
        self.batch, self.began_ms, self.window_ms = note.batch, note.began_ms, note.window_ms

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        batch = _property(task, BATCH_ID)
        if self.batch is not None and str(self.batch) != batch:
            why = f"the newest offsets in it are of batch {self.batch}, and Spark writes batch {batch}"
            raise TopicsError(f"{self._options.checkpoint} is not the checkpoint of this stream: {why}")
        name = self._options.write_id or f"spark-{_property(task, QUERY_ID)}"
        run = Run(name=f"{name}/{batch}", began_ms=self.began_ms, window_ms=self.window_ms)
        return TaskWritten(write_partition(iterator, self._options, run=run, partition=task.partitionId()))


def _window_ms(options: SinkOptions) -> int | None:
    """How long the topic knows keys, if the options name it."""
    if options.topic is None:
        return None
    with connected_to(options) as client:
        return window_of(client, options.topic)


def _task() -> Any:
    task = TaskContext.get()
    if task is None:
        raise TopicsError("the sink runs in a task of Spark only")
    return task


def _property(task: Any, name: str) -> str:
    value = task.getLocalProperty(name)
    if not value:
        raise TopicsError(f"this Spark does not tell a task its {name}; give a writeId")
    return str(value)
