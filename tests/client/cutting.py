"""A way to a server on which the answers of a watch break off after so many bytes, connection by connection."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress

from tests.client.doorway import Doorway, pass_on


class CuttingRelay(Doorway):
    """Each stream of events takes the next of `cuts`; when there are none left, nothing is cut."""

    def __init__(self, port: int, cuts: Iterable[int]) -> None:
        super().__init__(port)
        self._cuts = list(cuts)
        self.streams = 0

    def _came(self, here: socket.socket) -> None:
        self._begin(self._serve, here, self._server())

    def _serve(self, here: socket.socket, there: socket.socket) -> None:
        asked, left = b"", 1 << 60
        with suppress(OSError):
            asked = here.recv(65_536)
            there.sendall(asked)
        if asked.startswith(b"GET /v0/watch/"):
            self.streams += 1
            left = self._cuts.pop(0) if self._cuts else left
        self._begin(pass_on, here, there)
        pass_on(there, here, left)
