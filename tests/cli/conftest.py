"""Calling `topics` as a user does, in this process or in one of its own.

In this process it is `main` with standard streams handed in; where exit codes, pipes or terminals are the point, a
child.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import topics
from topics.cli.demo.private_server import PrivateServer
from topics.cli.main import main

SAMPLE = pathlib.Path(main.__code__.co_filename).parents[1] / "sample" / "earthquakes.jsonl"


@attrs.frozen
class Answer:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in a directory of its own, with no variable of ours or of colours set."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def call() -> Iterator[Call]:
    """`main(arguments)` on streams of its own."""
    before = sys.stdin, sys.stdout, sys.stderr

    def call_it(*arguments: str, stdin: bytes = b"") -> Answer:
        out, err = io.BytesIO(), io.BytesIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
        sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True)
        try:
            code = main(list(arguments))
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            return Answer(code, out.getvalue(), err.getvalue().decode())
        finally:
            sys.stdin, sys.stdout, sys.stderr = before

    yield call_it
    sys.stdin, sys.stdout, sys.stderr = before


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    """A real server; its topics stay, so a test takes names of its own."""
    home = tmp_path_factory.mktemp("server")
    with PrivateServer(home / "data", home) as running:
        yield running


@pytest.fixture(params=["directory", "server"])
def at(request: pytest.FixtureRequest, call: Call) -> Call:
    """`call`, at a directory or at a server, which has no topics yet."""
    if request.param == "directory":
        return call
    server = request.getfixturevalue("server")
    with topics.Client(server.url) as client:
        for row in client.list():
            client.delete(row.topic)
    return lambda *arguments, **given: call("--url", server.url, *arguments, **given)


@pytest.fixture
def spawn() -> Callable[..., subprocess.Popen[bytes]]:
    """A child that runs `python -m topics ARGUMENTS`."""

    def spawn_it(*arguments: str, **how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "topics", *arguments], **how)

    return spawn_it


@pytest.fixture
def sample() -> pathlib.Path:
    return SAMPLE
