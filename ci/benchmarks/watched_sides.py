"""What is watched: a topic, a stream of Redis, a stream of NATS JetStream, by the connections of `topics bench`.

Each is written one record of the same text, and keeps it as our class `disk` does (`job_sides`). A watcher of a topic
has a stream of server-sent events; one of Redis asks again with XREAD BLOCK behind each record; to one of NATS it is
pushed. Beside them: watchers of many topics, and one who does not read.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping

from ci.benchmarks.load import HOST, RECEIVE_BYTES, Connection, Unexpected, request, topic_name, write_body
from ci.benchmarks.payload import BATCH
from topics.cli.bench import connection, nats, ours, redis
from topics.cli.bench.connection import connected
from topics.cli.bench.payload import reading

BODIES = [reading(0).encode()]
_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
_STUCK_RECEIVE_BYTES = 4096

SIDES: Mapping[str, Callable[[int], connection.Connection]] = {
    "topics": lambda port: ours.Topics(connected(port), topic_name(0), BODIES, host=f"{HOST}:{port}"),
    "redis": lambda port: redis.Redis(connected(port), "bench", BODIES),
    "nats": lambda port: nats.Nats(connected(port), "bench", BODIES, is_queue=False),
}


class Topics:
    """Of our server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer = Connection(port, 0).socket

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
        asking = Connection(self._port, 0).socket
        with asking:
            asking.sendall(request("/v0/watch", json.dumps({"topics": starts}).encode()))
            begun = json.loads(asking.recv(RECEIVE_BYTES).partition(b"\r\n\r\n")[2])
        return _GET % begun["stream_url"].encode()
