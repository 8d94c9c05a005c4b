"""`topics pressure`: of the server that is named, or that serves the directory; and of nothing else."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import topics
from topics.cli.commands.serve import LEFT_OFF
from topics.cli.demo.private_server import PrivateServer
from topics.sched.governor import PressureStep

Call = Callable[..., Any]


@pytest.mark.rule("H11.9")
def test_a_server_at_rest_leaves_nothing_off(call: Call, server: PrivateServer) -> None:
    told = call("pressure", "--url", server.url)

    assert told.code == 0
    rows = dict(line.split("  ", 1) for line in told.text.splitlines() if line.strip())
    assert {name: value.strip() for name, value in rows.items()} | {"the server is busy": ""} == {
        "pressure": "0.00", "left off": "nothing", "topics that wait to be told": "none",
        "how long they wait": "0.0 ms", "the server is busy": "", "held back (priority below 0)": "0 topics",
        "news waits for more": "0.0 ms", "synced writes wait for each other": "0.0 ms",
    }  # fmt: skip
    (told,) = call("pressure", "--url", server.url, "--json").lines
    assert (told["step"], told["bands"]["750"], told["signals"]["ready_topics"]) == ("nothing", 0, 0)


def test_the_server_of_a_directory_is_found(
    call: Call, server: PrivateServer, tmp_path: pathlib.Path
) -> None:
    told = call("pressure", "--data", str(server.data))

    assert (told.code, f"going through {server.url}" in told.err) == (0, True)
    for directory in (tmp_path / "absent", tmp_path):
        told = call("pressure", "--data", str(directory))
        assert (told.code, told.out) == (1, b"")
        assert f"no server serves {directory}" in told.err
        assert f"topics serve --data {directory}" in told.err
    assert not (tmp_path / "absent").exists()
    with topics.open(tmp_path / "embedded"):
        assert "which does not serve it" in call("pressure", "--data", str(tmp_path / "embedded")).err


def test_every_step_has_its_words() -> None:
    assert list(LEFT_OFF) == [step.name.lower() for step in PressureStep]
