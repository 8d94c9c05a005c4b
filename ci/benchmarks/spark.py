"""Spark over a data directory: rows a second of a read, wide and narrow, of the sink, and of the audit beside fsck's.

The session is warm: it has read the directory once. Rows go nowhere (Spark's `noop`): what is measured is the source.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.payload import PAYLOAD_BYTES
from topics.audit.files import ReadOnlyDisk
from topics.audit.fsck import Options, fsck
from topics.cli.private import PrivateServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 1_000_000
WRITE = 1000
NARROW = "topic string, offset bigint"


def figures(setting: Setting) -> Iterator[Figure]:
    from topics.spark.audits import validate
    from topics.spark.session import QUIET, session

    count = setting.count(RECORDS, 2000)
    spark = session("bench", confs={**QUIET, "spark.driver.memory": "1g"})
    beside = f"{count} records of {PAYLOAD_BYTES} B in segments, {os.cpu_count()} cores"
    with setting.directory() as path:
        _fill(path / "data", count)
        data = str(path / "data")
        frames = {"all columns": _frame(spark, data), "topic and offset": _frame(spark, data, NARROW)}
        for title, frame in frames.items():
            rates = _rates(setting, count, lambda frame=frame: _drain(frame))  # type: ignore[misc] -- a default binds
            yield median_figure(f"spark: read {title}", rates, "k rows/s", beside=beside)
        rates = _rates(setting, count, lambda: validate(spark, data))
        yield median_figure("spark: validate", rates, "k records/s", beside=beside)
        options = Options(jobs=os.cpu_count() or 1, settled=True)
        rates = _rates(setting, count, lambda: fsck(ReadOnlyDisk(data), where=data, options=options))
        yield median_figure("spark: fsck in processes", rates, "k records/s", beside=beside)
        rows = setting.count(100_000, 500)
        written = _frame(spark, data, "value binary").limit(rows).repartition(2)
        with PrivateServer(path / "served", path) as server:
            rates = [_sink(written, server.url, f"t{turn}", rows) for turn in range(setting.runs)]
        yield median_figure("spark: sink", rates, "k rows/s", beside=f"{rows} rows, 2 tasks, one server")


def _fill(data: Path, count: int) -> None:
    with topics.open(data) as store:
        topic = store.create("bench")
        payload = "x" * (PAYLOAD_BYTES - 2)
        for _ in range(0, count, WRITE):
            topic.put_many([{"data": payload}] * min(WRITE, count))
        store.checkpoint()


def _frame(spark: SparkSession, data: str, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("topics")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(path=data, subscribe="bench").load()


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sink(frame: DataFrame, url: str, topic: str, rows: int) -> float:
    started = time.perf_counter()
    frame.write.format("topics").options(url=url, topic=topic).mode("append").save()
    return rows / (time.perf_counter() - started) / 1000


def _rates(setting: Setting, count: int, work: Callable[[], Any]) -> list[float]:
    """Thousands a second, of each turn, behind one that is not counted."""
    work()
    rates = []
    for _ in range(setting.runs):
        started = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - started) / 1000)
    return rates
