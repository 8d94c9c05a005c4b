"""Streams of NATS JetStream, in files: acked to their producer, pulled by a consumer, pushed to watchers without acks.

A stream of jobs has the retention of a work queue, and every ack of a job is answered. Pages are pulled by a consumer
that acks nothing. Beside it NATS without JetStream, which keeps nothing: what a message costs on its wire.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence

from topics.cli.bench.connection import Unexpected, Wire

_PULL_NS = 1_000_000_000


class _NatsLines(Wire):
    """What both say alike."""

    def __init__(
        self, connected: socket.socket, subject: str, payloads: Sequence[bytes], greeting: bytes
    ) -> None:
        super().__init__(connected, payloads)
        self._name = subject
        self._subject = subject.encode()
        self._is_watching = False
        self._lines(1)  # INFO
        self._socket.sendall(b"CONNECT %b\r\n" % greeting)

    def _said(self, count: int) -> list[bytes]:
        """So many lines, but for pings, which are answered."""
        lines: list[bytes] = []
        while len(lines) < count:
            lines += self._lines(count - len(lines))
            if b"PING" in lines:
                lines.remove(b"PING")
                self._socket.sendall(b"PONG\r\n")
        return lines

    def _messages(self, count: int) -> list[bytes]:
        """The line and the body of each."""
        lines = self._said(2 * count)
        for line in lines[::2]:
            if not line.startswith(b"MSG "):
                raise Unexpected(f"nats: {line!r}")
        return lines


class NatsCore(_NatsLines):
    """Verbose: the server answers each message, when it has it and has sent it on."""

    def __init__(self, connected: socket.socket, subject: str, payloads: Sequence[bytes]) -> None:
        super().__init__(connected, subject, payloads, b'{"verbose":true}')
        self._were_taken(1)

    def watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._socket.sendall(b"SUB %b 1\r\n" % self._subject)
            self._were_taken(1)
        self._finish = lambda: len(self._messages(1)) // 2

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        return b"".join(b"PUB %b %d\r\n%b\r\n" % (self._subject, len(body), body) for body in payloads)

    def _was_put(self, count: int) -> int:
        return self._were_taken(count)

    def _were_taken(self, count: int) -> int:
        if (said := self._said(count)) != [b"+OK"] * count:
            raise Unexpected(f"nats: {said!r}")
        return count


class Nats(_NatsLines):
    """`is_queue`: its records are jobs."""

    def __init__(
        self, connected: socket.socket, stream: str, payloads: Sequence[bytes], *, is_queue: bool
    ) -> None:
        super().__init__(connected, stream, payloads, b'{"verbose":false,"headers":true}')
        self._inbox = b"inbox.%d" % self._socket.getsockname()[1]
        self._jobs: list[bytes] = []
        self._is_reading = False
        self._unread = 0
        self._page = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.r".encode()
        self._socket.sendall(b"SUB %b 1\r\n" % self._inbox)
        retention = "workqueue" if is_queue else "limits"
        config = {"name": stream, "subjects": [stream], "retention": retention, "storage": "file"}
        self._set_up("STREAM.CREATE", config)
        if is_queue:
            durable = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
            self._set_up("CONSUMER.DURABLE.CREATE", {"stream_name": stream, "config": durable}, "c")
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c".encode()

    def read(self, count: int) -> None:
        if not self._unread:
            self._begin_reading()
        found = min(count, self._unread)
        self._unread -= found
        body = json.dumps({"batch": found, "expires": _PULL_NS}).encode()
        request = self._publish(self._page, body) if found else b""
        self._ask(request, lambda: len(self._messages(found)) // 2)

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

    def _begin_reading(self) -> None:
        """A consumer from the first record on; one that was there has read to the end."""
        if self._is_reading:
            self._set_up("CONSUMER.DELETE", {}, "r")
        self._is_reading = True
        durable = {"durable_name": "r", "ack_policy": "none", "deliver_policy": "all"}
        made = self._set_up("CONSUMER.DURABLE.CREATE", {"stream_name": self._name, "config": durable}, "r")
        self._unread = json.loads(made)["num_pending"]

    def _publish(self, subject: bytes, body: bytes) -> bytes:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, self._inbox, len(body), body)

    def _set_up(self, what: str, body: Mapping[str, object], name: str = "") -> bytes:
        subject = f"$JS.API.{what}.{self._name}{name and f'.{name}'}"
        self._socket.sendall(self._publish(subject.encode(), json.dumps(body).encode()))
        _, said = self._messages(1)
        if b'"error"' in said:
            raise Unexpected(f"nats: {said!r}")
        return said
