"""A private server ends with whoever started it, however that was."""

from __future__ import annotations

import pathlib
import signal
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
from topics.cli.demo.private_server import PrivateServer
server = PrivateServer(Path("data"), Path("."))
server.start()
print(server.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_private_server_does_not_outlive_who_started_it(number: int) -> None:
    root = str(pathlib.Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{SCRIPT}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=20) as idle:
            owner.send_signal(number)
            assert idle.recv(1) == b"", "the server lives on"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=20)
