"""A sink whose every task is tried twice: the first try writes all it has, in another order, and then fails; of the odd
partitions the worker is killed.

Each try leaves a file behind when it has written, named by partition and attempt, in the folder of the option `tried`.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from topics.spark.datasource import PushdownSource
from topics.spark.options import sink_options
from topics.spark.writers import BatchWriter


class FailingWriter(BatchWriter):
    def __init__(self, given, names, *, overwrite):
        self._tried = Path(given["tried"])
        known = {name: value for name, value in given.items() if name != "tried"}
        super().__init__(sink_options(known), names, overwrite=overwrite)

    def write(self, iterator):
        task = TaskContext.get()
        partition, attempt = task.partitionId(), task.attemptNumber()
        table = pa.Table.from_batches(list(iterator))
        order = list(range(table.num_rows))
        random.Random(attempt).shuffle(order)
        message = super().write(iter(table.take(pa.array(order, pa.int64())).to_batches(max_chunksize=7)))
        (self._tried / f"{partition}.{attempt}").touch(exist_ok=False)
        if attempt == 0:
            if partition % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ConnectionError("the first try of a task fails")
        return message


class FailingSource(PushdownSource):
    @classmethod
    def name(cls):
        return "failing"

    def writer(self, schema, overwrite):
        return FailingWriter(self.options, schema.names, overwrite=overwrite)
