"""What systemd is told by a server that it has started, and that nobody else is."""

from __future__ import annotations

import os
import pathlib
import signal
import socket

import pytest

from tests.server.process import Process
from topics.server.systemd import Notifier


@pytest.fixture
def manager(tmp_path):
    """The socket where systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(20)
        yield listening


def until(manager: socket.socket, line: str) -> list[str]:
    """Every line up to this one."""
    seen: list[str] = []
    while line not in seen:
        seen += manager.recv(4096).decode().splitlines()
    return seen


@pytest.mark.rule("O7.2")
def test_it_is_told_when_the_server_is_ready_lives_reloads_and_stops(manager, tmp_path):
    told = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    with Process("--port", 0, "--data", "data", cwd=tmp_path, **told) as server:
        before = until(manager, "READY=1")
        port = server.ready().port
        alive = until(manager, "WATCHDOG=1")
        os.kill(server.pid, signal.SIGHUP)
        reloading = until(manager, "RELOADING=1") + until(manager, "READY=1")
        os.kill(server.pid, signal.SIGTERM)
        until(manager, "STOPPING=1")
        assert server.child.wait(20) == 0

    assert not any(line.startswith("STOPPING") for line in before)
    assert any(line == f"STATUS=serving http://127.0.0.1:{port}" for line in before + alive)
    assert any(line.startswith("MONOTONIC_USEC=") for line in reloading)


def test_a_reload_before_it_is_ready_does_not_make_it_so(manager, tmp_path):
    planted = str(pathlib.Path(__file__).parent / "planted.py")
    told = {"NOTIFY_SOCKET": manager.getsockname()}
    with Process("recovery", "port", cwd=tmp_path, entry=[planted], **told) as server:
        server.until("recovery.waits")
        os.kill(server.pid, signal.SIGHUP)
        server.until("settings.reloaded")
        server.go_on()
        server.ready()
        before = until(manager, "READY=1")

    assert "RELOADING=1" not in before
    assert any(line.startswith("STATUS=serving") for line in before)


def test_a_start_that_goes_on_has_its_time_extended_but_not_at_every_step(manager):
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.tell_progress(0.25)
    notifier.tell_progress(0.5)
    notifier.tell("READY=1")

    assert until(manager, "READY=1") == [
        "STATUS=recovering the log, 25%",
        "EXTEND_TIMEOUT_USEC=120000000",
        "READY=1",
    ]


@pytest.mark.parametrize(
    "environment", [{}, {"NOTIFY_SOCKET": "/nobody/listens/here"}, {"NOTIFY_SOCKET": "@nobody"}]
)
def test_without_a_socket_nothing_is_told_and_nothing_fails(environment):
    notifier = Notifier({"WATCHDOG_USEC": "1000000", **environment})
    notifier.tell("READY=1")

    assert bool(notifier.watchdog_s) is bool(environment)


@pytest.mark.parametrize(
    ("watching", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_watchdog_is_this_process_own(manager, watching, seconds):
    assert Notifier({"NOTIFY_SOCKET": manager.getsockname(), **watching}).watchdog_s == seconds


def test_a_manager_that_takes_nothing_is_not_waited_for(manager):
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    for _ in range(10_000):
        notifier.tell("STATUS=" + "x" * 100)
