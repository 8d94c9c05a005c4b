"""A browser, headless, and the origin that it visits: pages of a test's own, and behind them a server."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from tests.client.doorway import Doorway, pass_on, shut

KINDS = {".html": "text/html; charset=utf-8", ".mjs": "text/javascript"}


class Origin(Doorway):
    """`pages` by their paths; whatever else is asked for goes to the server at `port`, as through a proxy."""

    def __init__(self, port: int, pages: Mapping[str, str]) -> None:
        super().__init__(port)
        self._pages = pages

    def _came(self, here: socket.socket) -> None:
        self._begin(self._serve, here)

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
                there = self._server()
                there.sendall(asked)
                self._begin(pass_on, here, there)
                pass_on(there, here)
        shut(here)


def chromium() -> str:
    """Where this machine has it; skips where it has none."""
    command = shutil.which("chromium") or shutil.which("chromium-browser")
    if command is None:
        pytest.skip("there is no chromium on this machine (Debian: apt-get install chromium)")
    return command


@contextmanager
def visiting(url: str, home: pathlib.Path) -> Iterator[None]:
    """Chromium is on that page until the block ends; skips where there is none."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    child = subprocess.Popen(
        [chromium(), *options, f"--user-data-dir={home / 'browser'}", url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its processes are a group of their own
        child.wait()
