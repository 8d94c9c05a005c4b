"""A private server ends with whoever started it, however that was."""

from __future__ import annotations

import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from tests.server.api.asking import ask
from tests.server.wire.places import new_site
from topics.cli.demo.private_server import START_S, PrivateServer, StartBound, progress_of

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


def test_a_start_is_waited_for_while_its_recovery_goes_on() -> None:
    shares = iter([0.0, 0.5, 0.5])
    bound = StartBound(0.0)
    assert not bound.is_over(START_S, lambda: next(shares))
    assert not bound.is_over(START_S + 1, lambda: next(shares))
    assert not bound.is_over(2 * START_S + 0.5, lambda: next(shares))
    assert not bound.is_over(2 * START_S + 2, lambda: next(shares))
    assert bound.is_over(3 * START_S + 3, lambda: next(shares))
    assert StartBound(0.0).is_over(START_S + 1, lambda: -1.0)


@pytest.mark.trio
async def test_a_server_that_recovers_says_how_far_it_is() -> None:
    site = new_site()
    site.progress = 0.25
    answer = await ask(site, "GET", "/v0/ready")
    assert isinstance(answer.body, bytes)
    assert progress_of(answer.status, answer.body) == 0.25
    assert progress_of(503, b"no such thing") == -1.0


def test_a_private_server_is_asked_where_its_log_says(tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server:
        assert server._progress(0) == 1.0
        assert server._progress((tmp_path / "server.log").stat().st_size) == -1.0
        server.kill()
        assert server._progress(0) == -1.0
