"""B8, B8b and B8c: jobs put, claimed and done, beside what else one would take for it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from websockets.sync.client import connect

from ci.benchmarks.figure import Figure, Setting, median_figure, quantile
from ci.benchmarks.job_sides import PAYLOADS, SYSTEMS, Opened, Sockets, put, sockets, work
from ci.benchmarks.payload import BATCH
from ci.benchmarks.served import ask, topics_serve
from ci.benchmarks.turns import take_turns
from topics.cli.bench.connection import HOST
from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.cli.bench.processes import MissingPeer, process_cpu_s
from topics.cli.bench.systems import QUEUE

SERVED: Mapping[str, Opened] = {
    "topics, WebSocket": sockets,
    "Redis Streams": SYSTEMS["Redis Streams, everysec"],
    "NATS JetStream": SYSTEMS["NATS JetStream, file"],
    "beanstalkd": SYSTEMS["beanstalkd, -f 1000"],
}
IN_PROCESS: Mapping[str, Opened] = {
    "topics, embedded": SYSTEMS["topics embedded, disk"],
    "SQLite": SYSTEMS["SQLite, NORMAL"],
}
CONNECTIONS = 16
IDLE_WORKERS = 1000


@dataclass(frozen=True)
class Turn:
    """Microseconds of CPU a job: by 100 without and with the put, and one by one. `missing`: why there are none."""

    done: float = 0.0
    whole: float = 0.0
    single: float = 0.0
    missing: str = ""


def served(setting: Setting) -> Iterator[Figure]:
    """B8."""
    turns = _turns(setting, SERVED, CONNECTIONS)
    ours, beside = (
        turns["topics, WebSocket"],
        f"{PAYLOAD_BYTES} B, disk, {CONNECTIONS} connections, server CPU a job",
    )
    yield median_figure(
        "B8 claim 100 + ack 100",
        [turn.done for turn in ours],
        "µs",
        must=8.0,
        aim=5.0,
        less=True,
        beside=beside,
        cpu=True,
    )
    yield median_figure(
        "B8 put + claim + ack one by one", [turn.single for turn in ours], "µs", must=170.0, aim=110.0, less=True,
        beside=beside, cpu=True,
    )  # fmt: skip
    yield from _made_of(turns)
    yield from _made_of(_turns(setting, SERVED, 1), ", 1 connection")


def in_process(setting: Setting) -> Iterator[Figure]:
    """B8b."""
    turns = _turns(setting, IN_PROCESS, 1)
    ours, beside = turns["topics, embedded"], f"{PAYLOAD_BYTES} B, Raw, disk, 1 thread, CPU a job"
    yield median_figure(
        "B8b put + claim + ack by 100", [turn.whole for turn in ours], "µs", must=8.0, aim=5.0, less=True,
        beside=beside, cpu=True,
    )  # fmt: skip
    yield median_figure(
        "B8b put + claim + ack one by one", [turn.single for turn in ours], "µs", must=220.0, aim=120.0,
        less=True, beside=beside, cpu=True,
    )  # fmt: skip
    yield from _made_of(turns)


def handed_out(setting: Setting) -> Iterator[Figure]:
    """B8c."""
    beside = f"{PAYLOAD_BYTES} B, disk, WebSocket"
    waits = take_turns(setting, {"wait": lambda path: _put_to_handler(setting, path)})["wait"]
    yield median_figure(
        "B8c put to a waiting worker's handler, p50", [p50 for p50, _ in waits], "ms", must=1.0, aim=0.5, less=True,
        beside=beside,
    )  # fmt: skip
    yield median_figure("  p99", [p99 for _, p99 in waits], "ms")
    many, few = setting.count(1_000_000, 2000), 1000
    costs = take_turns(
        setting, {"many": lambda path: _claims(path, many), "few": lambda path: _claims(path, few)}
    )
    yield median_figure(
        f"B8c claim 100 of {many} ready / of {few}",
        [large / small for large, small in zip(costs["many"], costs["few"], strict=True)], "x", must=1.2, less=True,
        beside=f"{PAYLOAD_BYTES} B, disk, embedded, CPU, with the ack",
    )  # fmt: skip
    with setting.directory() as path:
        samples = _idle_cpu(setting, path)
    beside = f"WebSocket, nothing is put; {len(samples)} s"
    yield median_figure(
        f"B8c CPU of {IDLE_WORKERS} waiting workers, a second",
        samples,
        "ms",
        must=1.0,
        less=True,
        beside=beside,
    )
    yield Figure("  mean, with the pings that each gets", statistics.mean(samples), "ms", beside=beside)


def _turns(setting: Setting, opened: Mapping[str, Opened], connections: int) -> dict[str, list[Turn]]:
    return take_turns(
        setting, {name: partial(_turn, setting, of, connections) for name, of in opened.items()}
    )


def _turn(setting: Setting, opened: Opened, connections: int, path: Path) -> Turn:
    batches, singles = (setting.count(each // connections, 1) for each in (160, 1600))
    with ExitStack() as stack:
        try:
            running = stack.enter_context(opened(path / "side", PAYLOADS))
        except MissingPeer as missing:
            return Turn(missing=str(missing))
        sides = [stack.enter_context(closing(running.connect(QUEUE))) for _ in range(connections)]
        cpu_s = running.cpu_s
        assert cpu_s is not None
        for _ in range(setting.count(20 // connections + 1, 1)):  # its first files are small
            put(sides, BATCH)
            work(sides, BATCH)
        put_from = cpu_s()
        for _ in range(batches):
            put(sides, BATCH)
        done_from = cpu_s()
        for _ in range(batches):
            work(sides, BATCH)
        single_from = cpu_s()
        for _ in range(singles):
            put(sides, 1)
            work(sides, 1)
        ended = cpu_s()
    jobs = batches * connections * BATCH / 1e6
    return Turn(
        (single_from - done_from) / jobs,
        (single_from - put_from) / jobs,
        (ended - single_from) / (singles * connections) * 1e6,
    )


def _made_of(turns: Mapping[str, list[Turn]], how: str = "") -> Iterator[Figure]:
    for name, of in turns.items():
        if of[0].missing:
            yield Figure(f"  {name}{how}", 0.0, "µs", beside=f"skipped: {of[0].missing}")
            continue
        single, done, whole = (
            statistics.median(getattr(turn, field) for turn in of) for field in ("single", "done", "whole")
        )
        beside = f"one by one; by 100: claim + ack {done:.2f} µs, with put {whole:.2f} µs"
        yield Figure(f"  {name}{how}", single, "µs", beside=beside)


def _put_to_handler(setting: Setting, path: Path) -> tuple[float, float]:
    """Milliseconds from before a put to the job in a worker's hands, p50 and p99."""
    waits = []
    with (
        topics_serve(path / "data") as server,
        connect(f"ws://{HOST}:{server.port}/v0/ws", compression=None) as worker,
    ):
        ask(server.port, "PUT", f"/v0/topics/{QUEUE}", {"type": "queue", "durability": "disk"})
        worker.send(f'{{"op":"work","topic":"{QUEUE}","node":"w","max":8}}')
        worker.recv()
        producer = Sockets(server.port)
        for number in range(1, setting.count(300, 5) + 1):
            begun = time.perf_counter()
            producer.put(1)
            worker.recv()  # mostly before the producer has its answer
            waits.append((time.perf_counter() - begun) * 1e3)
            worker.send(f'{{"op":"ack","topic":"{QUEUE}","node":"w","seqs":[{number}]}}')
            worker.recv()
            producer.answer()
        producer.close()
    return quantile(waits, 0.5), quantile(waits, 0.99)


def _claims(path: Path, ready: int) -> float:
    """Seconds of CPU for claims of 100 from a queue with so many ready."""
    with SYSTEMS["topics embedded, disk"](path / "side", PAYLOADS) as running:
        sides = [running.connect(QUEUE)]
        for _ in range(ready // 1000):
            put(sides, 1000)
        work(sides, BATCH)
        samples = []
        for _ in range(40):
            put(sides, BATCH)
            begun = time.thread_time()
            work(sides, BATCH)
            samples.append(time.thread_time() - begun)
    return quantile(samples, 0.5)


def _idle_cpu(setting: Setting, path: Path) -> list[float]:
    """Milliseconds of the server's CPU in each second while its workers have nothing to do.

    A silent connection is asked every 20 s whether it lives, those that came together at about the same time.
    """
    count, second = setting.count(IDLE_WORKERS, 5), 0.1 if setting.quick else 1.0
    with topics_serve(path / "data") as server, ExitStack() as stack:
        ask(server.port, "PUT", f"/v0/topics/{QUEUE}", {"type": "queue", "durability": "disk"})
        for number in range(count):
            worker = stack.enter_context(connect(f"ws://{HOST}:{server.port}/v0/ws", compression=None))
            worker.send(f'{{"op":"work","topic":"{QUEUE}","node":"w{number}"}}')
            worker.recv()
        time.sleep(0.5)
        clock = []
        for _ in range(setting.count(40, 2) + 1):
            clock.append(process_cpu_s(server.pid))
            time.sleep(second)
        return [(after - before) / second * 1e3 for before, after in pairwise(clock)]
