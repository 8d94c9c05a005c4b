"""B9: embedded `put_many(100)` against SQLite, `fsync` with `synchronous=FULL` and `disk` with `NORMAL`.

What is compared: `topics.Raw` JSON, which the store checks as JSON and as UTF-8 and keeps byte for byte, with the same
text in a TEXT column, which SQLite does not check. Mappings, which the store encodes first, are printed beside it.

The SQLite side is the one an expert would write: WAL, INTEGER PRIMARY KEY, one explicit transaction a batch, one
prepared statement with `executemany` on rows made beforehand, the default page size and checkpoint. With 8 threads it
is one connection behind one lock, which is faster than 8 connections whose busy handler sleeps.

Each side begins a turn with a new directory and enough writes, not timed, to be past its first small files. The timed
part is longer than one of our 64 MiB files, so rotation and the zeros of the next file are in it, as checkpoints are
there.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure, quantile
from ci.benchmarks.payload import BATCH, BESIDE, mappings, raws, texts
from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.codec.log.frame import FRAME_OVERHEAD

CLASSES = {"fsync": "FULL", "disk": "NORMAL"}
BOUNDS = {"fsync": (1.0, 1.6), "disk": (1.0, 1.5)}
THREADS = (1, 8)
FRAME_BYTES = BATCH * (PAYLOAD_BYTES + FRAME_OVERHEAD)

Put = Callable[[Any], object]


@dataclass(frozen=True)
class Turn:
    """One side's part of a turn."""

    rate: float  # records a second
    cpu_us: float  # of the process, a record
    latencies: Sequence[float]


@dataclass(frozen=True)
class Load:
    """The batches of a turn in the forms the sides take, and how many are written before the clock starts."""

    forms: Mapping[str, Sequence[Any]]
    warm: int
    threads: int


def figures(setting: Setting) -> Iterator[Figure]:
    """Ratios first, then what they are made of."""
    batches = texts(setting.count(3700, 24))
    forms: dict[str, Sequence[Any]] = {
        "row": [[(text,) for text in batch] for batch in batches],
        "raw": raws(batches),
        "mapping": mappings(batches),
    }
    forms["chunk"] = [bytes(FRAME_BYTES - 1) + b"\1"] * len(batches)
    for threads in THREADS:
        load = Load(forms, warm=setting.count(900, 8), threads=threads)
        for durability, synchronous in CLASSES.items():
            yield from _compare(setting, load, durability, synchronous)


def _compare(setting: Setting, load: Load, durability: str, synchronous: str) -> Iterator[Figure]:
    sides: dict[str, Callable[[Path], Turn]] = {
        "raw": lambda path: _topics(path, load, durability, "raw"),
        "sqlite": lambda path: _sqlite(path, load, synchronous),
        "mapping": lambda path: _topics(path, load, durability, "mapping"),
        "floor": lambda path: _bare(path, load, sync=durability == "fsync"),
    }
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for run in range(setting.runs):
        for name in list(sides) if run % 2 == 0 else reversed(sides):
            with setting.directory() as path:
                turns[name].append(sides[name](path))
    name = f"B9 {durability}/{synchronous}, {load.threads} thread{'s' if load.threads > 1 else ''}"
    beside = f"{BESIDE}, {durability}"
    must, aim = BOUNDS[durability]
    judged = load.threads == 1
    yield median_figure(
        f"{name}: Raw / TEXT", _ratios(turns["raw"], turns["sqlite"]), "x",
        must=must if judged else None, aim=aim if judged else None, beside=beside,
    )  # fmt: skip
    yield median_figure(
        f"{name}: mappings / TEXT", _ratios(turns["mapping"], turns["sqlite"]), "x", beside=beside
    )
    titles = {
        "raw": "topics, Raw", "mapping": "topics, mappings", "sqlite": f"SQLite {synchronous}",
        "floor": "bare pwrite+fdatasync" if durability == "fsync" else "bare pwrite",
    }  # fmt: skip
    for side, title in titles.items():
        yield _made_of(f"  {title}", turns[side])


def _ratios(ours: Sequence[Turn], theirs: Sequence[Turn]) -> list[float]:
    return [our.rate / their.rate for our, their in zip(ours, theirs, strict=True)]


def _made_of(name: str, turns: Sequence[Turn]) -> Figure:
    p50 = statistics.median(quantile(turn.latencies, 0.5) for turn in turns) * 1e6
    p99 = statistics.median(quantile(turn.latencies, 0.99) for turn in turns) * 1e6
    cpu = statistics.median(turn.cpu_us for turn in turns)
    beside = f"a batch p50 {p50:.0f} µs, p99 {p99:.0f} µs; {cpu:.2f} µs CPU a record"
    return median_figure(name, [turn.rate / 1000 for turn in turns], "k/s", beside=beside)


# The sides.


def _topics(path: Path, load: Load, durability: str, form: str) -> Turn:
    with topics.open(path) as store:
        topic = store.create("bench", durability=durability)
        turn = _timed(topic.put_many, load, form)
        assert topic.state().head_seq == len(load.forms[form]) * BATCH
    return turn


def _sqlite(path: Path, load: Load, synchronous: str) -> Turn:
    database = sqlite3.connect(path / "bench.db", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={synchronous}")
    database.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, data TEXT NOT NULL)")
    lock = threading.Lock()

    def put(batch: Sequence[tuple[str]]) -> None:
        with lock:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO log (data) VALUES (?)", batch)
            database.execute("COMMIT")

    turn = _timed(put, load, "row")
    (count,) = database.execute("SELECT count(*) FROM log").fetchone()
    assert count == len(load.forms["row"]) * BATCH
    database.close()
    return turn


def _bare(path: Path, load: Load, *, sync: bool) -> Turn:
    """The same number of bytes as our frames, into a file of zeros that is there already."""
    fd = os.open(path / "bare", os.O_RDWR | os.O_CREAT)
    zeros = bytes(1 << 20)
    for _ in range(len(load.forms["chunk"]) * FRAME_BYTES // len(zeros) + 1):
        os.write(fd, zeros)
    os.fsync(fd)
    lock, at = threading.Lock(), 0

    def put(chunk: bytes) -> None:
        nonlocal at
        with lock:
            os.pwrite(fd, chunk, at)
            at += len(chunk)
            if sync:
                os.fdatasync(fd)

    turn = _timed(put, load, "chunk")
    os.close(fd)
    return turn


def _timed(put: Put, load: Load, form: str) -> Turn:
    """Warm up, then write the rest from as many threads as asked, each its own share of the batches."""
    batches = load.forms[form]
    for batch in batches[: load.warm]:
        put(batch)
    timed = batches[load.warm :]
    latencies: list[float] = []
    begun, cpu_begun = time.perf_counter(), time.process_time()
    if load.threads == 1:
        _write(put, timed, latencies)
    else:
        _write_from_threads(put, timed, latencies, load.threads)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    assert len(latencies) == len(timed)
    records = len(timed) * BATCH
    return Turn(records / took, cpu / records * 1e6, latencies)


def _write(put: Put, batches: Sequence[Any], latencies: list[float]) -> None:
    now, add = time.perf_counter, latencies.append
    for batch in batches:
        begun = now()
        put(batch)
        add(now() - begun)


def _write_from_threads(put: Put, batches: Sequence[Any], latencies: list[float], threads: int) -> None:
    workers = [
        threading.Thread(target=_write, args=(put, batches[number::threads], latencies))
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
