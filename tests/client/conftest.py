"""A real server for the tests of a worker, and clients of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import topics
from topics.cli.demo.private_server import PrivateServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    home = tmp_path_factory.mktemp("server")
    with PrivateServer(home / "data", home) as running:
        yield running


@pytest.fixture
def client(server: PrivateServer) -> Iterator[topics.Client]:
    with topics.Client(server.url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of one test's own."""
    return "".join(sign if sign.isalnum() else "-" for sign in request.node.name)[:200]
