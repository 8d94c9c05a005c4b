"""Spark's two writers, batch and stream, over the sink.

Spark makes a writer on the driver each time it plans the write of a batch, and hands a copy of it to every task.

A note in the checkpoint of a stream says when the batch that is being written began (decision 28). After a restart
Spark runs the last batch that was not committed again, after seconds or after days, and tells nobody when it was run
before. So the driver writes it down when it plans a batch for the first time, durably, before a task of it can post;
planned again, the batch is found in the note. Which batch it is, Spark's own offsets say: it writes those of a batch
before it plans the write.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, Literal

import attrs
import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from topics.host.cold.fsspec_files import open_files, without_secrets
from topics.host.cold.fsspec_store import is_url
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Corrupt, TopicsError, invalid
from topics.kernel.ports import Clock, Disk
from topics.spark.directory import open_disk
from topics.spark.options import SinkOptions
from topics.spark.run import SinkRun, window_of
from topics.spark.sink import SinkWritten, check_columns, connected_to, write_partition

NOTE_FILE: Final = "topics-sink.json"
_TEMPORARY: Final = f"{NOTE_FILE}.tmp"


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`batch` of the run `write_id` began at `began_ms`; the topic knew keys for `window_ms` then, None if no option
    names it.
    """

    version: Literal[1] = 1
    batch: int
    write_id: str | None
    began_ms: int
    window_ms: int | None


def keep_note(
    checkpoint: str, write_id: str | None, *, now_ms: Callable[[], int], window_ms: Callable[[], int | None]
) -> Note:
    """The note of the batch that is being planned, left in the checkpoint if it is new. Only of a new one the time and
    the window are asked for.

    Raises:
        Rejected: this is no checkpoint, or its files cannot be reached from Python.
        Corrupt: what is there is no note.
        OSError: it cannot be read or written.
    """
    disk, where = open_disk(checkpoint), without_secrets(checkpoint)
    batches = [int(name) for name in disk.names("offsets") if name.isdecimal()]
    if not batches:
        how = "give the whole URL of the folder, as file:///… or s3://…, and install what fsspec needs for it"
        raise invalid("checkpointLocation", f"{where} has no offsets of a stream: {how}")
    held = _read(disk, where)
    if held is not None and (held.batch, held.write_id) == (max(batches), write_id):
        return held
    began_ms = now_ms()
    note = Note(batch=max(batches), write_id=write_id, began_ms=began_ms, window_ms=window_ms())
    _write(checkpoint, msgspec.json.encode(note))
    return note


def _read(disk: Disk, where: str) -> Note | None:
    size = disk.size(NOTE_FILE)
    if size is None:
        return None
    try:
        return msgspec.json.decode(disk.read(NOTE_FILE, 0, size), type=Note)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"{where}/{NOTE_FILE} is no note of the sink ({error}), so nobody knows when the batch was written first; "
            "remove it only if its rows are not in the topic"
        ) from error


def _write(checkpoint: str, data: bytes) -> None:
    """The whole of it or nothing, whenever the machine fails."""
    if is_url(checkpoint):
        open_files(checkpoint, "checkpointLocation").write(NOTE_FILE, data)
        return
    with closing(OsDisk(checkpoint)) as disk:
        disk.create(_TEMPORARY, 0)
        disk.write(_TEMPORARY, 0, [data])
        disk.sync_data(_TEMPORARY)
        disk.rename(_TEMPORARY, NOTE_FILE)
        disk.sync_dir("")


QUERY_ID: Final = "sql.streaming.queryId"  # local properties of a task, as Spark's micro-batches set them
BATCH_ID: Final = "streaming.sql.batchId"


@attrs.frozen
class TaskWritten(WriterCommitMessage):
    """What Spark hands from a task to the driver."""

    written: SinkWritten


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
        self.run = SinkRun(name=name, began_ms=began_ms, window_ms=_window_ms(options))

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
        run = SinkRun(name=f"{name}/{batch}", began_ms=self.began_ms, window_ms=self.window_ms)
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
