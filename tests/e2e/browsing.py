"""A browser, headless, and the origin that it visits: pages of a test's own, and behind them a server."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self

import pytest

from tests.client.scripted import PATIENCE_S, shut

KINDS = {".html": "text/html; charset=utf-8", ".mjs": "text/javascript"}


class Origin:
    """`pages` by their paths; whatever else is asked for goes to the server at `port`, as through a proxy."""

    def __init__(self, port: int, pages: Mapping[str, str]) -> None:
        self._port = port
        self._pages = pages
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            shut(end)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._ends.append(here)
                self._threads.append(threading.Thread(target=self._serve, args=(here,)))
                self._threads[-1].start()

    def _serve(self, here: socket.socket) -> None:
        with suppress(OSError):
            asked = here.recv(65_536)
            path = asked.split(b" ", 2)[1].decode() if asked else ""
            if path in self._pages:
                body = self._pages[path].encode()
                kind = KINDS[pathlib.PurePath(path).suffix]
                head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
                here.sendall(head.encode() + b"connection: close\r\n\r\n" + body)
            else:
                there = socket.create_connection(("127.0.0.1", self._port))
                self._ends.append(there)
                there.sendall(asked)
                self._threads.append(threading.Thread(target=_pass, args=(here, there)))
                self._threads[-1].start()
                _pass(there, here)
        shut(here)


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    shut(source)
    shut(target)


@contextmanager
def visiting(url: str, home: pathlib.Path) -> Iterator[None]:
    """Chromium is on that page until the block ends; skips where there is none."""
    command = shutil.which("chromium") or shutil.which("chromium-browser")
    if command is None:
        pytest.skip("there is no chromium on this machine (Debian: apt-get install chromium)")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    child = subprocess.Popen(
        [command, *options, f"--user-data-dir={home / 'browser'}", url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its processes are a group of their own
        child.wait()
