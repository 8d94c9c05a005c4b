"""`watch` of a store on Trio: as in threads, and a cancelled item is lost to nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import topics

pytestmark = pytest.mark.trio


def data(values: list[Any]) -> list[Any]:
    return [value.data for value in values if isinstance(value, topics.WatchedRecord)]


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.lowlevel.checkpoint()


async def taken(watch: topics.AsyncWatch, count: int) -> list[Any]:
    return [await anext(watch) for _ in range(count)]


async def test_several_topics_backlog_then_live(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        a, b = await store.create("a"), await store.create("b")
        await a.put_many([{"data": n} for n in range(600)])
        found: list[Any] = []

        async def watch() -> None:
            async with store.watch(["a", "b"]) as watching:
                found.extend(await taken(watching, 604))

        async with trio.open_nursery() as tasks:
            tasks.start_soon(watch)
            await until(lambda: store._runtime.hub.topics == 2)
            await b.put("new")
            await a.put("newer")
        assert [one for one in data(found) if isinstance(one, int)] == list(range(600))
        assert sorted(one for one in data(found) if isinstance(one, str)) == ["new", "newer"]
        assert store._runtime.hub.topics == 0


async def test_a_cancelled_item_is_lost_to_nobody(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("t")
        async with store.watch("t") as watch:
            assert isinstance(await anext(watch), topics.CaughtUp)
            for n in range(20):
                with trio.move_on_after(0.001) as scope:
                    await anext(watch)
                assert scope.cancelled_caught
                await topic.put(n)
                assert data(await taken(watch, 1)) == [n]
            assert watch.positions == {"t": {"from_seq": 20, "epoch": 1}}


async def test_what_comes_between_the_reads_and_the_wait_is_news(tmp_path: Path) -> None:
    """While one topic is read, the other one is written to."""
    async with topics.open_trio(tmp_path) as store:
        a, b = await store.create("a"), await store.create("b")

        async def put() -> None:
            for n in range(200):
                await a.put(n)
                await b.put(n)

        async with store.watch(["a", "b"]) as watch, trio.open_nursery() as tasks:
            tasks.start_soon(put)
            found: list[Any] = []
            with trio.fail_after(20):
                while len(data(found)) < 400:
                    found.append(await anext(watch))
        for name in ("a", "b"):
            assert data([one for one in found if one.topic == name]) == list(range(200))


async def test_it_ends_with_its_topic_by_another_task_and_with_its_store(tmp_path: Path) -> None:
    ended: list[str] = []

    async def run(watch: topics.AsyncWatch, name: str) -> None:
        nonlocal ended
        try:
            async for value in watch:
                ended += [f"{name} {type(value).__name__}"]
            ended.append(f"{name} ended")
        except topics.Rejected as refused:
            ended.append(f"{name} {refused.code}")

    async with topics.open_trio(tmp_path) as store, trio.open_nursery() as tasks:
        await store.create("a")
        await store.create("b")
        closed = store.watch("a")
        for watch, name in ((closed, "closed"), (store.watch("b"), "deleted"), (store.watch("a"), "shut")):
            tasks.start_soon(run, watch, name)
        await until(lambda: len(ended) == 3)
        await closed.aclose()
        await store.delete("b")
        await until(lambda: len(ended) == 6)
        assert set(ended[3:]) == {"closed ended", "deleted TopicDeleted", "deleted ended"}
        await store.aclose()
    assert ended[6:] == ["shut shutting_down"]


async def test_strong_gives_what_is_durable(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("a", durability="disk")
        async with store.watch("a", consistency="strong") as watch:
            await topic.put_many([{"data": n} for n in range(300)])
            with trio.fail_after(20):
                for n in range(300):
                    assert data(await taken(watch, 1)) == [n]
                    assert (await topic.state()).durable_seq == 300
