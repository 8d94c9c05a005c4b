"""What is watched: a topic, a stream of Redis, a stream of NATS JetStream, by the connections of `topics bench`.

Each is written one record of the same text, and keeps it as our class `disk` does (`job_sides`). A watcher of a topic
has a stream of server-sent events, or a WebSocket; one of Redis asks again with XREAD BLOCK behind each record; to one
of NATS it is pushed. Beside them: watchers of many topics, and one who does not read.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping

from ci.benchmarks.load import HttpConnection, request, topic_name, write_body
from ci.benchmarks.payload import BATCH
from topics.cli.bench import connection, nats, ours, redis
from topics.cli.bench.connection import HOST, RECEIVE_BYTES, Unexpected, connected
from topics.cli.bench.payload import sensor_reading

BODIES = [sensor_reading(0).encode()]
_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
_UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_STUCK_RECEIVE_BYTES = 4096

SIDES: Mapping[str, Callable[[int], connection.Connection]] = {
    "topics": lambda port: ours.Topics(connected(port), topic_name(0), BODIES, host=f"{HOST}:{port}"),
    "sockets": lambda port: TopicSockets(connected(port), topic_name(0), BODIES, host=f"{HOST}:{port}"),
    "redis": lambda port: redis.Redis(connected(port), "bench", BODIES),
    "nats": lambda port: nats.Nats(connected(port), "bench", BODIES, is_queue=False),
}


class Topics:
    """Of our server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer = HttpConnection(port, 0).socket

    def watch_topics(self, topics: list[str]) -> socket.socket:
        """From their tails, behind the events with which a stream begins."""
        watcher = HttpConnection(self._port, 0).socket
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

    def read_on(self, stuck: socket.socket, head: int) -> None:
        """He reads after all: everything comes, in order, up to the head."""
        at, rest = 0, b""
        while at < head:
            received = stuck.recv(RECEIVE_BYTES)
            if not received:
                raise Unexpected(f"the stream of who did not read ends at {at} of {head}")
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
            self._writer.recv(RECEIVE_BYTES)

    def _stream(self, starts: dict[str, dict[str, bool]]) -> bytes:
        """Asks for the events of a new watch."""
        asking = HttpConnection(self._port, 0).socket
        with asking:
            asking.sendall(request("/v0/watch", json.dumps({"topics": starts}).encode()))
            url: str = json.loads(asking.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])["stream_url"]
        return _GET % url.encode()


class TopicSockets(ours.Topics):
    """Of our server, and each watcher has a WebSocket."""

    def watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            asked = b'{"op":"subscribe","topic":"%b","tail":true}' % self._topic.encode()
            self._socket.sendall(
                _UPGRADE + bytes([0x81, 0x80 + len(asked), 0, 0, 0, 0]) + asked
            )  # masked with zeros
            while b"\r\n\r\n" not in self._received:
                self._received += self._receive()
            self._received = self._received.partition(b"\r\n\r\n")[2]
            while b'"caught_up"' not in self._message():
                pass
        self._finish = self._frame_has_come

    def _frame_has_come(self) -> int:
        while not (came := self._message().count(b'"$seq":')):
            pass  # a heartbeat
        return came

    def _message(self) -> bytes:
        """The payload of the next frame, which a server does not mask."""
        length = self._bytes(2)[1]
        if length > 125:
            length = int.from_bytes(self._bytes(2 if length == 126 else 8))
        return self._bytes(length)
