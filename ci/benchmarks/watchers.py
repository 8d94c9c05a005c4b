"""The delivery generator: one writer, many watchers, in one process; how long after a write a watcher has its record.

Every watcher waits at the tail of one topic, on a connection of its own. The clock runs from just before a write is
sent until the record is there. One thread reads all connections one after another, so with many watchers part of the
time is its own.

usage: python -m ci.benchmarks.watchers PLAN     a JSON object, see `WatchPlan`; prints `load.Result` as JSON
"""

from __future__ import annotations

import gc
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ci.benchmarks.figure import quantile
from ci.benchmarks.load import POLL_S, Result, topic_name
from ci.benchmarks.served import ask
from ci.benchmarks.watched_sides import SIDES, Topics
from topics.cli.bench.connection import Connection, Unexpected
from topics.cli.bench.processes import process_cpu_s

SETTLE_S = 0.004  # for the server to be at rest again, and as much again
SETTLE_EACH_S = 0.0001  # a watcher
FULL_S = 0.3  # until there is no more room for who does not read


class WatchPlan(msgspec.Struct, kw_only=True):
    """`side`: of SIDES. `topics`: of each watcher its own so many, one after another; 0 for all the same one.
    `pairs`: so often all is measured, alone and beside one more watcher who does not read, over a topic that was
    `filled` with so many records. `idle_s`: nothing is written for so long, and what that costs is measured in place of
    latencies.
    """

    port: int
    pid: int
    watchers: int
    side: str = "topics"
    topics: int = 0
    filled: int = 0
    pairs: int = 0
    warm: int = 0
    writes: int = 0
    idle_s: float = 0.0


class Idle(msgspec.Struct, kw_only=True):
    """What watchers cost that are told nothing. `bytes`: of anonymous memory, all together."""

    seconds: float
    cpu_s: float
    bytes: int


class Pairs(msgspec.Struct, kw_only=True):
    """Latencies in pairs of (p50, p99), in microseconds: alone, and beside one who does not read."""

    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []


class Delivery:
    """The watchers of one side."""

    def __init__(self, side: Callable[[int], Connection], port: int, watchers: int) -> None:
        self.writer = side(port)
        self.by_fd = {each.fileno(): each for each in (side(port) for _ in range(watchers))}
        self.poller = select.epoll()
        for fd, watcher in self.by_fd.items():
            watcher.watch()
            self.poller.register(fd, select.EPOLLIN)

    def once(self) -> list[float]:
        """One write; the latency of each watcher."""
        time.sleep(SETTLE_S + SETTLE_EACH_S * len(self.by_fd))
        latencies: list[float] = []
        begun = time.perf_counter()
        self.writer.put(1)
        while len(latencies) < len(self.by_fd):
            events = self.poller.poll(POLL_S)
            if not events:
                raise Unexpected(f"{len(self.by_fd) - len(latencies)} have nothing after {POLL_S:.0f} s")
            for fd, _ in events:
                if self.by_fd[fd].answer() != 1:
                    raise Unexpected("a watcher has more than what was written")
                latencies.append(time.perf_counter() - begun)
        self.writer.answer()
        for watcher in self.by_fd.values():
            watcher.watch()
        return latencies


def anonymous_bytes(pid: int) -> int:
    """What a process has beside files mapped into it."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def idle(plan: WatchPlan) -> Idle:
    before, side = anonymous_bytes(plan.pid), Topics(plan.port)
    own = [range(number * plan.topics, (number + 1) * plan.topics) or [0] for number in range(plan.watchers)]
    held_open = [side.watch_topics([topic_name(topic) for topic in topics]) for topics in own]
    time.sleep(min(1.0, plan.idle_s))
    begun, cpu, held = time.perf_counter(), process_cpu_s(plan.pid), anonymous_bytes(plan.pid)
    time.sleep(plan.idle_s)
    took = time.perf_counter() - begun
    assert len(held_open) == plan.watchers
    return Idle(seconds=took, cpu_s=process_cpu_s(plan.pid) - cpu, bytes=held - before)


def run(plan: WatchPlan) -> Result:
    delivery = Delivery(SIDES[plan.side], plan.port, plan.watchers)
    for _ in range(plan.warm):
        delivery.once()
    latencies: list[float] = []
    begun, cpu, server_cpu = time.perf_counter(), time.process_time(), process_cpu_s(plan.pid)
    for _ in range(plan.writes):
        latencies += delivery.once()
    took, server_cpu = time.perf_counter() - begun, process_cpu_s(plan.pid) - server_cpu
    busy = (time.process_time() - cpu) / took
    return Result(
        requests=len(latencies),
        records=len(latencies),
        seconds=took,
        server_cpu_s=server_cpu,
        busy=busy,
        p50_us=quantile(latencies, 0.5) * 1e6,
        p99_us=quantile(latencies, 0.99) * 1e6,
        answer_bytes=0,
    )


def beside_stuck(plan: WatchPlan) -> Pairs:
    """Alone and beside, beside and alone, and so on. Who did not read does so then, and is given everything."""
    side, pairs = Topics(plan.port), Pairs()
    side.fill(plan.filled)
    delivery = Delivery(SIDES["topics"], plan.port, plan.watchers)
    for _ in range(plan.warm):
        delivery.once()
    for pair in range(plan.pairs):
        for is_beside in (False, True) if pair % 2 == 0 else (True, False):
            stuck = side.watch_stuck() if is_beside else None
            time.sleep(FULL_S)
            latencies = [latency * 1e6 for _ in range(plan.writes) for latency in delivery.once()]
            found = pairs.beside if is_beside else pairs.alone
            found.append((quantile(latencies, 0.5), quantile(latencies, 0.99)))
            if stuck is not None:
                with stuck:
                    head = ask(plan.port, "GET", f"/v0/topics/{topic_name(0)}")["head_seq"]
                    assert isinstance(head, int)
                    side.read_on(stuck, head)
    return pairs


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=WatchPlan)
    gc.disable()
    result: Result | Idle | Pairs = (
        idle(plan) if plan.idle_s else beside_stuck(plan) if plan.pairs else run(plan)
    )
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main()
