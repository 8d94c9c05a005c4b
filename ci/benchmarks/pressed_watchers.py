"""The generator of pressure: topics of several priorities, each with its watchers, and more written than can be told.

A few topics are written at a steady pace, all others as fast as answers come. A record is the time at which it was
sent, so each watcher knows how long it took; every one is held to have every record, in order, when all is over.

usage: python -m ci.benchmarks.pressed_watchers PLAN     a JSON object, see `PressedPlan`; prints `Pressed` as JSON
"""

from __future__ import annotations

import gc
import json
import re
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from ci.benchmarks.figure import quantile
from ci.benchmarks.load import HttpConnection, request
from ci.benchmarks.served import ask
from ci.benchmarks.watched_sides import Topics
from topics.cli.bench.connection import RECEIVE_BYTES, Unexpected
from topics.cli.bench.processes import process_cpu_s

LOOK_S = 0.25  # between two looks at pressure
AGAIN_S = 0.05  # behind a refusal
DRAIN_S = 60.0
_RECORD = re.compile(rb'"\$seq":(\d+),"\$ts":\d+,"data":(\d+)')
_ANSWER = re.compile(rb"HTTP/1\.1 (\d+) .*?content-length: (\d+)\r\n.*?\r\n\r\n", re.IGNORECASE | re.DOTALL)


class Band(msgspec.Struct, kw_only=True):
    """`watchers`: of each topic. `every_s`: each topic is written so often; 0 for as often as it goes."""

    name: str
    priority: int
    topics: int
    watchers: int
    every_s: float = 0.0


class PressedPlan(msgspec.Struct, kw_only=True):
    """`connections`: of writers who do not pace themselves, over all topics of bands without a pace."""

    port: int
    pid: int
    bands: list[Band]
    connections: int
    seconds: float


class Told(msgspec.Struct, kw_only=True):
    """Of a band, in ms: from when a record was sent until a watcher had it."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    deliveries: int


class Pressed(msgspec.Struct, kw_only=True):
    """`read`: how many records a read of a topic of the lowest band gave when its watchers were held, and how many they
    had by then. `server_busy`, `busy`: parts of a core.
    """

    bands: dict[str, Told]
    written: int
    refused: int
    pressure: float
    held: int
    read: tuple[int, int]
    server_busy: float
    busy: float


class Watch:
    """`had`: the last seq that has come."""

    def __init__(self, connection: socket.socket, topic: str, latencies: list[float]) -> None:
        self.socket, self.topic, self.latencies = connection, topic, latencies
        self.rest = b""
        self.had = 0

    def receive(self) -> None:
        received = self.socket.recv(RECEIVE_BYTES)
        if not received:
            raise Unexpected(f"a stream of {self.topic} ends at {self.had}")
        now = time.perf_counter_ns()
        whole, newline, self.rest = (self.rest + received).rpartition(b"\n")
        if b"event: error" in whole or b"event: tombstone" in whole:
            raise Unexpected(f"{self.topic} at {self.had}: {whole[:500]!r}")
        assert newline or not whole
        for seq, at in _RECORD.findall(whole):
            if int(seq) != self.had + 1:
                raise Unexpected(f"{self.topic}: behind {self.had} came {int(seq)}")
            self.had += 1
            self.latencies.append((now - int(at)) / 1e6)


class Writer:
    """One write at a time, of its topics by turns."""

    def __init__(self, port: int, topics: list[str], every_s: float) -> None:
        self.socket = HttpConnection(port, 0).socket
        self.topics = deque(topics)
        self.every_s = every_s
        self.due = 0.0
        self.is_waiting = False
        self.rest = b""
        self.written = self.refused = 0

    def write(self, now: float) -> None:
        self.topics.rotate(-1)
        body = b'{"records":[{"data":%d}]}' % time.perf_counter_ns()
        self.socket.sendall(request(f"/v0/topics/{self.topics[0]}?return_seqs=false", body))
        self.is_waiting, self.due = True, now + self.every_s

    def receive(self, now: float) -> None:
        self.rest += self.socket.recv(RECEIVE_BYTES)
        head = _ANSWER.match(self.rest)
        if head is None or len(self.rest) < head.end() + int(head[2]):
            return
        self.is_waiting, self.rest = False, b""
        if head[1] == b"429":
            self.refused += 1
            self.due = now + AGAIN_S
        elif head[1] == b"200":
            self.written += 1
        else:
            raise Unexpected(f"{self.topics[0]}: {head[0]!r}")


class Load:
    def __init__(self, plan: PressedPlan) -> None:
        self.plan = plan
        self.poller = select.epoll()
        self.latencies: dict[str, list[float]] = {band.name: [] for band in plan.bands}
        self.watches: dict[int, Watch] = {}
        self.writers: dict[int, Writer] = {}
        self.pressure, self.held, self.read = 0.0, 0, (0, 0)
        side, unpaced = Topics(plan.port), list[str]()
        for band in plan.bands:
            for topic in names_of(band):
                ask(
                    plan.port, "PUT", f"/v0/topics/{topic}", {"priority": band.priority, "durability": "disk"}
                )
                for _ in range(band.watchers):
                    self._add(Watch(side.watch_topics([topic]), topic, self.latencies[band.name]))
                if band.every_s:
                    self._add(Writer(plan.port, [topic], band.every_s))
                else:
                    unpaced.append(topic)
        for number in range(plan.connections):
            start = number * len(unpaced) // plan.connections
            self._add(Writer(plan.port, unpaced[start:] + unpaced[:start], 0.0))

    def _add(self, one: Watch | Writer) -> None:
        fd = one.socket.fileno()
        self.poller.register(fd, select.EPOLLIN)
        if isinstance(one, Watch):
            self.watches[fd] = one
        else:
            self.writers[fd] = one

    def run(self) -> None:
        now, is_over = time.perf_counter(), threading.Event()
        ends, looks = now + self.plan.seconds, threading.Thread(target=self._look, args=[is_over])
        looks.start()
        while now < ends:
            for writer in self.writers.values():
                if not writer.is_waiting and now >= writer.due:
                    writer.write(now)
            self._receive(0.001)
            now = time.perf_counter()
        is_over.set()
        looks.join()

    def drain(self) -> None:
        """Everybody is answered, and has everything."""
        ends = time.perf_counter() + DRAIN_S
        while any(writer.is_waiting for writer in self.writers.values()):
            self._receive(0.1)
        heads = {topic: self._head(topic) for band in self.plan.bands for topic in names_of(band)}
        assert sum(heads.values()) == sum(writer.written for writer in self.writers.values())
        while missing := [one for one in self.watches.values() if one.had < heads[one.topic]]:
            if time.perf_counter() > ends:
                one = missing[0]
                raise Unexpected(f"{len(missing)} lack records: {one.topic} {one.had} of {heads[one.topic]}")
            self._receive(0.1)

    def _receive(self, wait_s: float) -> None:
        for fd, _ in self.poller.poll(wait_s):
            if fd in self.watches:
                self.watches[fd].receive()
            else:
                self.writers[fd].receive(time.perf_counter())

    def _look(self, is_over: threading.Event) -> None:
        """At pressure, in a thread: an answer takes its time, and nobody is to wait for it."""
        while not is_over.wait(LOOK_S):
            said = ask(self.plan.port, "GET", "/v0/admin/pressure")
            self.pressure = max(self.pressure, float(str(said["pressure"])))
            held = int(str(said["held_topics"]))
            if held > self.held:
                (topic, *_) = names_of(self.plan.bands[-1])
                had = max(one.had for one in self.watches.values() if one.topic == topic)
                self.held, self.read = held, (self._head(topic), had)

    def _head(self, topic: str) -> int:
        """By a read that gives all records behind one near the end."""
        from_seq = 0
        while True:
            page = ask(
                self.plan.port, "POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "limit": 1000}
            )
            from_seq = int(str(page["next_from_seq"]))
            if page["caught_up"]:
                return from_seq


def names_of(band: Band) -> Iterator[str]:
    return (f"{band.name}-{number}" for number in range(band.topics))


def run(plan: PressedPlan) -> Pressed:
    load = Load(plan)
    begun, cpu, server_cpu = time.perf_counter(), time.process_time(), process_cpu_s(plan.pid)
    load.run()
    took, server_cpu = time.perf_counter() - begun, process_cpu_s(plan.pid) - server_cpu
    busy = (time.process_time() - cpu) / took
    load.drain()
    return Pressed(
        bands={
            name: Told(
                p50_ms=quantile(found, 0.5), p99_ms=quantile(found, 0.99), longest_ms=max(found), deliveries=len(found)
            )
            for name, found in load.latencies.items()
        },
        written=sum(writer.written for writer in load.writers.values()),
        refused=sum(writer.refused for writer in load.writers.values()),
        pressure=load.pressure,
        held=load.held,
        read=load.read,
        server_busy=server_cpu / took,
        busy=busy,
    )  # fmt: skip


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=PressedPlan)
    gc.disable()
    sys.stdout.write(json.dumps(msgspec.to_builtins(run(plan))) + "\n")


if __name__ == "__main__":
    main()
