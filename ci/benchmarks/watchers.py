"""The delivery generator: one writer and many long polls in one process; how long after a write a poll has its record.

Every poll waits at the head when the write is sent; the clock runs from just before that until the poll's answer is
there. One thread reads all answers one after another, so with many watchers part of the time is its own.

usage: python -m ci.benchmarks.watchers PLAN     a JSON object, see `WatchPlan`; prints `load.Result` as JSON
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time

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
    write_body,
)

SETTLE_S = 0.004  # for the polls to be waiting, and as much again
SETTLE_EACH_S = 0.0001  # a watcher


class WatchPlan(msgspec.Struct, kw_only=True):
    port: int
    pid: int
    watchers: int
    warm: int
    writes: int


class Delivery:
    """The connections and where the head is."""

    def __init__(self, plan: WatchPlan) -> None:
        self.plan = plan
        self.writer = Connection(plan.port, 0)
        self.watchers = [Connection(plan.port, 0) for _ in range(plan.watchers)]
        self.by_fd = {each.socket.fileno(): each for each in self.watchers}
        self.poller = select.epoll()
        for fd in self.by_fd:
            self.poller.register(fd, select.EPOLLIN)
        self.write = request("/v0/topics/bench?return_seqs=false", write_body(0, batch=1, rich=False))
        self.head = 0

    def once(self) -> list[float]:
        """One write; the latency of each watcher."""
        body = b'{"from_seq":%d,"wait_ms":30000}' % self.head
        poll = request("/v0/topics/bench/diff", body)
        for watcher in self.watchers:
            watcher.socket.sendall(poll)
        time.sleep(SETTLE_S + SETTLE_EACH_S * len(self.watchers))
        latencies, waiting = [], set(self.by_fd)
        begun = time.perf_counter()
        self.writer.socket.sendall(self.write)
        while waiting:
            events = self.poller.poll(POLL_S)
            if not events:
                raise Unexpected(f"{len(waiting)} watchers have nothing after {POLL_S:.0f} s")
            for fd, _ in events:
                answer = self.by_fd[fd].socket.recv(RECEIVE_BYTES)
                latencies.append(time.perf_counter() - begun)
                self.check(answer)
                waiting.discard(fd)
        self.head = self.written()
        return latencies

    def check(self, answer: bytes) -> None:
        records = json.loads(answer.partition(b"\r\n\r\n")[2])["records"]
        if [record["$seq"] for record in records] != [self.head + 1]:
            raise Unexpected(f"a poll from {self.head} got {answer!r:.300}")

    def written(self) -> int:
        """The head after the write, from its answer."""
        head_seq: int = json.loads(self.writer.socket.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])[
            "head_seq"
        ]
        return head_seq


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
    sys.stdout.write(msgspec.json.encode(run(plan)).decode() + "\n")


if __name__ == "__main__":
    main()
