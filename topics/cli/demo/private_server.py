"""A server of one's own: `topics serve` as a child, on a loopback port that it keeps over restarts.

It ends with its standard input, a socket whose other end is here: nobody's death, not even SIGKILL, leaves it behind.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import topics
from topics.cli.core.failure import Failed

START_S: Final = 20.0
DRAIN_S: Final = 15.0
_LOOK_S: Final = 0.005


class StartBound:
    """A start takes so long at most, and each time that is over so long again if its recovery has gone on since."""

    def __init__(self, now_s: float) -> None:
        self._until_s = now_s + START_S
        self._seen = -1.0

    def is_over(self, now_s: float, look: Callable[[], float]) -> bool:
        """True if it is not to be waited for any longer. `look`: how far the recovery is."""
        if now_s <= self._until_s:
            return False
        before, self._seen = self._seen, look()
        self._until_s = now_s + START_S
        return self._seen <= before


def progress_of(status: int, body: bytes) -> float:
    """Of a server's answer whether it is ready: how far its recovery is, from 0 to 1; -1 if it does not say so."""
    if status == HTTPStatus.OK:
        return 1.0
    with suppress(ValueError, KeyError, TypeError):
        return float(json.loads(body)["error"]["detail"]["replay_progress"])
    return -1.0


class PrivateServer:
    """Started by `with` or `start`, ended by SIGTERM at the end of the block.

    `settings`: those of `topics config show`, by key. `entry`: another program that takes what `topics serve` takes.
    """

    def __init__(
        self,
        data: Path,
        home: Path,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        entry: Sequence[str] = ("-m", "topics", "serve"),
    ) -> None:
        self.data = data
        self.port = 0
        self.ready_ms = 0.0
        self._port_file = home / "port"
        self._log = home / "server.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._entry = entry
        self._settings = {f"TOPICS_{key.upper()}": text for key, text in settings.items()}
        self._control: socket.socket | None = None  # its standard input

    @property
    def url(self) -> str:
        assert self.port
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """As far as its `kill` and `stop` know."""
        return self._child is not None

    def start(self) -> None:
        """Begin, on the port it had before if it had one, and return when requests are served.

        Raises:
            Failed: it ended by itself, or was not ready in time, and its recovery does not go on.
        """
        assert self._child is None
        self._port_file.unlink(missing_ok=True)
        root = str(Path(topics.__file__).resolve().parent.parent)
        environment = {name: text for name, text in os.environ.items() if not name.startswith("TOPICS_")}
        environment |= self._settings
        search = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        started = time.monotonic()
        bound = StartBound(started)
        self._control, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            said_before = log.tell()
            self._child = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                [
                    sys.executable, *self._entry, "--data", str(self.data), "--host", "127.0.0.1",
                    "--port", str(self.port), "--port-file", str(self._port_file), "--while-stdin",
                ],
                stdin=theirs.fileno(), stdout=log, stderr=log, start_new_session=True,
                cwd=self._log.parent, env=environment | {"PYTHONPATH": search},
            )  # fmt: skip
        while not self._is_ready():
            if self._child.poll() is not None:
                said = self._log.read_text(errors="replace").strip().splitlines()[-1:]
                raise Failed(f"the server ended by itself ({self._child.returncode}): {' '.join(said)}")
            if bound.is_over(now := time.monotonic(), partial(self._progress, said_before)):
                waited = now - started
                raise Failed(f"the server was not ready within {waited:.0f} s; its log is {self._log}")
            time.sleep(_LOOK_S)
        self.ready_ms = (time.monotonic() - started) * 1000

    def _is_ready(self) -> bool:
        with suppress(FileNotFoundError, ValueError):
            self.port = int(self._port_file.read_text())
            return True
        return False

    def _progress(self, said_before: int) -> float:
        """How far the recovery of the log is, from 0 to 1; -1 if nobody says so. The port file is not there yet."""
        with suppress(OSError, StopIteration, http.client.HTTPException):
            lines = self._log.read_bytes()[said_before:].splitlines()
            url = next(json.loads(line)["url"] for line in lines if b'"server.listening"' in line)
            asked = http.client.HTTPConnection(urlsplit(url).netloc, timeout=START_S)
            with closing(asked):
                asked.request("GET", "/v0/ready")
                answer = asked.getresponse()
                return progress_of(answer.status, answer.read())
        return -1.0

    def kill(self) -> None:
        """SIGKILL: whatever it was doing, it does no more."""
        assert self._child is not None
        self._child.kill()
        self._reap()

    def stop(self) -> None:
        """SIGTERM, so that it drains; and SIGKILL if that takes too long."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._reap()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        try:
            self.stop()
        finally:
            self._end()

    def _end(self) -> None:
        """Nothing of it is left, whatever interrupted its end."""
        if self._child is not None:
            self._child.kill()
            self._reap()

    def _reap(self) -> None:
        assert self._child is not None
        assert self._control is not None
        self._child.wait()
        self._control.close()
        self._child = self._control = None
