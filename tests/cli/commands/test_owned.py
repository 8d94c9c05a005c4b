"""A command on a directory that somebody owns: through the owner if that is a server, else it says what to do."""

from __future__ import annotations

import os
import pathlib

import pytest

import topics
from tests.cli.conftest import Call
from topics.cli.demo.private_server import PrivateServer


@pytest.mark.rule("O2.20")
def test_commands_on_the_directory_of_a_server_go_through_it(call: Call, tmp_path: pathlib.Path) -> None:
    data = str(tmp_path / "d")
    commands = [
        ("put", "t", "-"),
        ("configure", "t", "ttl_ms=1d"),
        ("ls",),
        ("get", "t"),
        ("state", "t"),
        ("tail", "t", "--no-follow"),
        ("delete", "t", "--before", "2"),
        ("backup", "b"),
        ("rm", "t", "--yes"),
    ]

    with PrivateServer(tmp_path / "d", tmp_path) as server:
        answers = [call(*command, "--json", "--data", data, stdin=b"1\n2\n") for command in commands]
        with topics.Client(server.url) as client:
            assert not client.list()

    assert [answer.code for answer in answers] == [0] * len(commands)
    for answer in answers:
        assert answer.err.count(f"going through {server.url}") == 1
        assert len(answer.err.splitlines()) == 1
    assert [row["data"] for row in answers[3].lines] == [1, 2]
    assert answers[2].lines[0]["topic"] == "t"


def test_compact_asks_a_server_for_checkpoints_and_says_what_comes_of_it(
    call: Call, tmp_path: pathlib.Path
) -> None:
    with PrivateServer(tmp_path / "d", tmp_path, settings={"segment_max_events": "10"}) as server:
        call("put", "t", "--durability", "fsync", "--url", server.url, stdin=b"1\n" * 30)
        assert "2 checkpoints taken, and segments" in call("compact", "--url", server.url).text
        files = sorted(path.name for path in (tmp_path / "d").rglob("*.data"))
        call("delete", "t", "--before", "21", "--url", server.url)
        assert call("compact", "--url", server.url, "--json").lines == [{"checkpoints": 2, "damages": []}]
        left = sorted(path.name for path in (tmp_path / "d").rglob("*.data"))

    assert (len(files), left) == (3, files[2:])


@pytest.mark.rule("O2.20")
def test_a_directory_that_a_process_has_embedded_says_what_to_do(call: Call, tmp_path: pathlib.Path) -> None:
    with topics.open("d"):
        for command in (("ls",), ("put", "t", "-"), ("get", "t")):
            answer = call(*command, "--data", "d", stdin=b"1\n")
            assert answer.code == 1
            assert f"d is in use by process {os.getpid()}, which does not serve it" in answer.err
            assert "topics serve --data d" in answer.err
            assert len(answer.err.splitlines()) == 1


@pytest.mark.rule("O2.20")
def test_the_url_of_a_server_that_has_ended_is_not_asked(call: Call, tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "d", tmp_path) as server:
        server.kill()
    with topics.open("d"):
        answer = call("ls", "--data", "d")

    assert answer.code == 1
    assert "which does not serve it" in answer.err
    assert call("ls", "--data", "d").err == ""
