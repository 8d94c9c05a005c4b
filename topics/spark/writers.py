"""Spark's two writers, batch and stream, over the sink."""

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

from topics.kernel.errors import TopicsError, invalid
from topics.spark.options import SinkOptions
from topics.spark.sink import Written, check_columns, write_partition

QUERY_ID: Final = "sql.streaming.queryId"  # local properties of a task, as Spark's micro-batches set them
BATCH_ID: Final = "streaming.sql.batchId"


@attrs.frozen
class TaskWritten(WriterCommitMessage):
    """What Spark hands from a task to the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """One run of `df.write`. Without a `writeId` it gets a name of its own, so that only its own retries are known."""

    def __init__(self, options: SinkOptions, names: Sequence[str], *, overwrite: bool) -> None:
        if overwrite:
            raise invalid("mode", "is append: what a topic holds is not written over")
        check_columns(names, options)
        self._options = options
        self._run = options.write_id or f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        partition = _task().partitionId()
        return TaskWritten(write_partition(iterator, self._options, run=self._run, partition=partition))


class StreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of one stream. A batch that is run again, after a restart too, has the keys that it had."""

    def __init__(self, options: SinkOptions, names: Sequence[str], *, overwrite: bool) -> None:
        if overwrite:
            raise invalid("outputMode", "is append: what a topic holds is not written over")
        check_columns(names, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        run = self._options.write_id or f"spark-{_property(task, QUERY_ID)}"
        return TaskWritten(
            write_partition(
                iterator,
                self._options,
                run=f"{run}/{_property(task, BATCH_ID)}",
                partition=task.partitionId(),
            )
        )


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
