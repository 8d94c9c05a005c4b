"""Streams of NATS JetStream, in files: acked to their producer, pulled by a consumer, pushed to watchers without acks.

A stream of jobs has the retention of a work queue, and every ack of a job is answered.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence

from topics.cli.bench.connection import Unexpected, Wire

_PULL_NS = 1_000_000_000


class Nats(Wire):
    """`is_queue`: its records are jobs."""

    def __init__(
        self, connected: socket.socket, stream: str, payloads: Sequence[bytes], *, is_queue: bool
    ) -> None:
        super().__init__(connected, payloads)
        self._name = stream
        self._subject = stream.encode()
        self._inbox = b"inbox.%d" % self._socket.getsockname()[1]
        self._jobs: list[bytes] = []
        self._is_watching = False
        self._lines(1)  # INFO
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %b 1\r\n' % self._inbox)
        retention = "workqueue" if is_queue else "limits"
        config = {"name": stream, "subjects": [stream], "retention": retention, "storage": "file"}
        self._set_up("STREAM.CREATE", config)
        if is_queue:
            durable = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
            self._set_up("CONSUMER.DURABLE.CREATE", {"stream_name": stream, "config": durable}, "c")
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c".encode()

    def claim(self, count: int) -> None:
        # Not `no_wait`: a message that was acked to its producer may not have come to the consumer yet.
        body = json.dumps({"batch": count, "expires": _PULL_NS}).encode()
        self._ask(self._publish(self._next, body), lambda: self._was_claimed(count))

    def ack(self) -> None:
        request = b"".join(b"PUB %b %b 4\r\n+ACK\r\n" % (job, self._inbox) for job in self._jobs)
        self._ask(request, lambda: self._were_answered(len(self._jobs)))

    def watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            config = {"deliver_subject": self._inbox.decode(), "deliver_policy": "new", "ack_policy": "none"}
            self._set_up("CONSUMER.CREATE", {"stream_name": self._name, "config": config})
        self._finish = lambda: len(self._messages(1)) // 2

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        return b"".join(self._publish(self._subject, payload) for payload in payloads)

    def _was_put(self, count: int) -> int:
        for body in self._messages(count)[1::2]:
            if b'"error"' in body:
                raise Unexpected(f"nats: {body!r}")
        return count

    def _was_claimed(self, count: int) -> int:
        """A message and its body each, with where to ack it. A status in place of one (no more came) has a head."""
        heads = self._messages(count)[::2]
        self._jobs = [head.split()[3] for head in heads]
        return len(self._jobs)

    def _were_answered(self, count: int) -> int:
        self._messages(count)
        return count

    def _messages(self, count: int) -> list[bytes]:
        """The line and the body of each."""
        lines: list[bytes] = []
        while len(lines) < 2 * count:
            lines += self._lines(2 * count - len(lines))
            if b"PING" in lines:
                lines.remove(b"PING")
                self._socket.sendall(b"PONG\r\n")
        for line in lines[::2]:
            if not line.startswith(b"MSG "):
                raise Unexpected(f"nats: {line!r}")
        return lines

    def _publish(self, subject: bytes, body: bytes) -> bytes:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox, len(body), body)

    def _set_up(self, what: str, body: Mapping[str, object], name: str = "") -> None:
        subject = f"$JS.API.{what}.{self._name}{name and f'.{name}'}"
        self._socket.sendall(self._publish(subject.encode(), json.dumps(body).encode()))
        _, said = self._messages(1)
        if b'"error"' in said:
            raise Unexpected(f"nats: {said!r}")
