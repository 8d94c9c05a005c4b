"""B9q: an embedded queue, put + get + ack of 200 B by 1 and by 100, by one thread and by eight, beside SQLite and two
libraries that stand on it.

`fsync` against `synchronous=FULL`, `disk` against `NORMAL`. The SQLite side is the best queue that an expert writes on
it: WAL, one index that serves the claim, claims by one UPDATE … RETURNING, one transaction a batch, and with eight
threads one connection behind one lock, which is faster than eight whose busy handler sleeps. The libraries have what
they have: neither takes more than one job at a time, and persist-queue marks what is acked and removes it later.

They are no dependencies: `pip install --target DIR persist-queue litequeue`, and `PYTHONPATH=DIR ci/bench b9q`.
"""

from __future__ import annotations

import importlib
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.job_sides import PAYLOAD, QUEUE, Embedded, MissingPeer
from ci.benchmarks.payload import BATCH, PAYLOAD_BYTES
from ci.benchmarks.turns import take_turns

CLASSES = {"fsync": "FULL", "disk": "NORMAL"}
THREADS = (1, 8)
OURS = "topics"
LEASE_MS = 30_000

Round = Callable[[int], None]  # so many jobs put, taken and done
Opened = Callable[
    [Path, str], AbstractContextManager[Callable[[], Round]]
]  # where, which class; a round a thread


@dataclass(frozen=True)
class Turn:
    """Jobs a second, and microseconds of the process a job. `missing`: why there are none."""

    rate: float = 0.0
    cpu_us: float = 0.0
    missing: str = ""


@dataclass(frozen=True)
class Load:
    """`rounds` of `count` jobs each, over so many threads."""

    count: int
    threads: int
    rounds: int


def figures(setting: Setting) -> Iterator[Figure]:
    """Ratios first, then what they are made of. At `fsync` by one the medium decides, so that is judged by level."""
    for durability in ("disk",) if setting.quick else CLASSES:
        for threads in (1,) if setting.quick else THREADS:
            for count in (1, BATCH):
                full = (1600 if durability == "disk" else 400) if count == 1 else 80
                yield from _compared(setting, durability, Load(count, threads, setting.count(full, 8)))


def _compared(setting: Setting, durability: str, load: Load) -> Iterator[Figure]:
    turns = take_turns(
        setting, {name: partial(_turn, opened, durability, load) for name, opened in SIDES.items()}
    )
    name = f"B9q {durability}, by {load.count}, {load.threads} thread{'s' if load.threads > 1 else ''}"
    beside = f"{PAYLOAD_BYTES} B, put + get + ack, {durability}/{CLASSES[durability]}"
    must = 1.0 if durability == "disk" else 0.9
    for side, theirs in turns.items():
        if side != OURS and not theirs[0].missing:
            ratios = [our.rate / their.rate for our, their in zip(turns[OURS], theirs, strict=True)]
            yield median_figure(f"{name}: topics / {side}", ratios, "x", must=must, beside=beside)
    for side, of in turns.items():
        if of[0].missing:
            yield Figure(f"  {side}", 0.0, "k/s", beside=f"skipped: {of[0].missing}")
        else:
            cpu = statistics.median(turn.cpu_us for turn in of)
            yield median_figure(
                f"  {side}", [turn.rate / 1000 for turn in of], "k/s", beside=f"{cpu:.1f} µs CPU a job"
            )


def _turn(opened: Opened, durability: str, load: Load, path: Path) -> Turn:
    rounds_each = max(load.rounds // load.threads, 1)
    jobs = rounds_each * load.threads * load.count
    try:
        with opened(path, durability) as hand:
            rounds = [hand() for _ in range(load.threads)]
            for done in rounds:
                done(load.count)  # its first files are small
            threads = [
                threading.Thread(target=_work, args=(done, load.count, rounds_each)) for done in rounds
            ]
            begun, cpu_begun = time.perf_counter(), time.process_time()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
            return Turn(jobs / took, cpu / jobs * 1e6)
    except MissingPeer as missing:
        return Turn(missing=str(missing))


def _work(done: Round, count: int, rounds: int) -> None:
    for _ in range(rounds):
        done(count)


# The sides.


@contextmanager
def _topics(path: Path, durability: str) -> Iterator[Callable[[], Round]]:
    with topics.open(path / "data") as store:
        store.create(QUEUE, type="queue", durability=durability)

        def hand() -> Round:
            side = Embedded(store.queue(QUEUE))

            def done(count: int) -> None:
                side.put(count)
                side.claim(count)
                if side.was_claimed():  # another thread may have been faster
                    side.ack()

            return done

        yield hand


@contextmanager
def _sqlite(path: Path, durability: str) -> Iterator[Callable[[], Round]]:
    database = sqlite3.connect(path / "bench.db", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={CLASSES[durability]}")
    database.execute(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, until INTEGER NOT NULL DEFAULT 0, data TEXT)"
    )
    database.execute("CREATE INDEX ready ON jobs (until, id)")
    lock = threading.Lock()

    def many(statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with lock:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(statement, rows)
            database.execute("COMMIT")

    def done(count: int) -> None:
        many("INSERT INTO jobs (data) VALUES (?)", [(PAYLOAD,)] * count)
        now_ms = time.time_ns() // 1_000_000
        with lock:
            taken = database.execute(
                "UPDATE jobs SET until = ? WHERE id IN (SELECT id FROM jobs WHERE until < ? ORDER BY until, id LIMIT ?)"
                " RETURNING id, data",
                (now_ms + LEASE_MS, now_ms, count),
            ).fetchall()
        many("DELETE FROM jobs WHERE id = ?", [(number,) for number, _ in taken])

    yield lambda: done
    database.close()


@contextmanager
def _persist_queue(path: Path, durability: str) -> Iterator[Callable[[], Round]]:
    library = _peer("persistqueue", "persist-queue")
    queue = library.SQLiteAckQueue(str(path / "peer"), multithreading=True)
    # It has no option for that.
    queue._putter.execute(f"PRAGMA synchronous={CLASSES[durability]}")  # noqa: SLF001 -- a peer's, set up as ours is

    def done(count: int) -> None:
        for _ in range(count):
            queue.put(PAYLOAD)
        taken = [queue.get(raw=True)["pqid"] for _ in range(count)]
        for number in taken:
            queue.ack(id=number)

    yield lambda: done
    queue.close()


@contextmanager
def _litequeue(path: Path, durability: str) -> Iterator[Callable[[], Round]]:
    library = _peer("litequeue", "litequeue")
    queue = library.LiteQueue(path / "peer.db")
    queue.conn.execute(f"PRAGMA synchronous={CLASSES[durability]}")
    lock = threading.Lock()

    def done(count: int) -> None:
        with lock, queue.transaction():
            for _ in range(count):
                queue.put(PAYLOAD)
        for _ in range(count):
            with lock:
                message = queue.pop()
            with lock:
                queue.done(message.message_id)

    yield lambda: done
    queue.conn.close()


def _peer(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPeer(f"{package} is not installed") from None


SIDES: Mapping[str, Opened] = {
    OURS: _topics, "SQLite": _sqlite, "persist-queue": _persist_queue, "litequeue": _litequeue,
}  # fmt: skip
