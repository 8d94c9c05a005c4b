"""Job queues under one load: a client of each, with the server it is of.

Every side puts jobs, takes so many at a time, and says that they are done. Each call is in two halves, so that several
connections of a server have one under way at the same time. What is compared is the CPU of the server's process, so
nobody gains by a faster client. Peers are set up as their pages say for a queue that survives its process and syncs
about once a second, which is our class `disk`.
"""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from websockets.sync.client import connect

import topics
from ci.benchmarks.load import HOST, process_cpu_s
from ci.benchmarks.payload import text
from ci.benchmarks.served import ask, stop, topics_serve
from ci.benchmarks.watched_sides import resp

QUEUE = "jobs"
START_S = 10.0
PAYLOAD = text(0)
NAME, BODY = QUEUE.encode(), PAYLOAD.encode()


class Side(Protocol):
    """A connection. `cpu_s`: of whoever keeps the jobs, so far."""

    def put(self, count: int) -> None: ...
    def was_put(self, count: int) -> None: ...
    def claim(self, count: int) -> None: ...
    def was_claimed(self) -> int:
        """How many there were. They are this side's to ack."""
        ...

    def ack(self) -> None: ...
    def was_acked(self) -> None: ...
    def cpu_s(self) -> float: ...


Opened = Callable[[Path, int], AbstractContextManager[Sequence[Side]]]


def put(sides: Sequence[Side], count: int) -> None:
    """So many on each connection."""
    for side in sides:
        side.put(count)
    for side in sides:
        side.was_put(count)


def work(sides: Sequence[Side], count: int) -> None:
    """Claim so many on each connection, and ack them."""
    for side in sides:
        side.claim(count)
    for side in sides:
        claimed = side.was_claimed()
        assert claimed == count, (type(side).__name__, claimed)
    for side in sides:
        side.ack()
    for side in sides:
        side.was_acked()


class MissingPeer(Exception):
    """What is to be installed, to compare with it."""


# Ours.


class Sockets:
    """A WebSocket of `topics serve`."""

    def __init__(self, port: int, pid: int) -> None:
        self._pid = pid
        self._socket = connect(f"ws://{HOST}:{port}/v0/ws", max_size=None, compression=None)

        self._jobs: list[dict[str, object]] = []

    def put(self, count: int) -> None:
        records = b",".join([b'{"data":%b}' % BODY] * count).decode()
        self._socket.send(f'{{"op":"publish","topic":"{QUEUE}","records":[{records}],"return_seqs":false}}')

    def was_put(self, count: int) -> None:
        assert self._answer()["count"] == count

    def claim(self, count: int) -> None:
        self._socket.send(f'{{"op":"claim","topic":"{QUEUE}","node":"w","max":{count}}}')

    def was_claimed(self) -> int:
        claimed = self._answer()["claimed"]
        assert isinstance(claimed, list)
        self._jobs = claimed
        return len(claimed)

    def ack(self) -> None:
        leases = [job["lease_id"] for job in self._jobs]
        fields = {"op": "ack", "topic": QUEUE, "node": "w", "seqs": [job["$seq"] for job in self._jobs]}
        self._socket.send(json.dumps(fields | {"lease_ids": leases}))

    def was_acked(self) -> None:
        assert self._answer()["acked"] == [job["$seq"] for job in self._jobs]

    def _answer(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self._socket.recv())
        if answer["op"] == "error":
            raise RuntimeError(f"topics: {answer}")
        return answer

    def cpu_s(self) -> float:
        return process_cpu_s(self._pid)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def sockets(path: Path, connections: int) -> Iterator[Sequence[Sockets]]:
    with topics_serve(path / "data") as server:
        ask(server.port, "PUT", f"/v0/topics/{QUEUE}", {"type": "queue", "durability": "disk"})
        sides = [Sockets(server.port, server.pid) for _ in range(connections)]
        try:
            yield sides
        finally:
            for side in sides:
                side.close()


class InProcess:
    """Of a library: a call is done when it returns."""

    def was_put(self, count: int) -> None: ...
    def was_acked(self) -> None: ...
    def cpu_s(self) -> float:
        return time.process_time()


class Embedded(InProcess):
    """A store in this process."""

    def __init__(self, queue: topics.Queue) -> None:
        self._queue = queue
        self._raw = topics.Raw(BODY)
        self._jobs: Sequence[topics.Job] = ()

    def put(self, count: int) -> None:
        if count == 1:
            self._queue.put(self._raw)
        else:
            self._queue.put_many([self._raw] * count)

    def claim(self, count: int) -> None:
        self._jobs = self._queue.claim(count)

    def was_claimed(self) -> int:
        return len(self._jobs)

    def ack(self) -> None:
        self._queue.ack(self._jobs)


@contextmanager
def embedded(path: Path, connections: int = 1) -> Iterator[Sequence[Embedded]]:
    assert connections == 1
    with topics.open(path / "data") as store:
        store.create(QUEUE, type="queue", durability="disk")
        yield [Embedded(store.queue(QUEUE))]


# Others.


class Sqlite(InProcess):
    """A table in WAL mode with `synchronous=NORMAL`, one transaction a call, in this process."""

    def __init__(self, path: Path) -> None:
        self._jobs: Sequence[tuple[int]] = ()
        self._db = sqlite3.connect(path / "bench.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, until INTEGER NOT NULL DEFAULT 0, data TEXT)"
        )
        self._db.execute("CREATE INDEX ready ON jobs (until, id)")

    def put(self, count: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO jobs (data) VALUES (?)", [(PAYLOAD,)] * count)
        self._db.execute("COMMIT")

    def claim(self, count: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        found = self._db.execute(
            "UPDATE jobs SET until = ? WHERE id IN (SELECT id FROM jobs WHERE until < ? ORDER BY until, id LIMIT ?)"
            " RETURNING id, data",
            (now_ms + 30_000, now_ms, count),
        ).fetchall()
        self._jobs = [(job,) for job, _ in found]

    def was_claimed(self) -> int:
        return len(self._jobs)

    def ack(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("DELETE FROM jobs WHERE id = ?", self._jobs)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


@contextmanager
def sqlite(path: Path, connections: int = 1) -> Iterator[Sequence[Sqlite]]:
    assert connections == 1
    side = Sqlite(path)
    try:
        yield [side]
    finally:
        side.close()


class Wire:
    """A connection with lines, and bodies of a known size."""

    def __init__(self, port: int, pid: int) -> None:
        self._pid = pid
        self.socket = socket.create_connection((HOST, port), timeout=START_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = self.socket.makefile("rb")
        self.jobs: list[bytes] = []
        self.asked = 0

    def line(self) -> bytes:
        return self._incoming.readline().rstrip(b"\r\n")

    def body(self, size: int) -> bytes:
        """And the line's end behind it."""
        return self._incoming.read(size + 2)[:size]

    def cpu_s(self) -> float:
        return process_cpu_s(self._pid)

    def close(self) -> None:
        self._incoming.close()
        self.socket.close()


class Redis(Wire):
    """A stream with a consumer group: XADD; XREADGROUP; XACK and XDEL, in one round trip each."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(port, pid)
        self.socket.sendall(resp(b"XGROUP", b"CREATE", NAME, b"g", b"$", b"MKSTREAM"))
        with suppress(RuntimeError):  # another connection has made it
            self._answer()

    def put(self, count: int) -> None:
        self.socket.sendall(resp(b"XADD", NAME, b"*", b"d", BODY) * count)

    def was_put(self, count: int) -> None:
        for _ in range(count):
            self._answer()

    def claim(self, count: int) -> None:
        options = b"COUNT", b"%d" % count, b"STREAMS", NAME, b">"
        self.socket.sendall(resp(b"XREADGROUP", b"GROUP", b"g", b"w", *options))

    def was_claimed(self) -> int:
        answer = self._answer()
        assert isinstance(answer, list)
        self.jobs = [entry[0] for entry in answer[0][1]]
        return len(self.jobs)

    def ack(self) -> None:
        self.socket.sendall(resp(b"XACK", NAME, b"g", *self.jobs) + resp(b"XDEL", NAME, *self.jobs))

    def was_acked(self) -> None:
        assert self._answer() == self._answer() == len(self.jobs)

    def _answer(self) -> object:
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.body(int(rest))
        if kind == b"-":
            raise RuntimeError(f"redis: {rest.decode()}")
        return int(rest) if kind == b":" else rest


class Beanstalkd(Wire):
    """One tube; commands in one round trip, for it knows no batch."""

    def put(self, count: int) -> None:
        self.socket.sendall(b"put 1 0 30 %d\r\n%b\r\n" % (len(BODY), BODY) * count)

    def was_put(self, count: int) -> None:
        for _ in range(count):
            assert self.line().startswith(b"INSERTED")

    def claim(self, count: int) -> None:
        self.asked = count
        self.socket.sendall(b"reserve-with-timeout 0\r\n" * count)

    def was_claimed(self) -> int:
        self.jobs = []
        for _ in range(self.asked):
            words = self.line().split()
            if words[0] == b"RESERVED":
                self.jobs.append(words[1])
                self.body(int(words[2]))
        return len(self.jobs)

    def ack(self) -> None:
        self.socket.sendall(b"".join(b"delete %b\r\n" % job for job in self.jobs))

    def was_acked(self) -> None:
        for _ in self.jobs:
            assert self.line() == b"DELETED"


class Nats(Wire):
    """A JetStream stream with work-queue retention, in files, and one pull consumer; acks with an answer to each."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(port, pid)
        self._inbox = b"inbox.%d" % self.socket.getsockname()[1]
        self.line()  # INFO
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %b 1\r\n' % self._inbox)
        stream = {"name": "S", "subjects": [QUEUE], "retention": "workqueue", "storage": "file"}
        durable = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
        for subject, body in (
            (b"$JS.API.STREAM.CREATE.S", stream),
            (b"$JS.API.CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": durable}),
        ):
            self._publish(subject, json.dumps(body).encode())
            _, answer = self._message()
            if "error" in json.loads(answer):
                raise RuntimeError(f"nats: {answer!r}")

    def put(self, count: int) -> None:
        self._publish(NAME, BODY, count)

    def was_put(self, count: int) -> None:
        for _ in range(count):
            self._message()

    def claim(self, count: int) -> None:
        self.asked = count
        # Not `no_wait`: a message that was acked to its producer may not have come to the consumer yet.
        body = json.dumps({"batch": count, "expires": 1_000_000_000}).encode()
        self._publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body)

    def was_claimed(self) -> int:
        self.jobs = []
        while len(self.jobs) < self.asked:
            reply, _ = self._message()
            if not reply:
                break  # 408: no more came
            self.jobs.append(reply)
        return len(self.jobs)

    def ack(self) -> None:
        self.socket.sendall(b"".join(b"PUB %b %b 4\r\n+ACK\r\n" % (job, self._inbox) for job in self.jobs))

    def was_acked(self) -> None:
        for _ in self.jobs:
            self._message()

    def _publish(self, subject: bytes, body: bytes, count: int = 1) -> None:
        self.socket.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox, len(body), body) * count)

    def _message(self) -> tuple[bytes, bytes]:
        """(where to ack it if anywhere, the body)."""
        while True:
            words = self.line().split()
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                sizes = 1 if words[0] == b"MSG" else 2
                reply = words[3] if len(words) == 4 + sizes else b""
                return reply, self.body(int(words[-1]))


@contextmanager
def peer(path: Path, *, package: str, command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Its port and its process. `command`: with `PORT` where its port goes. Raises `MissingPeer`."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    program, *options = command
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        raise MissingPeer(f"{package} is not installed")
    (path / "peer").mkdir()
    words = [found, *(word.replace("PORT", str(port)) for word in options)]
    with (path / "peer.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=path / "peer", stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield port, process.pid
    finally:
        stop(process)


@contextmanager
def _peer_sides(
    path: Path,
    connections: int,
    *,
    side: Callable[[int, int], Wire],
    server: Callable[[Path], AbstractContextManager[tuple[int, int]]],
) -> Iterator[Sequence[Wire]]:
    with server(path) as (port, pid):
        sides = [side(port, pid) for _ in range(connections)]
        try:
            yield sides
        finally:
            for each in sides:
                each.close()


def _wait_for(port: int) -> None:
    deadline = time.perf_counter() + START_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except ConnectionError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


redis_server = partial(
    peer, package="redis-server",
    command=(
        "redis-server", "--port", "PORT", "--bind", HOST, "--save", "", "--appendonly", "yes",
        "--appendfsync", "everysec",
    ),
)  # fmt: skip
nats_server = partial(
    peer, package="nats-server", command=("nats-server", "-a", HOST, "-p", "PORT", "-js", "-sd", ".")
)
_beanstalkd_server = partial(
    peer, package="beanstalkd", command=("beanstalkd", "-l", HOST, "-p", "PORT", "-b", ".", "-f", "1000")
)
redis: Opened = partial(_peer_sides, side=Redis, server=redis_server)
nats: Opened = partial(_peer_sides, side=Nats, server=nats_server)
beanstalkd: Opened = partial(_peer_sides, side=Beanstalkd, server=_beanstalkd_server)
