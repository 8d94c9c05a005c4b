"""What is common to a batch and a stream: from ranges of seqs to tasks, and from a task to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa

from topics.spark.directory import DirectoryPlace
from topics.spark.options import ReadOptions
from topics.spark.place import (
    Partition,
    PlaceView,
    ReadBounds,
    ReadForm,
    ReadPlace,
    SeqRange,
    TopicPart,
    pack_into_tasks,
)
from topics.spark.server import ServerPlace


def place_of(options: ReadOptions) -> ReadPlace:
    if options.path is not None:
        return DirectoryPlace(path=options.path, internal=options.internal, cold=options.cold)
    assert options.url is not None
    return ServerPlace(
        url=options.url,
        token=options.token,
        cafile=options.cafile,
        topics=options.topics,
        pattern=options.pattern,
    )


@attrs.frozen(kw_only=True)
class ScanPlan:
    """A plan's beginnings: what is wanted, and of which columns. Reads partitions, on whatever machine."""

    options: ReadOptions
    schema: pa.Schema

    def partitions(self, view: PlaceView, wanted: Sequence[SeqRange], bounds: ReadBounds) -> list[Partition]:
        """What tasks there are."""
        parts: list[TopicPart] = []
        target = self.options.partition_bytes
        if self.options.partitions_min > 1:
            total = sum(view.size(each) for each in wanted)
            target = max(1, min(target, -(-total // self.options.partitions_min)))
        for each in wanted:
            parts += view.parts(each, bounds, target_bytes=target)
        return pack_into_tasks(parts, target_bytes=target)

    def batches(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        """What a task reads."""
        how = ReadForm(schema=self.schema, verify=self.options.verify, fail_on_loss=self.options.fail_on_loss)
        return place_of(self.options).read(partition.parts, how)
