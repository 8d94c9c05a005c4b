"""`format("topics")`: the data source that Spark asks for plans and batches (spark 3).

Spark makes these objects anew in Python processes of its own, on the driver to plan and on executors to read, so each
is a few values that pickle, and what a plan found travels in its partitions. A reader with pushed filters works only
where Spark is told to push them: `topics.spark.register` does where that is safe (see `spark.session`), and registers
`PushdownSource`; else there is the plain `TopicsSource`, and Spark filters by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from topics.audit.columnar.arrow_batches import Verify, full_schema, narrowed
from topics.kernel.errors import invalid
from topics.spark.filters import pushed
from topics.spark.options import ReadOptions, Table, read_options, sink_options
from topics.spark.place import Loss, PlaceView, ReadBounds, ranges_of_batch
from topics.spark.scan import ScanPlan, place_of
from topics.spark.stream import StreamReader
from topics.spark.writers import BatchWriter, StreamWriter

NAME: Final = "topics"
LOSSES: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def schema_of(options: ReadOptions) -> pa.Schema:
    """Every column that the options give."""
    if options.table is Table.LOSSES:
        return LOSSES
    return full_schema(
        headers=options.headers, internal=options.internal, flagged=options.verify is Verify.FLAG
    )


class TopicsSource(DataSource):
    """Records of topics, from a directory, a backup or a server."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """All columns. A schema of the user's with fewer of them is what makes a read narrow."""
        return from_arrow_schema(schema_of(read_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._scan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        return StreamReader(self._scan(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 -- Spark's call
        return BatchWriter(sink_options(self.options), schema.names, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001, N802 -- Spark's name
        return StreamWriter(sink_options(self.options), schema.names, overwrite=overwrite)

    def _scan(self, schema: StructType) -> ScanPlan:
        options = read_options(self.options)
        return ScanPlan(options=options, schema=_wanted(options, schema))


class PushdownSource(TopicsSource):
    """The same, where Spark pushes filters."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteringReader(self._scan(schema))


class BatchReader(DataSourceReader):
    """A batch read. Spark 4.3 asks for a plan when the first query of a frame is run, and keeps it for those after."""

    def __init__(self, scan: ScanPlan) -> None:
        self._scan = scan
        self._bounds = ReadBounds()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._scan.options
        with closing(place_of(options).look()) as view:
            if options.table is Table.LOSSES:
                return [InputPartition(_losses(view, options))]
            ranges = ranges_of_batch(view, options, self._bounds.topics)
            planned = self._scan.partitions(view, ranges, self._bounds)
        return [InputPartition(partition) for partition in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # what Spark makes of no partitions at all
        if self._scan.options.table is Table.LOSSES:
            yield losses_batch(partition.value, self._scan.schema)
            return
        yield from self._scan.batches(partition.value)


class FilteringReader(BatchReader):
    """A batch read that leaves out what filters on topic, offset and timestamp exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        if self._scan.options.table is Table.LOSSES:
            return filters
        self._bounds, rest = pushed(filters)
        return rest


def losses_batch(losses: Sequence[Loss], schema: pa.Schema) -> pa.RecordBatch:
    """Ranges of lost seqs, with the columns of `schema`."""
    columns = [pa.array([getattr(loss, field.name) for loss in losses], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _losses(view: PlaceView, options: ReadOptions) -> list[Loss]:
    """What is lost of all that a read covers. One from `earliest` on begins behind what is lost at the front; that is
    lost to it all the same.
    """
    ranges = ranges_of_batch(view, attrs.evolve(options, fail_on_loss=False))
    if options.starting in (None, "earliest") and options.starting_ms is None:
        ranges = [attrs.evolve(wanted, start=1) for wanted in ranges]
    return [loss for wanted in ranges for loss in view.losses(wanted)]


def _wanted(options: ReadOptions, schema: StructType) -> pa.Schema:
    """The columns of a schema that Spark hands over: the user's, or all.

    Raises:
        Rejected: a column that there is not, or of another type.
    """
    full = schema_of(options)
    types = {field.name: field.dataType for field in from_arrow_schema(full)}
    for field in schema:
        if field.name not in types:
            raise invalid("schema", f"there is no column {field.name!r}; there are {', '.join(types)}")
        if field.dataType != types[field.name]:
            wanted = types[field.name].simpleString()
            raise invalid(
                "schema", f"column {field.name!r} is a {wanted}, not a {field.dataType.simpleString()}"
            )
    return narrowed(full, schema.names)
