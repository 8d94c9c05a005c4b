"""Spark over a data directory: rows a second of a read, wide, narrow and filtered, of the sink, and frames a second of
the audit beside fsck's and beside pandas', at two sizes.

The session is warm: it has read the directory once. Rows go nowhere (Spark's `noop`): what is measured is the source.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from topics.audit.fsck import Options, fsck
from topics.audit.recovery import wal_tasks
from topics.audit.scan.rows import WalRow
from topics.audit.scan.scan import scan_all
from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.cli.demo.private_server import PrivateServer
from topics.codec.log.layout import CHECKSUM_SIZE, FRAME_HEAD, FRAME_LEN_SIZE
from topics.codec.primitives import U64, checksum
from topics.codec.segments.segidx import IdxColumns
from topics.host.segments.segment_seals import seal_of
from topics.host.system.readonly import ReadOnlyDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 1_000_000
WRITE = 1000
SMALLER = 4  # times fewer in the small directory
NARROW = "topic string, offset bigint"


def figures(setting: Setting) -> Iterator[Figure]:
    from topics.spark.session import QUIET, session

    count = setting.count(RECORDS, 2000)
    spark = session("bench", confs={**QUIET, "spark.driver.memory": "1g"})
    beside = f"{count} records of {PAYLOAD_BYTES} B in segments, {os.cpu_count()} cores"
    with setting.directory() as path:
        _fill(path / "data", count)
        data = str(path / "data")
        frames = {"all columns": _frame(spark, data), "topic and offset": _frame(spark, data, NARROW)}
        for title, frame in frames.items():
            rates = _rates(setting, count, partial(_drain, frame))
            yield median_figure(f"spark: read {title}", rates, "k rows/s", beside=beside)
        kept = frames["all columns"].where(f"offset > {count // 2}")
        rates = _rates(setting, count - count // 2, lambda: _drain(kept))
        yield median_figure("spark: read the later half by a filter", rates, "k rows/s", beside=beside)
        yield from _labelled(setting, spark, path / "labelled", count // SMALLER)
        _fill(path / "small", count // SMALLER)
        yield from _scans(setting, spark, path / "small", path / "data")
        rows = setting.count(100_000, 500)
        written = _frame(spark, data, "value binary").limit(rows).repartition(2)
        with PrivateServer(path / "served", path) as server:
            rates = [_sink(written, server.url, f"t{turn}", rows) for turn in range(setting.runs)]
        yield median_figure("spark: sink", rates, "k rows/s", beside=f"{rows} rows, 2 tasks, one server")


def _labelled(setting: Setting, spark: SparkSession, data: Path, count: int) -> Iterator[Figure]:
    """A read and a validation of records that have a tag, a node, meta and an expiry of their own."""
    from topics.spark.audits import validate

    _fill(data, count, _label)
    frames, _, size = _size(data)
    beside = f"{count} records with labels, {frames} frames, {size / 1e6:.0f} MB, {os.cpu_count()} cores"
    frame = _frame(spark, str(data))
    rates = _rates(setting, count, partial(_drain, frame))
    yield median_figure("spark: read all columns, labelled", rates, "k rows/s", beside=beside)
    rates = _rates(setting, frames, lambda: validate(spark, str(data)))
    yield median_figure("spark: validate, labelled", rates, "k frames/s", beside=beside)
    options = Options(settled=True)
    rates = _rates(setting, frames, lambda: fsck(ReadOnlyDisk(data), where=str(data), options=options))
    yield median_figure("spark: fsck in one process, labelled", rates, "k frames/s", beside=beside)


def _label(i: int) -> dict[str, Any]:
    return {
        "tag": f"tag-{i % 100:02d}",
        "node": f"node-{i % 8}",
        "meta": {"unit": "mm", "batch": str(i % 50)},
        "ttl_ms": 10**10,
    }


def _scans(setting: Setting, spark: SparkSession, small: Path, large: Path) -> Iterator[Figure]:
    """Validation by Spark, by fsck in one process and in several, and of the same frames by pandas, at two sizes.

    A million records take one core 1.7 s. Two processes save a half of that at most, and cost 0.1 s for each of their
    two pools and 0.4 s for the server that forks them, once, in the turn that is not counted. Where others use the
    cores, two get no more of them than one (Linux shares by session): these figures are of a machine at rest.
    """
    from topics.spark.audits import validate

    def alone(data: Path, jobs: int) -> object:
        options = Options(jobs=jobs, settled=True)
        return fsck(ReadOnlyDisk(data), where=str(data), options=options)

    cores = os.cpu_count() or 1
    ways: dict[str, Callable[[Path], object]] = {
        "validate": lambda data: validate(spark, str(data)),
        "fsck in one process": lambda data: alone(data, 1),
        f"fsck in {cores} processes": lambda data: alone(data, cores),
        "the segments by pandas": _by_pandas,
    }
    sizes = {data: _size(data) for data in (small, large)}
    for title, way in ways.items():
        seconds = {}
        for data, (frames, stored, size) in sizes.items():
            count = stored if way is _by_pandas else frames
            rates = _rates(setting, count, partial(way, data))
            seconds[data] = count / statistics.median(rates) / 1000
            beside = f"{count} frames, {size / 1e6 / seconds[data]:.0f} MB/s, {cores} cores"
            must = 1000.0 if title == "validate" and data is large and not setting.quick else None
            name = f"spark: {title}, {'large' if data is large else 'small'}"
            yield median_figure(name, rates, "k frames/s", must=must, beside=beside)
        grown = sizes[large][0] / sizes[small][0]
        growth = seconds[large] / seconds[small] / grown
        bound = 1.1 if title == "validate" and not setting.quick else None
        yield Figure(
            f"spark: {title}, growth", growth, "x", must=bound, less=True, beside=f"{grown:.1f} x frames"
        )


def _size(data: Path) -> tuple[int, int, int]:
    """Frames, those of them in segments, and bytes."""
    disk = ReadOnlyDisk(data)
    report = fsck(disk, where=str(data), options=Options(settled=True))
    logged = sum(row.frames for row in scan_all(disk, wal_tasks(disk)) if isinstance(row, WalRow))
    return report.records + logged, report.records, report.bytes


def _idx(data: Path, file: Path) -> IdxColumns:
    seal = seal_of(ReadOnlyDisk(data), int(file.parent.name, 16), int(file.stem.removeprefix("seg-")))
    return seal.idx(file.with_suffix(".idx").read_bytes())


def _by_pandas(data: Path) -> None:
    """Checksums, seqs, ts and places of what the segments hold, as one data frame."""
    import pandas as pd  # type: ignore[import-untyped]  # it brings no types

    tables = []
    for file in sorted(data.glob("topics/*/seg-*.data")):
        text, idx = file.read_bytes(), _idx(data, file)
        starts = pd.Series(idx.offsets, dtype="int64")
        stops = starts + pd.Series(idx.lengths, dtype="int64") - CHECKSUM_SIZE
        spans = list(zip(starts, stops, strict=True))
        heads = [FRAME_HEAD.unpack_from(text, start) for start, _ in spans]
        sums = [checksum(text[start + FRAME_LEN_SIZE : stop]) for start, stop in spans]
        said = [U64.unpack_from(text, stop)[0] for _, stop in spans]
        frame = pd.DataFrame({"topic": file.parent.name, "seq": [head[4] for head in heads]})
        tables.append(frame.assign(ts=[head[5] for head in heads], sum=sums, said=said))
    table = pd.concat(tables)
    falls = table.groupby("topic")[["seq", "ts"]].diff()
    assert (table["sum"] == table["said"]).all()
    assert (falls["seq"].dropna() == 1).all()
    assert (falls["ts"].dropna() >= 0).all()


def _fill(data: Path, count: int, label: Callable[[int], dict[str, Any]] = lambda _: {}) -> None:
    with topics.open(data) as store:
        topic = store.create("bench")
        payload = "x" * (PAYLOAD_BYTES - 2)
        for start in range(0, count, WRITE):
            topic.put_many([{"data": payload, **label(start + i)} for i in range(min(WRITE, count))])
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
