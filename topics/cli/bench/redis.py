"""A stream of Redis with a consumer group: XADD; XREADGROUP; XACK and XDEL in one round trip; XRANGE; XREAD BLOCK."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from topics.cli.bench.connection import Unexpected, Wire

_ENTRY_LINES: Final = 8  # *2, the id and its size, *2, the field and its size, the body and its size
_ID_LINE: Final = 2  # of them
_GROUP: Final = b"g"


class Redis(Wire):
    """`last`: the id behind which it watches. `next`: the one behind which it reads."""

    def __init__(self, connected: socket.socket, stream: str, payloads: Sequence[bytes]) -> None:
        super().__init__(connected, payloads)
        self._stream = stream.encode()
        self._jobs: list[bytes] = []
        self._last = b""
        self._next = b"-"
        self._socket.sendall(resp(b"XGROUP", b"CREATE", self._stream, _GROUP, b"0", b"MKSTREAM"))
        (said,) = self._lines(1)
        if said != b"+OK" and not said.startswith(b"-BUSYGROUP"):  # another connection has made it
            raise Unexpected(f"redis: {said!r}")

    def read(self, count: int) -> None:
        options = self._stream, self._next, b"+", b"COUNT", b"%d" % count
        self._ask(resp(b"XRANGE", *options), lambda: self._was_read(count))

    def claim(self, count: int) -> None:
        options = b"COUNT", b"%d" % count, b"STREAMS", self._stream, b">"
        self._ask(resp(b"XREADGROUP", b"GROUP", _GROUP, b"w", *options), self._was_claimed)

    def ack(self) -> None:
        jobs = self._jobs
        request = resp(b"XACK", self._stream, _GROUP, *jobs) + resp(b"XDEL", self._stream, *jobs)
        self._ask(request, self._was_acked)

    def watch(self) -> None:
        if not self._last:
            self._ask(resp(b"XREVRANGE", self._stream, b"+", b"-", b"COUNT", b"1"), lambda: 0)
            self._last = (self._entries(self._size(b"*")) or [b"0-0"])[0]
        request = resp(b"XREAD", b"BLOCK", b"0", b"STREAMS", self._stream, self._last)
        self._ask(request, self._has_come)

    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        return b"".join(resp(b"XADD", self._stream, b"*", b"d", payload) for payload in payloads)

    def _was_put(self, count: int) -> int:
        """A bulk string each: the size of the id, the id."""
        for line in self._lines(2 * count)[::2]:
            if not line.startswith(b"$"):
                raise Unexpected(f"redis: {line!r}")
        return count

    def _was_read(self, count: int) -> int:
        entries = self._entries(self._size(b"*"))
        self._next = b"(" + entries[-1] if len(entries) == count else b"-"
        return len(entries)

    def _was_claimed(self) -> int:
        self._jobs = self._of_stream()
        return len(self._jobs)

    def _was_acked(self) -> int:
        if self._lines(2) != [b":%d" % len(self._jobs)] * 2:
            raise Unexpected("redis: a job was not acknowledged")
        return len(self._jobs)

    def _has_come(self) -> int:
        entries = self._of_stream()
        self._last = entries[-1]
        return len(entries)

    def _of_stream(self) -> list[bytes]:
        """Of one stream: *1, *2, its name and the size of that, its entries."""
        self._size(b"*")
        self._lines(3)
        return self._entries(self._size(b"*"))

    def _entries(self, count: int) -> list[bytes]:
        """Their ids."""
        return self._lines(_ENTRY_LINES * count)[_ID_LINE::_ENTRY_LINES] if count else []

    def _size(self, kind: bytes) -> int:
        (line,) = self._lines(1)
        if not line.startswith(kind) or line == b"*-1":
            raise Unexpected(f"redis: {line!r}")
        return int(line[1:])


def resp(*words: bytes) -> bytes:
    """A command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
