"""The delivery generator: one writer and many watchers in one process; how long after a write a watcher has its record.

Every watcher waits at the tail of one topic, on a stream of server-sent events of its own. The clock runs from just
before a write is sent until the event is there. One thread reads all streams one after another, so with many watchers
part of the time is its own.

usage: python -m ci.benchmarks.watchers PLAN     a JSON object, see `WatchPlan`; prints `load.Result` as JSON
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from pathlib import Path

import msgspec

from ci.benchmarks.figure import quantile
from ci.benchmarks.load import (
    POLL_S,
    RECEIVE_BYTES,
    Connection,
    Result,
    Unexpected,
    process_cpu_s,
    request,
    topic_name,
    write_body,
)

SETTLE_S = 0.004  # for the server to be at rest again, and as much again
SETTLE_EACH_S = 0.0001  # a watcher
_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


class WatchPlan(msgspec.Struct, kw_only=True):
    """`topics`: of each watcher its own so many, one after another; 0 for all the same one. `idle_s`: nothing is
    written for so long, and what that costs is measured in place of latencies.
    """

    port: int
    pid: int
    watchers: int
    topics: int = 0
    warm: int = 0
    writes: int = 0
    idle_s: float = 0.0


class Idle(msgspec.Struct, kw_only=True):
    """What watchers cost that are told nothing. `bytes`: of anonymous memory, all together."""

    seconds: float
    cpu_s: float
    bytes: int


class Watcher:
    """A stream behind its first events: all of it was read."""

    def __init__(self, port: int, topics: list[str]) -> None:
        self.socket = Connection(port, 0).socket
        self.socket.sendall(request("/v0/watch", json.dumps({"topics": {t: {} for t in topics}}).encode()))
        begun = json.loads(self.socket.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])
        self.socket.sendall(_GET % begun["stream_url"].encode())
        came = b""
        while came.count(b"event: caught-up") < len(topics):
            came += self.socket.recv(RECEIVE_BYTES)


class Delivery:
    """The streams and where the head is."""

    def __init__(self, plan: WatchPlan) -> None:
        self.plan = plan
        self.writer = Connection(plan.port, 0)
        self.watchers = [Watcher(plan.port, self.watched(number)) for number in range(plan.watchers)]
        self.by_fd = {each.socket.fileno(): each for each in self.watchers}
        self.poller = select.epoll()
        for fd in self.by_fd:
            self.poller.register(fd, select.EPOLLIN)
        self.write = request("/v0/topics/bench?return_seqs=false", write_body(0, batch=1, rich=False))
        self.head = 0

    def watched(self, number: int) -> list[str]:
        own = range(number * self.plan.topics, (number + 1) * self.plan.topics)
        return [topic_name(topic) for topic in own] or [topic_name(0)]

    def once(self) -> list[float]:
        """One write; the latency of each watcher."""
        time.sleep(SETTLE_S + SETTLE_EACH_S * len(self.watchers))
        latencies, waiting = [], set(self.by_fd)
        expected = b'"records":[{"$seq":%d,' % (self.head + 1)
        begun = time.perf_counter()
        self.writer.socket.sendall(self.write)
        while waiting:
            events = self.poller.poll(POLL_S)
            if not events:
                raise Unexpected(f"{len(waiting)} watchers have nothing after {POLL_S:.0f} s")
            for fd, _ in events:
                event = self.by_fd[fd].socket.recv(RECEIVE_BYTES)
                if expected not in event:
                    if b": hb " in event:
                        continue
                    raise Unexpected(f"a watcher at {self.head} got {event!r:.300}")
                latencies.append(time.perf_counter() - begun)
                waiting.discard(fd)
        self.head = self.written()
        return latencies

    def written(self) -> int:
        """The head after the write, from its answer."""
        head_seq: int = json.loads(self.writer.socket.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])[
            "head_seq"
        ]
        return head_seq


def anonymous_bytes(pid: int) -> int:
    """What a process has beside files mapped into it."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def idle(plan: WatchPlan) -> Idle:
    before = anonymous_bytes(plan.pid)
    delivery = Delivery(plan)
    time.sleep(min(1.0, plan.idle_s))
    begun, cpu, held = time.perf_counter(), process_cpu_s(plan.pid), anonymous_bytes(plan.pid)
    time.sleep(plan.idle_s)
    took = time.perf_counter() - begun
    assert len(delivery.watchers) == plan.watchers
    return Idle(seconds=took, cpu_s=process_cpu_s(plan.pid) - cpu, bytes=held - before)


def run(plan: WatchPlan) -> Result:
    delivery = Delivery(plan)
    for _ in range(plan.warm):
        delivery.once()
    latencies: list[float] = []
    begun, cpu, server_cpu = time.perf_counter(), time.process_time(), process_cpu_s(plan.pid)
    for _ in range(plan.writes):
        latencies += delivery.once()
    took = time.perf_counter() - begun
    return Result(
        requests=len(latencies),
        records=len(latencies),
        seconds=took,
        server_cpu_s=process_cpu_s(plan.pid) - server_cpu,
        busy=(time.process_time() - cpu) / took,
        p50_us=quantile(latencies, 0.5) * 1e6,
        p99_us=quantile(latencies, 0.99) * 1e6,
        answer_bytes=0,
    )


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=WatchPlan)
    gc.disable()
    result: Result | Idle = idle(plan) if plan.idle_s else run(plan)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main()
