"""A way to a server on which the answers of a watch break off after so many bytes, connection by connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from tests.client.scripted import PATIENCE_S, shut


class CuttingRelay:
    """Each stream of events takes the next of `cuts`; when there are none left, nothing is cut."""

    def __init__(self, port: int, cuts: Iterable[int]) -> None:
        self._port = port
        self._cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.streams = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            shut(end)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()

    def _begin(self, call: object, *given: object) -> None:
        self._threads.append(threading.Thread(target=call, args=given))  # type: ignore[arg-type]  # one of these
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [here, there]
                self._begin(self._serve, here, there)

    def _serve(self, here: socket.socket, there: socket.socket) -> None:
        asked, left = b"", 1 << 60
        with suppress(OSError):
            asked = here.recv(65_536)
            there.sendall(asked)
        if asked.startswith(b"GET /v0/watch/"):
            self.streams += 1
            left = self._cuts.pop(0) if self._cuts else left
        self._begin(_pass, here, there, 1 << 60)
        _pass(there, here, left)


def _pass(source: socket.socket, target: socket.socket, left: int) -> None:
    """So many bytes; then neither side hears any more."""
    with suppress(OSError):
        while left and (data := source.recv(min(left, 65_536))):
            target.sendall(data)
            left -= len(data)
    shut(source)
    shut(target)
