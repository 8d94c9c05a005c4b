"""What a system must be able to do for its workloads: five calls, and one that waits for the answer to the last.

A call of a socket returns when its request is sent, so one thread keeps many of them busy. Requests are made beforehand
where they can be, and no client library stands between: a client in Python takes more CPU than the servers that are
measured, so the figures would be those of the clients (decision 113).
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

HOST: Final = "127.0.0.1"
ANSWER_S: Final = 20.0
RECEIVE_BYTES: Final = 64 * 1024  # of more, malloc maps anew for each answer: 17 µs, this 1


class Unexpected(Exception):
    """An answer that is not what was asked for."""


class Connection:
    """A client of one log, queue or stream, that it was made for. What a system does not know, it refuses."""

    def put(self, count: int) -> None:
        """So many records in one request, or in as many at once as the system wants for it."""
        raise self._unknown(f"put of {count}")

    def read(self, count: int) -> None:
        """The next so many records; from the first one again behind the last."""
        raise self._unknown(f"read of {count}")

    def claim(self, count: int) -> None:
        """Take so many jobs, which are this connection's to ack."""
        raise self._unknown(f"claim of {count}")

    def ack(self) -> None:
        """The jobs that were claimed last are done."""
        raise self._unknown("ack")

    def watch(self) -> None:
        """Wait for the next record that is put; `answer` returns when it is there."""
        raise self._unknown("watch")

    def answer(self) -> int:
        """How many records it was about. Raises `Unexpected`."""
        raise self._unknown("answer")

    def fileno(self) -> int:
        """Of its socket; -1 of a library, whose calls return when they are done."""
        return -1

    def close(self) -> None:
        """Nothing comes any more."""

    def _unknown(self, what: str) -> Unexpected:
        return Unexpected(f"{type(self).__name__} knows no {what}")


class Wire(Connection, ABC):
    """A connection to a server, read by lines and by sizes.

    `runs` are the requests of `put`, made by `_put_request` of the system once for each count, and taken by turns.
    """

    def __init__(self, connected: socket.socket, payloads: Sequence[bytes]) -> None:
        self._socket = connected
        self._socket.settimeout(ANSWER_S)
        self._payloads = payloads
        self._runs: dict[int, Iterator[bytes]] = {}
        self._received = b""
        self._finish: Callable[[], int] = lambda: 0

    def put(self, count: int) -> None:
        runs = self._runs.get(count)
        if runs is None:
            starts = range(0, len(self._payloads) - count + 1, count)
            runs = cycle([self._put_request(self._payloads[start : start + count]) for start in starts])
            self._runs[count] = runs
        self._ask(next(runs), lambda: self._was_put(count))

    def answer(self) -> int:
        return self._finish()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @abstractmethod
    def _put_request(self, payloads: Sequence[bytes]) -> bytes:
        """What puts all of them."""

    @abstractmethod
    def _was_put(self, count: int) -> int:
        """The answer to that."""

    def _ask(self, request: bytes, finish: Callable[[], int]) -> None:
        self._finish = finish
        self._socket.sendall(request)

    def _receive(self) -> bytes:
        piece = self._socket.recv(RECEIVE_BYTES)
        if not piece:
            raise Unexpected(f"{type(self).__name__}: the server closed a connection")
        return piece

    def _lines(self, count: int) -> list[bytes]:
        """So many, without their ends. No payload has one in it, so they are counted and not parsed."""
        pieces = [self._received]
        found = self._received.count(b"\n")
        while found < count:
            pieces.append(piece := self._receive())
            found += piece.count(b"\n")
        if found == count and pieces[-1].endswith(b"\n"):
            self._received = b""
            return b"".join(pieces)[:-2].split(b"\r\n")
        *lines, self._received = b"".join(pieces).split(b"\r\n", count)
        return lines

    def _bytes(self, count: int) -> bytes:
        pieces, have = [self._received], len(self._received)
        while have < count:
            pieces.append(piece := self._receive())
            have += len(piece)
        whole = b"".join(pieces)
        self._received = whole[count:]
        return whole[:count]


def connected(port: int, host: str = HOST) -> socket.socket:
    made = socket.create_connection((host, port), timeout=ANSWER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
