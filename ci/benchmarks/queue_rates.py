"""B9q: an embedded queue, put + get + ack of 200 B by 1 and by 100, by one thread and by eight, beside SQLite and two
libraries that stand on it.

`fsync` against `synchronous=FULL`, `disk` against `NORMAL`. The SQLite side is the best queue that an expert writes on
it: WAL, one index that serves the claim, claims by one UPDATE … RETURNING, one transaction a batch, and with eight
threads one connection behind one lock, which is faster than eight whose busy handler sleeps. The libraries have what
they have: neither takes more than one job at a time, and persist-queue marks what is acked and removes it later.

They are no dependencies: `pip install --target DIR persist-queue litequeue`, and `PYTHONPATH=DIR ci/bench b9q`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.job_sides import PAYLOADS, SYSTEMS
from ci.benchmarks.payload import BATCH
from ci.benchmarks.turns import take_turns
from topics.cli.bench.connection import Connection
from topics.cli.bench.in_process import Library, QueueCalls, litequeue, persist_queue
from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.cli.bench.processes import MissingPeer
from topics.cli.bench.systems import QUEUE, Running

CLASSES = {"fsync": "FULL", "disk": "NORMAL"}
THREADS = (1, 8)
OURS = "topics"

Opened = Callable[[Path, str], AbstractContextManager[Running]]  # where, which class


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
        with opened(path, durability) as running:
            hands = [running.connect(QUEUE) for _ in range(load.threads)]
            for hand in hands:
                _work(hand, load.count, 1)  # its first files are small
            threads = [threading.Thread(target=_work, args=(hand, load.count, rounds_each)) for hand in hands]
            begun, cpu_begun = time.perf_counter(), time.process_time()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
            return Turn(jobs / took, cpu / jobs * 1e6)
    except MissingPeer as missing:
        return Turn(missing=str(missing))


def _work(hand: Connection, count: int, rounds: int) -> None:
    """So many jobs put, taken and done."""
    for _ in range(rounds):
        hand.put(count)
        hand.claim(count)
        if hand.answer():  # another thread may have been faster
            hand.ack()


# The sides.


def _topics(path: Path, durability: str) -> AbstractContextManager[Running]:
    return SYSTEMS[f"topics embedded, {durability}"](path / "side", PAYLOADS)


def _sqlite(path: Path, durability: str) -> AbstractContextManager[Running]:
    return SYSTEMS[f"SQLite, {CLASSES[durability]}"](path / "side", PAYLOADS)


@contextmanager
def _library(make: Callable[[Path, str], QueueCalls], path: Path, durability: str) -> Iterator[Running]:
    calls = make(path / "peer", CLASSES[durability])
    yield Running(lambda _: Library(calls, PAYLOADS))


SIDES: Mapping[str, Opened] = {
    OURS: _topics, "SQLite": _sqlite, "persist-queue": partial(_library, persist_queue),
    "litequeue": partial(_library, litequeue),
}  # fmt: skip
