"""Routers of a store in this process: what they are, and how far they have come, is known wherever the log goes."""

from __future__ import annotations

import pytest
import trio

import topics
from topics.host.system.readonly import ReadOnlyDisk
from topics.store.restore import restore


def datas(store, topic):
    return [record.data for record in store.topic(topic).records()]


@pytest.mark.rule("T5.19")
def test_it_goes_along_with_a_backup_a_restore_another_count_of_shards_and_a_checkpoint(tmp_path):
    with topics.open(tmp_path / "a") as store:
        made = store.put_router("s->d", "s", "d", filter=["tag", "Glob", "x*"], guarantee="exactly_once")
        assert made == store.router("s->d")
        for n in range(3):
            store.topic("s").put(n, tag="xy")
        store.topic("s").put("other", tag="y")
        store.checkpoint()
        store.backup(tmp_path / "backup")
        before = store.router("s->d")
        assert (before.cursor, before.lag, before.forwarded_total) == (4, 0, 3)
    restore(ReadOnlyDisk(tmp_path / "backup"), tmp_path / "b")
    with topics.open(tmp_path / "b", options=topics.StoreOptions(shards=3)) as store:
        assert store.router("s->d") == before
        store.delete_router("s->d")
        store.topic("s").put("behind its end", tag="xy")
        again = store.put_router("s->d", "s", "d")
        assert (again.cursor, again.forwarded_total, again.filter) == (5, 0, None)
    with topics.open(tmp_path / "b", read_only=True) as store:
        assert store.routers() == [again]
        assert datas(store, "d") == [0, 1, 2]
        with pytest.raises(topics.Rejected, match="nothing is written"):
            store.delete_router("s->d")


def test_a_program_of_tasks_has_them_too(tmp_path):
    async def main():
        async with topics.open_trio(tmp_path / "a") as store:
            await store.put_router("r", "s", "d")
            await store.topic("s").put("x")
            async for record in store.topic("d").follow():
                assert record.data == "x"
                break
            assert [one.router for one in await store.routers(source="s")] == ["r"]
            assert await store.delete_router("r")
            assert not await store.delete_router("r")

    trio.run(main)
