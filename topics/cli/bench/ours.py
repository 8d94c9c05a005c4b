"""A topic at a server of ours, over HTTP/1.1: a write, a diff, a claim and an ack each, and server-sent events."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.cli.bench.connection import Unexpected, Wire

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_OF_EVENTS: Final = b'"records":['


class JobInAnswer(msgspec.Struct):
    lease_id: str
    seq: int = msgspec.field(name="$seq")


class ClaimAnswer(msgspec.Struct):
    claimed: list[JobInAnswer]


class AckAnswer(msgspec.Struct):
    acked: list[int]


class WriteAnswer(msgspec.Struct):
    first_seq: int
    last_seq: int


class PageAnswer(msgspec.Struct):
    """`records`: how many, and no more of them is decoded."""

    records: list[msgspec.Raw]
    next_from_seq: int


class Topics(Wire):
    """`head`: what each request begins with. `next`: the seq behind which it reads."""

    def __init__(
        self,
        connected: socket.socket,
        topic: str,
        payloads: Sequence[bytes],
        *,
        host: str,
        path: str = "",
        key: str | None = None,
    ) -> None:
        super().__init__(connected, payloads)
        self._topic = topic
        self._path = path
        self._head = f"Host: {host}\r\nContent-Type: application/json\r\n"
        if key is not None:
            self._head += f"Authorization: Bearer {key}\r\n"
        self._jobs: list[JobInAnswer] = []
        self._next = 0
        self._is_watching = False

    def read(self, count: int) -> None:
        body = b'{"from_seq":%d,"limit":%d}' % (self._next, count)
        self._ask(self._post(f"/v0/topics/{self._topic}/diff", body), lambda: self._was_read(count))

    def claim(self, count: int) -> None:
        body = b'{"node":"w","max":%d}' % count
        self._ask(self._post(f"/v0/topics/{self._topic}/claim", body), self._was_claimed)

    def ack(self) -> None:
        fields = {
            "node": "w",
            "seqs": [job.seq for job in self._jobs],
            "lease_ids": [job.lease_id for job in self._jobs],
        }
        self._ask(self._post(f"/v0/topics/{self._topic}/ack", msgspec.json.encode(fields)), self._was_acked)

    def watch(self) -> None:
        """A stream begins with what is known, and says when it has caught up."""
        if not self._is_watching:
            self._is_watching = True
            self._socket.sendall(
                self._post("/v0/watch", json.dumps({"topics": {self._topic: {"tail": True}}}).encode())
            )
            url = json.loads(self._body())["stream_url"]
            lines = f"GET {self._path}{url} HTTP/1.1\r\n{self._head}Accept: text/event-stream\r\n\r\n"
            self._socket.sendall(lines.encode())
            self._until(b"event: caught-up")
        self._finish = self._has_come

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        records = b",".join(b'{"data":%b}' % payload for payload in payloads)
        return self._post(f"/v0/topics/{self._topic}?return_seqs=false", b'{"records":[%b]}' % records)

    def _post(self, path: str, body: bytes) -> bytes:
        lines = f"POST {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        return lines.encode() + body

    def _was_put(self, count: int) -> int:  # noqa: ARG002 -- the answer tells it
        written = msgspec.json.decode(self._body(), type=WriteAnswer)
        return written.last_seq - written.first_seq + 1

    def _was_read(self, count: int) -> int:
        page = msgspec.json.decode(self._body(), type=PageAnswer)
        self._next = page.next_from_seq if len(page.records) == count else 0
        return len(page.records)

    def _was_claimed(self) -> int:
        self._jobs = msgspec.json.decode(self._body(), type=ClaimAnswer).claimed
        return len(self._jobs)

    def _was_acked(self) -> int:
        return len(msgspec.json.decode(self._body(), type=AckAnswer).acked)

    def _has_come(self) -> int:
        """Heartbeats may come before it, and a part of the next event behind it."""
        return self._until(_OF_EVENTS).count(b'"$seq":')

    def _until(self, sign: bytes) -> bytes:
        """Up to the end of the line that has the sign."""
        received = self._received
        while (at := received.find(sign)) < 0 or (end := received.find(b"\n", at)) < 0:
            received += self._receive()
        self._received = received[end:]
        return received[at:end]

    def _body(self) -> bytes:
        received = self._received
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        found = _LENGTH.search(received, 0, end + 2)
        if found is None or not received.startswith(b"HTTP/1.1 20"):
            raise Unexpected(f"topics: {received!r:.600}")
        self._received = received[end + 4 :]
        return self._bytes(int(found[1]))
