"""What writes and reads of the tail feel of a cold tier that is slow: nothing, if it keeps its promise (storage 6).

One store in this process, class `disk`; its older segments are in a cold store that takes a second for each read. A
writer puts single records, a reader reads the newest one; both are timed without readers of the oldest records, then
beside eight of them. Every turn measures both, one behind the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ci.benchmarks.figure import Figure, Setting, median_figure, quantile
from tests.support.faulty_store import FaultyStore
from topics.cli.bench.payload import sensor_reading
from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.store.opened import StoreOptions
from topics.store.opening import open_store

READ_S: Final = 1.0
READERS: Final = 8
RECORDS: Final = 20_000
SEGMENT: Final = 1000
RATIO_MAX: Final = 2.0  # two threads more and a busy machine may cost this much, a second's wait never does
RATIO_AIM: Final = 1.2


def figures(setting: Setting) -> Iterator[Figure]:
    """p99 of both, alone and beside cold reads, and the ratios."""
    took: dict[str, list[float]] = {name: [] for name in ("write", "tail", "write cold", "tail cold")}
    cold_reads = 0
    seconds = 0.3 if setting.quick else 3.0
    for _ in range(setting.count(min(setting.runs, 5), 1)):
        with setting.directory() as path, _store(path) as (store, slow):
            for suffix, readers in (("", 0), (" cold", READERS)):
                write_s, tail_s, pages = _timed(store, slow, seconds=seconds, readers=readers)
                took["write" + suffix].append(quantile(write_s, 0.99) * 1000)
                took["tail" + suffix].append(quantile(tail_s, 0.99) * 1000)
                cold_reads += pages
    beside = f"{READERS} readers of the oldest records, {READ_S:g} s a read, {cold_reads} pages served"
    for name, title in (("write", "p99 of a write"), ("tail", "p99 of a read of the tail")):
        alone, busy = took[name], took[f"{name} cold"]
        yield median_figure(f"  {title}, alone", alone, "ms")
        yield median_figure(f"  {title}, beside cold reads", busy, "ms", beside=beside)
        ratios = [with_cold / without for with_cold, without in zip(busy, alone, strict=True)]
        yield median_figure(
            f"cold {title}, beside / alone", ratios, "x", must=RATIO_MAX, aim=RATIO_AIM, less=True
        )


@contextmanager
def _store(path: Path) -> Iterator[tuple[Store, FaultyStore]]:
    for name in ("data", "cold"):
        (path / name).mkdir()
    disk, cold = OsDisk(path / "data"), OsDisk(path / "cold")
    slow = FaultyStore(LocalSegmentStore(cold, "cold", close=cold.close))
    opened = open_store(
        disk,
        SystemClock(),
        SystemEntropy(),
        where=str(path),
        machine_restarted=True,
        confirm=lambda _: None,
        options=StoreOptions(
            segments=SegmentRules(records_max=SEGMENT), hot=HotRules(retain_segments=1), min_free_bytes=0
        ),
        cold=slow,
    )
    with Store(opened, disk) as store:
        topic = store.topic("t")
        for start in range(0, RECORDS, SEGMENT):
            topic.put_many([{"data": {"n": sensor_reading(n)}} for n in range(start, start + SEGMENT)])
        store.sync()
        store.checkpoint()
        while opened.cold.segments() < RECORDS // SEGMENT - 1:
            time.sleep(0.1)  # the store moves them by itself
        yield store, slow
    disk.close()


def _timed(
    store: Store, slow: FaultyStore, *, seconds: float, readers: int
) -> tuple[list[float], list[float], int]:
    """How long each write and each read of the tail took, and how many pages of cold records were served."""
    over, pages, topic = threading.Event(), list[int](), store.topic("t")
    slow.waits = lambda operation: time.sleep(READ_S) if operation == "read_range" else None

    def read_oldest() -> None:
        while not over.is_set():
            pages.append(len(topic.read(limit=10).records))

    threads = [threading.Thread(target=read_oldest) for _ in range(readers)]
    for thread in threads:
        thread.start()
    head = store.topic("t").put({"n": 0}).head_seq
    write_s, tail_s = list[float](), list[float]()
    timers = [
        threading.Thread(target=_repeat, args=(lambda: topic.put({"n": 1}), write_s, seconds)),
        threading.Thread(
            target=_repeat, args=(lambda: topic.read(from_seq=head - 1, limit=1), tail_s, seconds)
        ),
    ]
    for timer in timers:
        timer.start()
    for timer in timers:
        timer.join()
    over.set()
    for thread in threads:
        thread.join()
    return write_s, tail_s, len(pages)


def _repeat(call: Callable[[], object], took_s: list[float], seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < ends:
        call()
        took_s.append(time.perf_counter() - begun)
        time.sleep(0.001)
