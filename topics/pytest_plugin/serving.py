"""What runs in the process of a `Server`: servers, one after another, by a clock that is told how far ahead it is.

A thread reads what is asked on the standard input, a socket on which it answers, too. At its end the process ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from topics.cli.commands.serve import write_port
from topics.cli.config.settings import load
from topics.kernel.extras import Needs
from topics.kernel.ports import Clock
from topics.pytest_plugin.clock import Clock as MovedClock
from topics.store.directory import ClaimedDirectory
from topics.store.opened import Opened, StoreOptions

with Needs("a server for tests", "server"):
    import trio

    from topics.embed.aio.runtime import Runtime
    from topics.server.main import Announcements, serve


class MovedDirectory(ClaimedDirectory):
    """A directory that is recovered by a clock of ours."""

    clock: Clock

    def recover(
        self,
        *,
        clock: Clock | None = None,
        options: StoreOptions | None = None,
        progress: Callable[[float], None] | None = None,
        machine_restarted: bool | None = None,
    ) -> Opened:
        return super().recover(
            clock=clock or self.clock, options=options, progress=progress, machine_restarted=machine_restarted
        )


class ControlPipe:
    """What is asked, and answers. A request comes when the last one was answered."""

    def __init__(self, line: socket.socket) -> None:
        self.clock = MovedClock()
        self.is_to_empty = False
        self._line: Final = line
        self._runtime: Runtime | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def read(self) -> None:
        """Carry out what comes, until the other end is closed."""
        with self._line.makefile("r", encoding="ascii") as lines:
            for line in lines:
                verb, _, argument = line.strip().partition(" ")
                if verb == "ahead":
                    self._move(int(argument))
                elif verb == "empty":
                    self.is_to_empty = True
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    raise AssertionError(line)
        os.kill(os.getpid(), signal.SIGTERM)

    def take(self, runtime: Runtime) -> None:
        """In its task: who has the engine now."""
        self._runtime, self._token = runtime, trio.lowlevel.current_trio_token()

    def answer(self) -> None:
        self._line.sendall(b"done\n")

    def _move(self, ahead_ms: int) -> None:
        assert self._runtime is not None
        self.clock.ahead_ms = ahead_ms
        trio.from_thread.run_sync(self._runtime.clock_moved, trio_token=self._token)
        self.answer()


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--data", "--host", "--port", "--port-file"):
        parser.add_argument(option, required=True)
    parser.add_argument("--while-stdin", action="store_true", required=True)
    asked = parser.parse_args()
    data, port_file = Path(asked.data), Path(asked.port_file)
    settings = load({"data": asked.data, "host": asked.host, "port": asked.port})
    server, options = settings.server(), settings.options()
    control = ControlPipe(socket.socket(fileno=0))

    def ready(port: int) -> None:
        nonlocal server
        server = attrs.evolve(server, port=port)
        if control.is_to_empty:
            control.is_to_empty = False
            control.answer()
        else:
            write_port(port_file, port)

    told = Announcements(
        listening=lambda _: None, storage=control.take, ready=ready, reread=lambda: (server, ())
    )
    threading.Thread(target=control.read, name="control", daemon=True).start()

    def claim() -> MovedDirectory:
        home = MovedDirectory.claim(data)
        home.clock = control.clock
        return home

    while True:
        serve(server, options, claim, told)
        if not control.is_to_empty:
            break
        shutil.rmtree(data)
        control.clock.ahead_ms = 0


if __name__ == "__main__":
    main()
