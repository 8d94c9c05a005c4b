"""Servers in processes of their own: started on a free port over a fresh directory, loaded, stopped by their pid."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ci.benchmarks.load import topic_name
from topics.cli.bench.connection import HOST

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
LOOK_S = 0.001
START_S = 60.0
STOP_S = 20.0
FLOORS = {"floor": "ci.benchmarks.floor_server", "quart": "ci.benchmarks.quart_server"}


@dataclass(frozen=True)
class Server:
    """A process that accepts. `ready_s`: from its start until it was ready."""

    process: subprocess.Popen[bytes]
    port: int
    ready_s: float

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def topics_serve(data: Path, **settings: int) -> Iterator[Server]:
    """`topics serve`, ready: `/v0/ready` has said 200. `settings`: by their names in `topics.toml`."""
    port_file = data.parent / f"{data.name}.port"
    port_file.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "topics",
        "serve",
        "--data",
        str(data),
        "--port",
        "0",
        "--port-file",
        str(port_file),
    ]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with _running(command, port_file, ready="/v0/ready") as server:
        yield server


@contextmanager
def serve(kind: str, data: Path, durability: str, *, topics: int = 1, **settings: int) -> Iterator[Server]:
    """A server with its topics: `topics`, or one of FLOORS, which have the one."""
    if kind == "topics":
        with topics_serve(data, **settings) as server:
            for number in range(topics):
                ask(server.port, "PUT", f"/v0/topics/{topic_name(number)}", {"durability": durability})
            yield server
        return
    assert topics == 1
    port_file = data.parent / f"{data.name}.port"
    options = ["--data", str(data), "--port-file", str(port_file), "--durability", durability]
    with _running([sys.executable, "-m", FLOORS[kind], *options], port_file) as server:
        yield server


@contextmanager
def canned(port_file: Path, *, request_bytes: int, answer_bytes: int) -> Iterator[Server]:
    options = [
        f"--port-file={port_file}",
        f"--request-bytes={request_bytes}",
        f"--answer-bytes={answer_bytes}",
    ]
    with _running([sys.executable, "-m", "ci.benchmarks.canned_server", *options], port_file) as server:
        yield server


@contextmanager
def _running(command: Sequence[str], port_file: Path, *, ready: str = "") -> Iterator[Server]:
    output = port_file.with_suffix(".log")
    with output.open("wb") as log:
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            port = _port(process, port_file)
            if ready:
                _wait_ready(process, port, ready)
            yield Server(process, port, time.perf_counter() - begun)
        except RuntimeError as error:
            error.add_note(f"the server said: {_tail(output)}")
            raise
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL to a process that does not heed it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], port_file: Path) -> int:
    deadline = time.perf_counter() + START_S
    while time.perf_counter() < deadline:
        if port_file.exists() and (written := port_file.read_text(encoding="ascii").strip()):
            return int(written)
        if process.poll() is not None:
            break
        time.sleep(LOOK_S)
    raise RuntimeError("the server did not begin")


def _wait_ready(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    deadline = time.perf_counter() + START_S
    while time.perf_counter() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=START_S)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except ConnectionError:
            pass
        finally:
            connection.close()
        time.sleep(LOOK_S)
    raise RuntimeError("the server was not ready in time")


def _tail(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")[-2000:] or "it said nothing"


def ask(port: int, method: str, path: str, body: object = None) -> dict[str, object]:
    """One request, its JSON answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=START_S)
    try:
        encoded = None if body is None else json.dumps(body)
        connection.request(method, path, encoded, {"Content-Type": "application/json"} if encoded else {})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        decoded: dict[str, object] = json.loads(text)
        return decoded
    finally:
        connection.close()


def load(plan: msgspec.Struct, result: type[T], module: str = "ci.benchmarks.load") -> T:
    """What the generator says, in a process of its own."""
    command = [sys.executable, "-m", module, msgspec.json.encode(plan).decode()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=result)
