"""The load generator: one process, one thread, raw sockets under epoll, requests made beforehand, a closed loop.

Each connection sends its next request as soon as the answer to its last one is whole. The clock and the server's CPU
are read when the warm-up ends and when the time is over, so that what is counted happened in between. The first answer
of each kind is looked at closely by a check, the others by status and size.

usage: python -m ci.benchmarks.load PLAN     a JSON object, see `Plan`; prints a JSON object, see `Result`
"""

from __future__ import annotations

import gc
import json
import re
import select
import socket
import sys
import time
from array import array
from collections.abc import Sequence

import msgspec

from ci.benchmarks.figure import quantile
from ci.benchmarks.payload import BATCH
from topics.cli.bench.connection import HOST, RECEIVE_BYTES, Unexpected
from topics.cli.bench.payload import sensor_reading
from topics.cli.bench.processes import process_cpu_s

DISTINCT_BODIES = 40
FILLERS = 4  # connections
POLL_S = 30.0
BUFFER_BYTES = 1 << 20  # kept, for answers of any size
LENGTH = re.compile(rb"\r\n(content-length: )(\d+)\r\n", re.IGNORECASE)


class Plan(msgspec.Struct, kw_only=True):
    """`kind`: write, rich (tag, node and meta too), diff. `batch`: records a write, or seqs a page.

    First come `fill` writes of 100, not timed: a log's first files are small, and making larger and larger ones costs
    what no later write pays. The warm-up ends after `warm` requests or `warm_s` seconds, whichever is first. `pages`:
    of a diff behind the first `skip`, cycled through. `topics`: written to by turns; then as many `bodies` at least.
    """

    port: int
    pid: int
    kind: str
    batch: int
    connections: int
    warm: int
    warm_s: float
    seconds: float
    fill: int = 0
    pages: int = 0
    skip: int = 0
    topics: int = 1
    bodies: int = DISTINCT_BODIES
    answer_bytes: int = 0  # of the canned server; then nothing is checked


class Result(msgspec.Struct, kw_only=True):
    """What happened between the warm-up and the end. `busy`: the part of a core that the generator itself took."""

    requests: int
    records: int
    seconds: float
    server_cpu_s: float
    busy: float
    p50_us: float
    p99_us: float
    answer_bytes: int


class HttpConnection:
    """`left`: bytes of the answer still to come; 0 while its head is."""

    __slots__ = ("at", "begun", "head", "left", "socket")

    def __init__(self, port: int, at: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.at = at
        self.left = 0
        self.head = b""
        self.begun = 0.0


def topic_name(number: int) -> str:
    return f"bench-{number}" if number else "bench"


def write_body(number: int, *, batch: int, rich: bool) -> bytes:
    """Of http-api 4. Rich: a tag out of 100, a node and a meta of two keys a record."""
    records = []
    for i in range(number * batch, (number + 1) * batch):
        extra = (
            f',"tag":"tag-{i % 100:02d}","node":"node-{i % 4}","meta":{{"unit":"mm","batch":"{i % 50}"}}'
            if rich
            else ""
        )
        records.append(f'{{"data":{sensor_reading(i)}{extra}}}')
    return b'{"records":[%b]}' % ",".join(records).encode()


def request(path: str, body: bytes) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def requests_of(plan: Plan) -> list[bytes]:
    if plan.kind == "diff":
        path = "/v0/topics/bench/diff"
        bodies = [
            b'{"from_seq":%d,"limit":%d}' % (page * plan.batch, plan.batch)
            for page in range(plan.skip, plan.skip + plan.pages)
        ]
        return [request(path, body) for body in bodies]
    rich = plan.kind == "rich"
    return [
        request(
            f"/v0/topics/{topic_name(i % plan.topics)}?return_seqs=false",
            write_body(i, batch=plan.batch, rich=rich),
        )
        for i in range(plan.bodies)
    ]


def check(plan: Plan, body: bytes) -> None:
    """Raises `Unexpected` if an answer does not say what it must."""
    if plan.answer_bytes:
        return
    answer = json.loads(body)
    if plan.kind == "diff":
        seqs = [record["$seq"] for record in answer["records"]]
        if seqs != list(range(answer["from_seq"] + 1, answer["from_seq"] + 1 + plan.batch)):
            raise Unexpected(f"{len(seqs)} records from {answer['from_seq']}, not {plan.batch}")
    elif answer["last_seq"] - answer["first_seq"] + 1 != plan.batch:
        raise Unexpected(f"a write of {plan.batch} was answered {answer}")


class Generator:
    """The loop."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.requests = requests_of(plan)
        count = len(self.requests)
        step = max(count // plan.connections, 1)
        self.connections = [HttpConnection(plan.port, i * step % count) for i in range(plan.connections)]
        self.by_fd = {each.socket.fileno(): each for each in self.connections}
        self.poller = select.epoll()
        for fd in self.by_fd:
            self.poller.register(fd, select.EPOLLIN)
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.length_header = b""
        self.least_bytes = 0
        self.latencies = array("d")

    def first_answers(self) -> None:
        """One request a connection, its answer read whole and checked; it says how the server spells its length."""
        for connection in self.connections:
            self.send(connection)
            answer, end, size = b"", -1, 0
            while end < 0 or len(answer) < end + 4 + size:
                piece = connection.socket.recv(RECEIVE_BYTES)
                if not piece:
                    raise Unexpected(f"the connection ended after {answer!r:.300}")
                answer += piece
                end = answer.find(b"\r\n\r\n")
                if end >= 0 and not size:
                    found = LENGTH.search(answer, 0, end + 2)
                    if found is None or not answer.startswith(b"HTTP/1.1 20"):
                        raise Unexpected(f"{answer!r:.600}")
                    self.length_header, size = found[1], int(found[2])
            check(self.plan, answer[end + 4 :])
            self.least_bytes = size * 9 // 10

    def send(self, connection: HttpConnection) -> None:
        requests = self.requests
        at = connection.at
        connection.at = at + 1 if at + 1 < len(requests) else 0
        connection.begun = time.perf_counter()
        connection.socket.sendall(requests[at])

    def receive(self, connection: HttpConnection) -> bool:
        """True once the answer is whole."""
        size = connection.socket.recv_into(self.buffer)
        if connection.left:
            connection.left -= size
            return not connection.left
        if not size:
            raise Unexpected("the server closed a connection")
        data = connection.head + self.view[:size] if connection.head else self.buffer
        stop = size + len(connection.head)
        end = data.find(b"\r\n\r\n", 0, stop)
        if end < 0:
            connection.head = bytes(data[:stop])
            return False
        connection.head = b""
        at = data.find(self.length_header, 0, end)
        if at < 0 or not data.startswith(b"HTTP/1.1 20"):
            raise Unexpected(f"{bytes(data[:stop])!r:.600}")
        at += len(self.length_header)
        length = int(data[at : data.find(b"\r", at)])
        if length < self.least_bytes:
            raise Unexpected(f"an answer of {length} B: {bytes(data[:stop])!r:.600}")
        connection.left = end + 4 + length - stop
        return not connection.left

    def until(self, requests: int, deadline: float) -> int:
        """Answers until so many have come or the deadline has passed; every connection stays busy."""
        poll, by_fd, receive, send = self.poller.poll, self.by_fd, self.receive, self.send
        now, add = time.perf_counter, self.latencies.append
        done, at = 0, now()
        while done < requests and at < deadline:
            events = poll(POLL_S)
            if not events:
                raise Unexpected(f"no answer within {POLL_S:.0f} s")
            for fd, _ in events:
                connection = by_fd[fd]
                if receive(connection):
                    at = now()
                    add(at - connection.begun)
                    done += 1
                    send(connection)
        return done

    def close(self) -> None:
        self.poller.close()
        for connection in self.connections:
            connection.socket.close()

    def drain(self) -> None:
        """The answers that are still on their way."""
        waiting = set(self.by_fd)
        while waiting:
            for fd, _ in self.poller.poll(POLL_S):
                if self.receive(self.by_fd[fd]):
                    waiting.discard(fd)


def fill(plan: Plan) -> None:
    batched = msgspec.structs.replace(plan, kind="write", batch=BATCH, connections=FILLERS, fill=0)
    generator = Generator(batched)
    generator.first_answers()
    for connection in generator.connections:
        generator.send(connection)
    generator.until(plan.fill, sys.float_info.max)
    generator.drain()
    generator.close()


def run(plan: Plan) -> Result:
    if plan.fill:
        fill(plan)
    generator = Generator(plan)
    generator.first_answers()
    for connection in generator.connections:
        generator.send(connection)
    generator.until(plan.warm, time.perf_counter() + plan.warm_s)
    generator.latencies = array("d")
    begun, cpu, server_cpu = time.perf_counter(), time.process_time(), process_cpu_s(plan.pid)
    done = generator.until(sys.maxsize, begun + plan.seconds)
    took = time.perf_counter() - begun
    cpu, server_cpu = time.process_time() - cpu, process_cpu_s(plan.pid) - server_cpu
    generator.drain()
    latencies: Sequence[float] = generator.latencies
    return Result(
        requests=done,
        records=done * plan.batch,
        seconds=took,
        server_cpu_s=server_cpu,
        busy=cpu / took,
        p50_us=quantile(latencies, 0.5) * 1e6,
        p99_us=quantile(latencies, 0.99) * 1e6,
        answer_bytes=generator.least_bytes,
    )


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    gc.disable()
    sys.stdout.write(msgspec.json.encode(run(plan)).decode() + "\n")


if __name__ == "__main__":
    main()
