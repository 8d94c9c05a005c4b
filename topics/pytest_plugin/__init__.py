"""The pytest plugin: a server, a client and a store for a test, and a clock that can be moved (docs/pytest.md).

pytest loads it wherever topics is installed, so it imports pytest and nothing else until a fixture is asked for.

    clock    `Clock`: the system's clock, and ahead of it by what a test says
    server   `Server`: a server in a process of its own, which follows a `Clock`
    serving  what runs in that process
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import topics
    from topics.pytest_plugin.clock import Clock
    from topics.pytest_plugin.server import Server


@pytest.fixture(scope="session")
def topics_server_settings() -> Mapping[str, str]:
    """Settings of the servers, by key, as `topics config show` names them: to be overridden."""
    return {}


@pytest.fixture(scope="session")
def _topics_servers() -> list[Server]:
    """Those that run now: whose clocks are moved."""
    return []


@pytest.fixture
def topics_clock(_topics_servers: list[Server]) -> Iterator[Clock]:
    """A clock that goes on by itself; `advance(ms)` moves it, with all that is due, at once.

    `topics_store` and the servers of this plugin go by it. What a test has moved is put back behind it: a server then
    begins anew, with nothing in it.
    """
    from topics.pytest_plugin.clock import Clock

    clock = Clock()
    for server in _topics_servers:
        clock.on_move(server.clock_moved)
    yield clock
    for server in _topics_servers:
        if server.ahead_ms:
            server.empty()


@pytest.fixture(scope="session")
def topics_server(
    tmp_path_factory: pytest.TempPathFactory,
    topics_server_settings: Mapping[str, str],
    _topics_servers: list[Server],
) -> Iterator[Server]:
    """A server on a free loopback port, for all tests of this run: `url`, `port`, `data`.

    It keeps what tests write, until one that asks for `topics_client` begins.
    """
    from topics.pytest_plugin.server import Server

    with Server.private(tmp_path_factory.mktemp("topics-server"), topics_server_settings) as server:
        _topics_servers.append(server)
        yield server
        _topics_servers.remove(server)


@pytest.fixture
def topics_own_server(
    tmp_path_factory: pytest.TempPathFactory, topics_server_settings: Mapping[str, str], topics_clock: Clock
) -> Iterator[Server]:
    """A server for one test, to `kill()` and to `start()` again over the same directory, on the same port."""
    from topics.pytest_plugin.server import Server

    with Server.private(tmp_path_factory.mktemp("topics-own-server"), topics_server_settings) as server:
        topics_clock.on_move(server.clock_moved)
        yield server


@pytest.fixture
def topics_client(
    topics_server: Server, topics_server_settings: Mapping[str, str], topics_clock: Clock
) -> Iterator[topics.Client]:
    """A client of `topics_server`, which begins anew for this test: no topic, no key, no lease of another one's."""
    import topics

    if topics_server_settings != topics_server.settings:  # pytest makes it once, with those of its first test
        raise pytest.UsageError(
            f"topics_server runs with the settings {dict(topics_server.settings)}, and those of this test are "
            f"{dict(topics_server_settings)}: a run has one, so define topics_server_settings in the conftest.py of "
            "all tests, or ask for topics_own_server here"
        )
    topics_server.empty()
    topics_server.clock_moved(topics_clock.ahead_ms)
    with topics.Client(topics_server.url) as client:
        yield client


@pytest.fixture
def topics_store(tmp_path: Path, topics_clock: Clock) -> Iterator[topics.Store]:
    """An embedded store over `tmp_path / "topics"`."""
    import topics

    with topics.open(tmp_path / "topics", clock=topics_clock) as store:
        topics_clock.on_move(lambda _: store.clock_moved())
        yield store
