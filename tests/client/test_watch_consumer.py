"""A watch from a durable consumer, in this process and at a server, by threads and by tasks: the same of all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
import trio

import topics
from topics.cli.demo.private_server import PrivateServer

PATIENCE_S = 20


class InTasks:
    """A store of threads, as one of tasks: what is called is called, and what it gives is there."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            given = found(*arguments, **options)
            return InTasks(given) if name in ("topic", "consumer", "watch") else _there(given)

        return call

    async def __anext__(self) -> Any:
        return next(self._inner)

    async def __aenter__(self) -> Self:
        self._inner.__enter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._inner.__exit__(None, None, None)


def _there(given: Any) -> Awaitable[Any]:
    async def awaited() -> Any:
        return given

    return awaited()


@asynccontextmanager
async def opened(path: str, folder: Path, server: PrivateServer) -> AsyncIterator[Any]:
    match path:
        case "open":
            with topics.open(folder) as store:
                yield InTasks(store)
        case "open_trio":
            async with topics.open_trio(folder) as kept:
                yield kept
        case "Client":
            with topics.Client(server.url) as client:
                yield InTasks(client)
        case _:
            async with topics.AsyncClient(server.url) as remote:
                yield remote


@pytest.fixture(params=["open", "open_trio", "Client", "AsyncClient"])
def run(request: pytest.FixtureRequest, tmp_path: Path, server: PrivateServer) -> Callable[[Any], None]:
    def run(program: Callable[[Any], Awaitable[None]]) -> None:
        async def main() -> None:
            with trio.fail_after(PATIENCE_S):
                async with opened(request.param, tmp_path, server) as store:
                    await program(store)

        anyio.run(main, backend="trio")

    return run


async def taken(watch: Any, count: int) -> list[Any]:
    """So many that are no `CaughtUp`: records by their data, losses by where they end."""
    found: list[Any] = []
    while len(found) < count:
        match await watch.__anext__():
            case topics.WatchedRecord(data=data):
                found.append(data)
            case topics.Tombstone(gap_from=first, gap_to=last):
                found.append((first, last))
            case topics.TopicDeleted():
                found.append("deleted")
    return found


async def refused(what: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(topics.Rejected) as failed:
        await what
    return failed.value.code.value, failed.value.message


@pytest.mark.rule("H7.6")
def test_it_begins_there_and_commits_what_was_given(run: Callable[[Any], None], name: str) -> None:
    async def program(store: Any) -> None:
        topic = store.topic(name)
        await topic.put_many([{"data": number, "tag": f"t{number % 2}"} for number in range(1, 11)])
        consumer = topic.consumer("c")
        await consumer.seek(seq=3)

        async def stands() -> int:
            position: int = (await consumer.position()).from_seq
            return position

        async with store.watch({name: {"consumer": "c"}}) as watch:
            assert watch.positions == {name: {"from_seq": 3, "epoch": 1}}
            assert (await taken(watch, 2), await stands()) == ([4, 5], 3)
            await watch.commit()
            assert (await taken(watch, 1), await stands()) == ([6], 5)
        async with store.watch(name, consumer="c", match="t0") as watch:
            assert await taken(watch, 3) == [6, 8, 10]
            await consumer.seek(seq=9)
            await watch.commit()
            assert await stands() == 10
            await topic.configure(cap_records=2)
            await topic.put_many([{"data": number, "tag": "t0"} for number in range(11, 17)])
        async with store.watch(name, consumer="c") as watch:
            assert (await taken(watch, 1), await stands()) == ([(11, 14)], 10)
            await watch.commit()
            assert await stands() == 14
            await watch.commit()
        async with store.watch([name], consumer="c", auto_commit=True) as watch:
            assert (await taken(watch, 1), await stands()) == ([15], 16)
        await watch.commit()
        assert await stands() == 16
        async with store.watch([name], consumer="c", auto_commit=True) as watch:
            for number in (17, 18):
                await topic.put(number)
                assert (await taken(watch, 1), await stands()) == ([number], number)

    run(program)


@pytest.mark.rule("H7.6")
def test_what_is_refused_and_what_ends(run: Callable[[Any], None], name: str) -> None:
    async def program(store: Any) -> None:
        topic = store.topic(name)
        await topic.put_many([{"data": number} for number in (1, 2)])
        for options, said in (
            ({"consumer": "c", "tail": True}, "from_seq: give tail or consumer, not both"),
            ({"auto_commit": True}, "auto_commit: goes with a consumer"),
        ):
            with pytest.raises(topics.Rejected, match=said):
                store.watch(name, **options)
        none = ("consumer_not_found", f"topic '{name}' has no consumer 'c': put it first")
        assert await refused(store.watch(name, consumer="c").__aenter__()) == none
        gone = ("topic_not_found", f"topic '{name}-none' does not exist")
        assert await refused(store.watch(f"{name}-none", consumer="c").__aenter__()) == gone

        consumer = topic.consumer("c")
        await consumer.seek()
        async with store.watch(name) as watch:
            with pytest.raises(topics.Rejected, match="this watch has none"):
                await watch.commit()
        async with store.watch(name, consumer="c") as watch:
            assert await taken(watch, 1) == [1]
            await consumer.delete()
            with pytest.raises(topics.Rejected, match=f"topic '{name}' has no consumer 'c'"):
                await watch.commit()
        await consumer.seek(tail=True)
        async with store.watch(name, consumer="c", auto_commit=True) as watch:
            await topic.put(3)
            assert await taken(watch, 1) == [3]
            await consumer.delete()
            await topic.put(4)
            with pytest.raises(topics.Rejected, match=f"topic '{name}' has no consumer 'c'"):
                await taken(watch, 1)
        await consumer.seek()
        async with store.watch(name, consumer="c") as watch:
            assert await taken(watch, 1) == [1]
            await store.delete(name)
            await watch.commit()
            assert (await taken(watch, 4))[-1] == "deleted"

    run(program)
