"""What only a client that is awaited can get wrong: cancellation, and tasks that share it."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import topics
from topics import AsyncClient
from topics.cli.demo.private_server import PrivateServer

TASKS, CALLS, CONNECTIONS = 12, 60, 3


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda function, *arguments: anyio.run(function, *arguments, backend=request.param)


async def cancelled_after(steps: int, call: Callable[[], Awaitable[object]]) -> None:
    """The call, unless so many steps of the loop are over before it is."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                for _ in range(steps):
                    await checkpoint()
                scope.cancel()

            tasks.start_soon(end)
            await call()
            tasks.cancel_scope.cancel()


@pytest.mark.rule("O5.3")
def test_a_call_that_is_cancelled_anywhere_takes_its_connection_along(
    run: Callable[..., Any], server: PrivateServer, name: str
) -> None:
    """Nobody gets what was meant for another, and none of the few connections is lost for good."""
    chance = random.Random(1)

    async def main() -> None:
        async with AsyncClient(server.url, connections_max=CONNECTIONS) as client:
            topic = client.topic(name)
            await topic.put_many([{"data": i} for i in range(TASKS)])

            async def read(number: int) -> None:
                page = await topic.read(from_seq=number, limit=1)
                assert [record.data for record in page.records] == [number]

            async def reader(number: int) -> None:
                for _ in range(CALLS):
                    await cancelled_after(chance.randrange(60), lambda: read(number))
                await read(number)

            async with anyio.create_task_group() as readers:
                for number in range(TASKS):
                    readers.start_soon(reader, number)

    run(main)


def test_a_stream_goes_on_where_an_item_that_was_waited_for_was_cancelled(
    run: Callable[..., Any], server: PrivateServer, name: str
) -> None:
    async def main() -> list[int]:
        async with AsyncClient(server.url) as client:
            topic = await client.create(name)
            items, seqs = topic.follow(), []
            for number in range(1, 6):
                await cancelled_after(40 * number, lambda: anext(items))
                await topic.put_many([{"data": number}] * 2)
                seqs += [(await anext(items)).seq, (await anext(items)).seq]
            return seqs

    assert run(main) == list(range(1, 11))


def test_a_stream_is_for_one_task(run: Callable[..., Any], server: PrivateServer, name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            items = (await client.create(name)).follow()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, items)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(RuntimeError, match="give each task its own"):
                    await anext(items)
                tasks.cancel_scope.cancel()

    run(main)


def test_who_waits_at_the_server_is_told_that_the_client_was_closed(
    run: Callable[..., Any], server: PrivateServer, name: str
) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            topic = await client.create(name)

            async def wait() -> None:
                with pytest.raises(topics.Rejected, match="the client is closed"):
                    await topic.read(wait_ms=30_000)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                await client.aclose()

    run(main)


def test_a_backup_that_is_cancelled_leaves_nothing(
    run: Callable[..., Any], server: PrivateServer, name: str, tmp_path: Path
) -> None:
    async def main() -> bool:
        async with AsyncClient(server.url) as client:
            await client.topic(name).put("x" * 500_000)
            with anyio.CancelScope() as scope:
                await client.backup(tmp_path / "b", tell=lambda done, total: scope.cancel())
            written = await client.backup(tmp_path / "whole")
            assert name in {topic.name for topic in written.manifest.topics}
            return scope.cancelled_caught

    assert run(main) is True
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_what_is_told_of_a_backup_is_told_where_the_client_is(
    run: Callable[..., Any], server: PrivateServer, tmp_path: Path
) -> None:
    told = []

    async def main() -> topics.client.client.Written:
        async with AsyncClient(server.url) as client:
            return await client.backup(
                tmp_path / "b", tell=lambda done, total: told.append((done, total, threading.get_ident()))
            )

    written = run(main)
    assert told[-1][0] == told[-1][1] > written.manifest.size
    assert {thread for _, _, thread in told} == {threading.get_ident()}
