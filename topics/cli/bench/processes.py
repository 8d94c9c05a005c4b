"""Servers of one's own: in an empty directory, on a free loopback port, ended by pid. No other is touched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from topics.cli.bench.connection import HOST

START_S: Final = 60.0  # RabbitMQ takes ten of them
SAID: Final = "said.log"  # what a server prints, in its directory
_STOP_S: Final = 10.0
_LOOK_S: Final = 0.02
# None is PATH. The first has RabbitMQ without the wrapper that changes users.
_PLACES: Final = ("/usr/lib/rabbitmq/bin", None, "/usr/sbin", "/usr/local/sbin")


class MissingPeer(Exception):
    """There is nothing to compare with: it is not installed, or does not start."""


@contextmanager
def started(
    path: Path, command: Sequence[str], *, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Its pid, when it accepts. Whatever it started itself ends with it.

    Raises:
        MissingPeer: there is no such program, it ended by itself, or accepts nothing.
    """
    path.mkdir(parents=True, exist_ok=True)
    program = find_program(command[0])
    said = path / SAID
    with said.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 -- a program of the table, with arguments of ours
            [program, *command[1:]], cwd=path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip
    try:
        _wait_until_it_accepts(process, port, command[0], said)
        yield process.pid
    finally:
        _end(process)


def find_program(program: str) -> str:
    """Its path. Raises `MissingPeer`."""
    for place in _PLACES:
        if path := shutil.which(program, path=place):
            return path
    raise MissingPeer(f"{program} is not installed")


def version_of(program: str, option: str) -> str:
    """As it says itself."""
    said = subprocess.run(  # noqa: S603 -- a program of the table
        [find_program(program), option], capture_output=True, text=True, check=False, timeout=_STOP_S
    )
    return version_in(said.stdout + said.stderr)


def version_in(said: str, behind: str = "") -> str:
    number = re.search(rf"{behind}\D*?(\d+(?:\.\d+)+)", said)
    return number[1] if number else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def redis(path: Path, fsync: str) -> Iterator[tuple[int, int]]:
    """Port and pid of one that keeps what it is told in a file of commands."""
    port = free_port()
    command = (
        "redis-server", "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "yes",
        "--appendfsync", fsync,
    )  # fmt: skip
    with started(path, command, port=port) as pid:
        yield port, pid


@contextmanager
def nats(path: Path) -> Iterator[tuple[int, int]]:
    """Port and pid of one with JetStream."""
    port = free_port()
    with started(path, ("nats-server", "-a", HOST, "-p", str(port), "-js", "-sd", "."), port=port) as pid:
        yield port, pid


@contextmanager
def beanstalkd(path: Path, sync_ms: str) -> Iterator[tuple[int, int]]:
    """Port and pid of one with a log."""
    port = free_port()
    command = "beanstalkd", "-l", HOST, "-p", str(port), "-b", ".", "-f", sync_ms
    with started(path, command, port=port) as pid:
        yield port, pid


@contextmanager
def rabbitmq(path: Path) -> Iterator[tuple[int, int, str]]:
    """Port and pid of a node, which finds nobody but the port mapper that is started for it; and what it printed."""
    path.mkdir()
    port, names, ours = free_port(), free_port(), str(path)
    environment = {
        "HOME": ours,
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": ours,
        "RABBITMQ_LOG_BASE": ours,
        "RABBITMQ_CONFIG_FILE": str(path / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
    }
    find_program("rabbitmq-server")
    with ExitStack() as stack:
        mapper = "epmd", "-port", str(names), "-address", HOST
        stack.enter_context(started(path / "epmd", mapper, port=names))
        stack.enter_context(started(path / "node", ("rabbitmq-server",), port=port, environment=environment))
        said = (path / "node" / SAID).read_text(encoding="utf-8", errors="replace")
        yield port, int((path / "bench@localhost.pid").read_text(encoding="ascii")), said


def process_cpu_s(pid: int) -> float:
    """User and system time of a process and all its threads, by the kernel's clock of it (clock_getcpuclockid); 0 where
    there is none.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _wait_until_it_accepts(process: subprocess.Popen[bytes], port: int, name: str, said: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            return
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            last = " ".join(said.read_text(encoding="utf-8", errors="replace").split()[-40:])
            what = f"was not ready within {START_S:.0f} s" if ended is None else f"ended by itself ({ended})"
            raise MissingPeer(f"{name} {what}: {last}")
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The group of it: a shell may stand around it. Its directory is thrown away, so nothing needs a gentle end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_S)
