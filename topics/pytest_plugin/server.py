"""A server in a process of its own, whose clock can be moved and whose data can be thrown away from here.

One line goes to it and one comes back, by its standard input, a socket: `ahead 5000`, `empty`, and `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from topics.cli.demo.private_server import START_S, PrivateServer

ENTRY: Final = ("-m", "topics.pytest_plugin.serving")


class Server(PrivateServer):
    """`url`, `port`, `data`; `kill` and `stop` end it, and `start` begins it again. `ahead_ms`: of its clock.
    `settings`: it was made with them.
    """

    ahead_ms: int
    settings: Mapping[str, str]

    @classmethod
    def private(cls, home: Path, settings: Mapping[str, str]) -> Self:
        """One that is to be started, with everything of it in this folder."""
        server = cls(home / "data", home, settings=settings, entry=ENTRY)
        server.ahead_ms, server.settings = 0, settings
        return server

    def start(self) -> None:
        super().start()
        if self.ahead_ms:
            self._ask(f"ahead {self.ahead_ms}")

    def clock_moved(self, ahead_ms: int) -> None:
        """Its clock is to be so far ahead of the system's. One that does not run learns it when it starts."""
        if ahead_ms != self.ahead_ms:
            self.ahead_ms = ahead_ms
            if self.is_running:
                self._ask(f"ahead {ahead_ms}")

    def empty(self) -> None:
        """Begin anew, on the same port, with nothing in it and by the system's clock."""
        self.ahead_ms = 0
        self._ask("empty")

    def _ask(self, line: str) -> None:
        assert self._control is not None, "the server was stopped; start it again"
        self._control.settimeout(START_S)
        self._control.sendall(f"{line}\n".encode())
        said = b""
        while not said.endswith(b"\n"):
            some = self._control.recv(64)
            assert some, f"the server ended by itself; its log is {self._log}"
            said += some
        assert said == b"done\n", said
