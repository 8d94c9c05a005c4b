"""The table of workloads, and how one is run: closed loops, for so many seconds, after a warm-up that is not counted.

Each request is sent when the one before it on the same connection is answered. Sockets are served by one thread; calls
of a library, which return when they are done, have a thread a connection.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Final

import attrs

from topics.cli.bench.connection import ANSWER_S, Connection, Unexpected
from topics.cli.bench.systems import LOGS, QUEUE, Running

BATCH: Final = 100
PRODUCERS: Final = 16
PAGE: Final = 1000
WATCHERS: Final = 100
_WRITES, _PAGES, _WATCHED = LOGS
_PAGES_FILLED: Final = 10
_WARM: Final = 0.25  # of the time that is counted
_CLAIMS: Final = 20  # between two puts that are not counted
_LONGEST: Final = 3  # times the time that is counted: putting jobs takes its time, too
_REST_S: Final = 0.001  # for a server to be at rest again before a record is delivered
_REST_EACH_S: Final = 0.00005  # a watcher


@attrs.define
class Sample:
    """What was counted. `latencies`: seconds from a request to its answer, or from a write to each of its deliveries.
    `busy`: the part of a core that the generator took.
    """

    records: int = 0
    seconds: float = 0.0
    cpu_s: float | None = None
    own_cpu_s: float = 0.0
    latencies: list[float] = attrs.field(factory=list)

    @property
    def busy(self) -> float:
        return self.own_cpu_s / self.seconds if self.seconds else 0.0

    @contextmanager
    def counted(self, running: Running) -> Iterator[None]:
        cpu_s = running.cpu_s
        theirs, ours = cpu_s and cpu_s(), time.process_time()
        begun = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begun
        self.own_cpu_s += time.process_time() - ours
        if cpu_s is not None and theirs is not None:
            self.cpu_s = (self.cpu_s or 0.0) + cpu_s() - theirs


@attrs.frozen
class BenchWorkload:
    """`needs`: what a system must be able to do. `is_delivery`: its figure is latency, not a rate."""

    key: str
    title: str
    needs: frozenset[str]
    run: Callable[[Running, float], Sample]
    is_delivery: bool = False


def write(connections: int, count: int, running: Running, seconds: float) -> Sample:
    """So many producers, so many records a request."""
    sample = Sample()
    with _connected(running, _WRITES, connections) as producers:
        _loop(producers, count, seconds * _WARM)
        with sample.counted(running):
            sample.latencies = _loop(producers, count, seconds)
    sample.records = len(sample.latencies) * count
    return sample


def read(running: Running, seconds: float) -> Sample:
    """Page by page from the first record on, and from the beginning again, by one reader."""
    sample = Sample()
    with _connected(running, _PAGES, 1) as (reader,):
        if _PAGES not in running.filled:
            _put(reader, PAGE * _PAGES_FILLED)
            running.filled.add(_PAGES)
        for _ in range(_PAGES_FILLED + 1):  # the last of them finds nothing
            reader.read(PAGE)
            reader.answer()
        deadline = time.perf_counter() + seconds
        with sample.counted(running):
            while (begun := time.perf_counter()) < deadline or not sample.latencies:
                reader.read(PAGE)
                if found := reader.answer():
                    sample.records += found
                    sample.latencies.append(time.perf_counter() - begun)
    return sample


def work(count: int, running: Running, seconds: float) -> Sample:
    """Claim so many and ack them, by one worker, of jobs that are put beforehand."""
    sample, begun = Sample(), time.perf_counter()
    with _connected(running, QUEUE, 2) as (producer, worker):
        _put(producer, count)
        _claim_and_ack(worker, count)
        while not sample.latencies or (
            sample.seconds < seconds and time.perf_counter() - begun < seconds * _LONGEST
        ):
            _put(producer, count * _CLAIMS)
            deadline = time.perf_counter() + seconds - sample.seconds
            with sample.counted(running):
                for _ in range(_CLAIMS):
                    at = time.perf_counter()
                    _claim_and_ack(worker, count)
                    now = time.perf_counter()
                    sample.latencies.append(now - at)
                    if now > deadline:
                        break
    sample.records = len(sample.latencies) * count
    return sample


def deliver_live(watchers: int, running: Running, seconds: float) -> Sample:
    """One record at a time, to everybody who waits for it."""
    sample, rest_s = Sample(), _REST_S + _REST_EACH_S * watchers
    with (
        _connected(running, _WATCHED, 1) as (producer,),
        _connected(running, _WATCHED, watchers) as watching,
        selectors.DefaultSelector() as selector,
    ):
        for watcher in watching:
            selector.register(watcher, selectors.EVENT_READ)
            watcher.watch()
        _deliver(producer, watching, selector, rest_s)
        deadline = time.perf_counter() + seconds
        with sample.counted(running):
            while time.perf_counter() < deadline or not sample.latencies:
                sample.latencies += _deliver(producer, watching, selector, rest_s)
    sample.records = len(sample.latencies)
    return sample


def _needs(*what: str) -> frozenset[str]:
    return frozenset(what)


WORKLOADS: Final = (
    BenchWorkload("write", "1 producer", _needs(), partial(write, 1, 1)),
    BenchWorkload("write-16", f"{PRODUCERS} producers", _needs(), partial(write, PRODUCERS, 1)),
    BenchWorkload(
        "write-batch", f"{PRODUCERS}, by {BATCH}", _needs("batch"), partial(write, PRODUCERS, BATCH)
    ),
    BenchWorkload("read", f"read by {PAGE}", _needs("read"), read),
    BenchWorkload("job", "jobs by 1", _needs("jobs"), partial(work, 1)),
    BenchWorkload("job-batch", f"jobs by {BATCH}", _needs("jobs", "batch"), partial(work, BATCH)),
    BenchWorkload("deliver", "1 watcher", _needs("watch"), partial(deliver_live, 1), is_delivery=True),
    BenchWorkload(
        "fan-out",
        f"{WATCHERS} watchers",
        _needs("fan-out"),
        partial(deliver_live, WATCHERS),
        is_delivery=True,
    ),
)


@contextmanager
def _connected(running: Running, name: str, count: int) -> Iterator[Sequence[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(running.connect(name))) for _ in range(count)]


def _put(connection: Connection, count: int) -> None:
    left = count
    while left:
        at_once = min(left, BATCH)
        connection.put(at_once)
        _expect(connection, at_once)
        left -= at_once


def _claim_and_ack(worker: Connection, count: int) -> None:
    worker.claim(count)
    _expect(worker, count)
    worker.ack()
    _expect(worker, count)


def _expect(connection: Connection, count: int) -> None:
    if (found := connection.answer()) != count:
        raise Unexpected(f"{type(connection).__name__}: an answer was about {found} records, not {count}")


def _loop(producers: Sequence[Connection], count: int, seconds: float) -> list[float]:
    """Seconds that each request took."""
    deadline = time.perf_counter() + seconds
    if len(producers) > 1 and producers[0].fileno() >= 0:
        return _loop_sockets(producers, count, deadline)
    if len(producers) == 1:
        return _loop_one(producers[0], count, deadline)
    with ThreadPoolExecutor(len(producers)) as pool:
        loops = [pool.submit(_loop_one, producer, count, deadline) for producer in producers]
        return [latency for loop in loops for latency in loop.result()]


def _loop_one(producer: Connection, count: int, deadline: float) -> list[float]:
    latencies, now = [], time.perf_counter()
    while True:
        begun = now
        producer.put(count)
        _expect(producer, count)
        now = time.perf_counter()
        latencies.append(now - begun)
        if now >= deadline:
            return latencies


def _loop_sockets(producers: Sequence[Connection], count: int, deadline: float) -> list[float]:
    latencies, now, begun = list[float](), time.perf_counter(), dict[int, float]()
    with selectors.DefaultSelector() as selector:
        for producer in producers:
            selector.register(producer, selectors.EVENT_READ)
            begun[producer.fileno()] = time.perf_counter()
            producer.put(count)
        while now < deadline or not latencies:
            for key, producer in _ready(selector):
                _expect(producer, count)
                now = time.perf_counter()
                latencies.append(now - begun[key])
                begun[key] = now
                producer.put(count)
        for producer in producers:  # what is still on its way counts for nobody
            _expect(producer, count)
    return latencies


def _deliver(
    producer: Connection, watching: Sequence[Connection], selector: selectors.BaseSelector, rest_s: float
) -> list[float]:
    time.sleep(rest_s)
    latencies: list[float] = []
    begun = time.perf_counter()
    producer.put(1)
    while len(latencies) < len(watching):
        for _, watcher in _ready(selector):
            _expect(watcher, 1)
            latencies.append(time.perf_counter() - begun)
    _expect(producer, 1)
    for watcher in watching:
        watcher.watch()
    return latencies


def _ready(selector: selectors.BaseSelector) -> Iterator[tuple[int, Connection]]:
    events = selector.select(ANSWER_S)
    if not events:
        raise Unexpected(f"nothing came within {ANSWER_S:.0f} s")
    for key, _ in events:
        connection = key.fileobj
        yield key.fd, connection  # type: ignore[misc]  # what was registered
