"""What is watched: a topic, a stream of Redis, a stream of NATS JetStream. A writer of each, and watchers at its tail.

Each is written one record of the same text, and keeps it as our class `disk` does (`job_sides`). A watcher of a topic
has a stream of server-sent events, or a WebSocket; one of Redis asks again with XREAD BLOCK behind each record; to one
of NATS it is pushed.
"""

from __future__ import annotations

import json
import socket
from typing import Protocol

from ci.benchmarks.load import HOST, RECEIVE_BYTES, Connection, Unexpected, request, topic_name, write_body
from ci.benchmarks.payload import BATCH, text

BODY = text(0).encode()
_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
_UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_STUCK_RECEIVE_BYTES = 4096


class Side(Protocol):
    """A writer, and whoever watches what it writes."""

    def watch(self) -> socket.socket:
        """One more watcher, which waits."""
        ...

    def write(self) -> None: ...
    def was_written(self) -> None:
        """The answer has come."""
        ...

    def has_come(self, received: bytes) -> bool:
        """The record that was written last. Raises `Unexpected`."""
        ...

    def wait_again(self, watcher: socket.socket) -> None:
        """Behind a record."""
        ...


class Topics:
    """Of our server. `head`: the seq of the last record."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer = Connection(port, 0).socket
        self._write = request("/v0/topics/bench?return_seqs=false", write_body(0, batch=1, rich=False))
        self.head = 0

    def watch(self) -> socket.socket:
        return self.watch_topics([topic_name(0)])

    def watch_topics(self, topics: list[str]) -> socket.socket:
        """From their tails, behind the events with which a stream begins."""
        watcher = Connection(self._port, 0).socket
        watcher.sendall(self._stream({topic: {"tail": True} for topic in topics}))
        came = b""
        while came.count(b"event: caught-up") < len(topics):
            came += watcher.recv(RECEIVE_BYTES)
        return watcher

    def watch_stuck(self) -> socket.socket:
        """From the first record on, by who does not read."""
        watcher = socket.socket()
        watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _STUCK_RECEIVE_BYTES)
        watcher.connect((HOST, self._port))
        watcher.sendall(self._stream({topic_name(0): {}}))
        return watcher

    def read_on(self, stuck: socket.socket) -> None:
        """He reads after all: everything comes, in order, up to the head."""
        at, rest = 0, b""
        while at < self.head:
            received = stuck.recv(RECEIVE_BYTES)
            if not received:
                raise Unexpected(f"the stream of who did not read ends at {at} of {self.head}")
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and b'"records":' in line:
                    told = json.loads(line[6:])
                    seqs = [record["$seq"] for record in told["records"]]
                    if seqs != list(range(at + 1, at + 1 + len(seqs))):
                        raise Unexpected(f"behind {at} came {seqs}")
                    at = told["to_seq"]

    def fill(self, records: int) -> None:
        """Write so many beforehand."""
        batch = request("/v0/topics/bench?return_seqs=false", write_body(0, batch=BATCH, rich=False))
        for _ in range(records // BATCH):
            self._writer.sendall(batch)
            self.was_written()

    def write(self) -> None:
        self._writer.sendall(self._write)

    def was_written(self) -> None:
        self.head = json.loads(self._writer.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])["head_seq"]

    def has_come(self, received: bytes) -> bool:
        if b'"records":[{"$seq":%d,' % (self.head + 1) in received:
            return True
        if b": hb " in received:
            return False
        raise Unexpected(f"a watcher at {self.head} got {received!r:.300}")

    def wait_again(self, watcher: socket.socket) -> None: ...

    def _stream(self, starts: dict[str, dict[str, bool]]) -> bytes:
        """Asks for the events of a new watch."""
        asking = Connection(self._port, 0).socket
        with asking:
            asking.sendall(request("/v0/watch", json.dumps({"topics": starts}).encode()))
            begun = json.loads(asking.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])
        return _GET % begun["stream_url"].encode()


class TopicSockets(Topics):
    """Of our server, too, and each watcher has a WebSocket."""

    def watch(self) -> socket.socket:
        watcher = Connection(self._port, 0).socket
        asked = b'{"op":"subscribe","topic":"%b","tail":true}' % topic_name(0).encode()
        watcher.sendall(_UPGRADE + bytes([0x81, 0x80 + len(asked), 0, 0, 0, 0]) + asked)  # masked with zeros
        came = b""
        while b'"caught_up"' not in came:
            came += watcher.recv(RECEIVE_BYTES)
        return watcher


class Redis:
    """A stream; each watcher waits behind the last record."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer = Connection(port, 0).socket
        self._last = b""
        self.write()  # `$` would be whatever is last when it is read
        self.was_written()

    def watch(self) -> socket.socket:
        watcher = Connection(self._port, 0).socket
        self.wait_again(watcher)
        return watcher

    def write(self) -> None:
        self._writer.sendall(resp(b"XADD", b"bench", b"*", b"d", BODY))

    def was_written(self) -> None:
        """A bulk string: `$15`, the id."""
        self._last = self._writer.recv(RECEIVE_BYTES).split(b"\r\n")[1]

    def has_come(self, received: bytes) -> bool:
        return _has_body(received)

    def wait_again(self, watcher: socket.socket) -> None:
        watcher.sendall(resp(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"bench", self._last))


class Nats:
    """A JetStream stream in files; each watcher has a push consumer without acks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._watchers = 0
        self._writer = self._connected(b"SUB written 1\r\n")
        stream = {"name": "S", "subjects": ["bench"], "storage": "file"}
        self._ask(b"$JS.API.STREAM.CREATE.S", stream)

    def watch(self) -> socket.socket:
        self._watchers += 1
        subject = f"to.{self._watchers}"
        watcher = self._connected(b"SUB %b 1\r\n" % subject.encode())
        config = {"deliver_subject": subject, "deliver_policy": "new", "ack_policy": "none"}
        self._ask(b"$JS.API.CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
        return watcher

    def write(self) -> None:
        self._publish(b"bench", BODY)

    def was_written(self) -> None:
        self._answer()

    def has_come(self, received: bytes) -> bool:
        return received != b"PING\r\n" and _has_body(received)  # which may also stand before it or behind

    def wait_again(self, watcher: socket.socket) -> None: ...

    def _connected(self, subscribes: bytes) -> socket.socket:
        one = Connection(self._port, 0).socket
        one.recv(RECEIVE_BYTES)  # INFO
        one.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n%bPING\r\n' % subscribes)
        if b"PONG" not in (said := one.recv(RECEIVE_BYTES)):
            raise Unexpected(f"nats: {said!r}")
        return one

    def _ask(self, subject: bytes, body: dict[str, object]) -> None:
        self._publish(subject, json.dumps(body).encode())
        if b'"error"' in (said := self._answer()):
            raise Unexpected(f"nats: {said!r}")

    def _publish(self, subject: bytes, body: bytes) -> None:
        self._writer.sendall(b"PUB %b written %d\r\n%b\r\n" % (subject, len(body), body))

    def _answer(self) -> bytes:
        while b"MSG" not in (said := self._writer.recv(RECEIVE_BYTES)):
            pass  # a PING
        return said


def resp(*words: bytes) -> bytes:
    """A command of Redis."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _has_body(received: bytes) -> bool:
    if BODY + b"\r\n" not in received:
        raise Unexpected(f"a watcher got {received!r:.300}")
    return True


SIDES = {"topics": Topics, "sockets": TopicSockets, "redis": Redis, "nats": Nats}
