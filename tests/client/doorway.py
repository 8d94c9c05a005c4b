"""A port of a test's own, whose connections are looked after by threads; all of them end with the block."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Self

PATIENCE_S = 20


class Doorway:
    """`port`: of the server behind it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        shut(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()

    def cut(self) -> None:
        """All connections, at once."""
        for end in self._ends:
            shut(end)

    def _came(self, here: socket.socket) -> None:
        """Somebody connects. Whatever takes time is done by a thread of its own."""
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._ends.append(here)
                self._came(here)

    def _server(self) -> socket.socket:
        """A connection to the server."""
        there = socket.create_connection(("127.0.0.1", self._port))
        self._ends.append(there)
        return there

    def _begin(self, *call: Any) -> None:
        self._threads.append(threading.Thread(target=call[0], args=call[1:]))
        self._threads[-1].start()


def pass_on(source: socket.socket, target: socket.socket, left: int = 1 << 60) -> None:
    """So many bytes; then neither side hears any more."""
    with suppress(OSError):
        while left and (data := source.recv(min(left, 65_536))):
            target.sendall(data)
            left -= len(data)
    shut(source)
    shut(target)


def shut(end: socket.socket) -> None:
    """Which is heard on the other side even if a thread waits for what comes; a close is not."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
