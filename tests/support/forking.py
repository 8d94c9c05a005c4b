"""Children that begin where `python -m topics` has imported all it needs: as forks of one process that has.

Theory. Of what a server in a process of its own costs a test, nine tenths are imports: half a second of CPU. So the
first child of a test run begins a *template*, which imports them once; it forks for each child that is asked for, hands
it the three standard streams, directory and environment that it was given, and tells how it ended. A fork is a process
like any other: its signals, files, sockets and exit code are its own. What only a new interpreter can show (the import
itself, an option of Python) is for `subprocess`.

    Forked     a child, asked as a `subprocess.Popen` is
    main       the template
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("topics.cli.main", "topics.cli.commands.serve", "topics.server.main", "topics.store.directory")
MESSAGE_MAX = 1 << 17


class Forked:
    """`python COMMAND`, which is `-m MODULE …` or `PROGRAM …`. Its streams are pipes of text."""

    def __init__(self, command: Sequence[str], *, cwd: pathlib.Path, env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        (inner_in, outer_in), (outer_out, inner_out), (outer_err, inner_err), (told, tells) = (
            os.pipe() for _ in range(4)
        )
        self.stdin: IO[str] = os.fdopen(outer_in, "w")
        self.stdout: IO[str] = os.fdopen(outer_out)
        self.stderr: IO[str] = os.fdopen(outer_err)
        self._told: IO[str] = os.fdopen(told)
        given = [inner_in, inner_out, inner_err, tells]
        asked = json.dumps({"command": [*command], "cwd": str(cwd), "env": {**env}}).encode() + b"\n"
        assert len(asked) < MESSAGE_MAX
        socket.send_fds(_template(), [asked], given)
        for each in given:
            os.close(each)
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left of both streams, once it has ended."""
        self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            left = [pool.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            self.wait(timeout)
            out, err = (each.result(timeout) for each in left)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._told.readline())
        self._told.close()


def _rest(stream: IO[str]) -> str:
    if stream.closed:
        return ""
    with stream:
        return stream.read()


@functools.cache
def _template() -> socket.socket:
    """The socket of this process's template, which ends with it."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        child.wait()

    atexit.register(end)
    return ours


def main(number: str) -> None:
    """Fork for each that is asked for, until nobody can ask any more. Returns in each fork, too, when it has run."""
    asked = socket.socket(fileno=int(number))
    for name in NEEDED:
        importlib.import_module(name)
    gc.freeze()  # what is shared stays so
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(running)
        if asked not in ready:
            continue
        text, given, _, _ = socket.recv_fds(asked, MESSAGE_MAX, 4)
        if not text:
            return
        while not text.endswith(b"\n"):
            text += asked.recv(MESSAGE_MAX)
        *streams, tells = given
        if pid := os.fork():
            running[pid] = tells
            os.write(tells, b"%d\n" % pid)
            for each in streams:
                os.close(each)
            continue
        signal.set_wakeup_fd(-1)
        for each in (asked, woken, wakes):
            each.close()
        for each in (*running.values(), tells):
            os.close(each)
        _become(streams, **json.loads(text))
        return


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        tells = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody asks any more
            os.write(tells, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(tells)


def _become(streams: list[int], command: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be a new Python that has been given these, as far as its program can see; it exits as one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
