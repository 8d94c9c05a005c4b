"""A real server: `python -m topics serve` in a process of its own, waited for by what its log says.

`until` reads the log line by line, so nobody sleeps or polls; the test's own time limit bounds it. Stopped by its pid.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.support.forking import Forked

ROOT = pathlib.Path(__file__).resolve().parents[2]
CERTIFICATES = pathlib.Path(__file__).parent / "tls"
ANSWER_S = 20.0


def new(command: Sequence[str], *, cwd: pathlib.Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A Python of its own."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Process:
    """`arguments` of `serve`; `entry` is another program that takes the same. `forked`: from one that has imported
    topics, which takes a tenth of the time that a new Python takes.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: pathlib.Path,
        entry: Sequence[str] = ("-m", "topics", "serve"),
        forked: bool = True,
        **env: str,
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        self.events: list[dict[str, Any]] = []
        self.noise: list[str] = []  # what the log says that is no event
        command = [*entry, *map(str, arguments)]
        self.child = (Forked if forked else new)(
            command, cwd=cwd, env=clean | {"PYTHONPATH": str(ROOT)} | env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.child.kill()
        self.child.communicate()

    @property
    def pid(self) -> int:
        return self.child.pid

    def until(self, event: str) -> dict[str, Any]:
        """Read the log up to the event."""
        assert self.child.stderr is not None
        for line in self.child.stderr:
            if not line.startswith("{"):
                self.noise.append(line)
                continue
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return self.events[-1]
        raise AssertionError(f"no {event!r} in {self.events} {self.noise}")

    def ready(self) -> Self:
        self.until("server.ready")
        return self

    @property
    def port(self) -> int:
        """Once it listens."""
        if not any(event["event"] == "server.listening" for event in self.events):
            self.until("server.listening")
        (url,) = (event["url"] for event in self.events if event["event"] == "server.listening")
        return int(url.rpartition(":")[2])

    def go_on(self, how: str = "") -> None:
        """A line to its standard input."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{how}\n")
        self.child.stdin.flush()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Signal it, wait for its end: exit code, what is left of stdout, the whole log's text that is no event."""
        if number is not None:
            self.signal(number)
        out, err = self.child.communicate(timeout=40)
        for line in err.splitlines():
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self.noise.append(line)
        return self.child.returncode, out, "\n".join(self.noise)

    def stop(self) -> None:
        """Drain, and see that it ended well."""
        code, _, noise = self.end(signal.SIGTERM)
        assert (code, noise) == (0, "")

    # As a client.

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((host, self.port), timeout=ANSWER_S)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        context: ssl.SSLContext | None = None,
        **fields: str,
    ) -> tuple[int, Any]:
        """(status, the JSON) of one request on a connection of its own."""
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
            if context is None
            else http.client.HTTPSConnection("127.0.0.1", self.port, timeout=ANSWER_S, context=context)
        )
        headers = {"Content-Type": "application/json", **fields} if body is not None else fields
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def append(self, topic: str, *data: object) -> dict[str, Any]:
        status, fields = self.ask(
            "POST", f"/v0/topics/{topic}", {"records": [{"data": each} for each in data]}
        )
        assert status in (200, 201), fields
        return fields

    def read(self, topic: str) -> list[Any]:
        status, fields = self.ask("POST", f"/v0/topics/{topic}/diff", {"limit": 1000})
        assert status == 200, fields
        return [record["data"] for record in fields["records"]]


def trusting(name: str) -> ssl.SSLContext:
    """A client's context that trusts one of the tests' certificates."""
    return ssl.create_default_context(cafile=str(CERTIFICATES / f"{name}.pem"))
