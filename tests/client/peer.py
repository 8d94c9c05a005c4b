"""A server that does what a script says, connection by connection: to show what a client makes of it.

And time that only moves when somebody sleeps.
"""

from __future__ import annotations

import io
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from topics.calls.patience import Pace

Step = bytes | None


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status} x",
        f"content-length: {len(body)}",
        "content-type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def error(status: int, code: str, *headers: str, message: str = "no") -> bytes:
    return answer(
        status, b'{"error":{"code":"%b","message":"%b"}}' % (code.encode(), message.encode()), *headers
    )


def _head(stream: io.BufferedReader) -> bytes:
    lines = []
    while (line := stream.readline(65_536)) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join(lines)


class Peer:
    """One step a request: bytes to answer, or None to close without a word. After the last step, that one again."""

    def __init__(self, *script: Step) -> None:
        self.requests: list[bytes] = []
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as stream:
                if stream.peek(1)[:1] == b"\x16":  # a TLS hello
                    connection.sendall(error(400, "invalid_request"))
                    continue
                head = _head(stream)
                if not head:
                    return  # `__exit__` called
                lengths = re.findall(rb"(?i)content-length: *([0-9]+)", head)
                length = int(lengths[0]) if lengths else 0
                self.requests.append(head + b"\r\n" + stream.read(length))
                step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                if step is not None:
                    with suppress(ConnectionError):  # a client may leave in the middle
                        connection.sendall(step.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Started, to be ended by hand."""
        self._thread.start()
        yield self

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.create_connection(self._listener.getsockname()):
            pass
        self._thread.join(10)
        self._listener.close()

    def body(self, number: int) -> bytes:
        return self.requests[number].split(b"\r\n\r\n", 1)[1]


class Time:
    """Seconds that pass by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def go_on(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def pace(self) -> Pace:
        return Pace(now_s=lambda: self.now, sleep=self.go_on, chance=lambda: 0.0)
