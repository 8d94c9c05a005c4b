"""Routers of a store in this process: what they are, and how far they have come, is known wherever the log goes."""

from __future__ import annotations

import time

import pytest
import trio

import topics
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.limits import CATCH_UP_MAX_MS
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


DESTS = [f"d{n}" for n in range(6)]  # some of them in another shard than "s"


@pytest.mark.rule("S8.26")
@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_who_reads_a_dest_behind_an_answered_write_finds_its_copy(tmp_path, durability):
    with topics.open(tmp_path / "a", options=topics.StoreOptions(shards=3)) as store:
        source = store.create("s", durability=durability)
        for dest in DESTS:
            store.put_router(dest, "s", dest)
        for n in range(5):
            for dest in DESTS:
                source.put(n)
                head = source.state().head_seq
                match n:
                    case 0:
                        assert store.topic(dest).state().head_seq == head
                    case 1:
                        assert store.router(dest).lag == 0
                    case 2:
                        with store.watch(dest, tail=True) as watch:
                            assert next(watch).head_seq == head
                    case 3:
                        assert store.topic(dest).read(from_seq=head - 1, wait_ms=1000).records[0].data == n
                    case _:
                        assert len(datas(store, dest)) == head


@pytest.mark.rule("S8.26")
def test_nobody_waits_for_copies_that_find_no_room(tmp_path):
    with topics.open(tmp_path / "a", options=topics.StoreOptions(shards=3)) as store:
        source = store.create("s")
        for dest in DESTS:
            store.create(dest, cap_records=1, discard="reject")
            store.put_router(dest, "s", dest)
        source.put_many([{"data": 1}, {"data": 2}])
        for dest in DESTS:
            datas(store, dest)  # until it is found that there is no room
        began = time.monotonic()
        found = [datas(store, dest) for dest in DESTS]

        assert all(len(one) <= 1 for one in found)
        assert all(store.router(dest).lag for dest in DESTS)
        assert time.monotonic() - began < CATCH_UP_MAX_MS / 1000


@pytest.mark.rule("S8.26")
def test_who_reads_in_a_program_of_tasks_finds_it_too(tmp_path):
    async def main():
        async with topics.open_trio(tmp_path / "a", options=topics.StoreOptions(shards=3)) as store:
            source = await store.create("s")
            for dest in DESTS:
                await store.put_router(dest, "s", dest)
            for n in range(3):
                for dest in DESTS:
                    await source.put(n)
                    head = (await source.state()).head_seq
                    if n == 0:
                        assert (await store.topic(dest).state()).head_seq == head
                    elif n == 1:
                        assert (await store.router(dest)).lag == 0
                    else:
                        page = await store.topic(dest).read(from_seq=head - 1)
                        assert [record.data for record in page.records] == [n]

    trio.run(main)


@pytest.mark.rule("S8.6", "S8.17")
def test_copies_of_a_large_write_go_along_in_a_new_store(tmp_path):
    with topics.open(tmp_path / "a") as store:
        source = store.create("s")
        for number in range(200):
            store.put_router(f"r{number}", "s", f"d{number}")
        source.put_many([b"x" * 190] * 100)  # with its copies, several times the first file of the log

        assert not any(store.router(f"r{number}").lag for number in range(200))


@pytest.mark.rule("S8.26")
@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_answered_is_copied_before_its_source_is_deleted(tmp_path, shards):
    with topics.open(tmp_path / "a", options=topics.StoreOptions(shards=shards)) as store:
        source = store.create("s", durability="disk")
        for dest in DESTS:
            store.put_router(dest, "s", dest)
        source.put_many([{"data": n} for n in range(500)])
        assert store.delete("s")

        assert all(datas(store, dest) == list(range(500)) for dest in DESTS)


@pytest.mark.rule("S8.26")
def test_so_it_is_in_a_program_of_tasks(tmp_path):
    async def main():
        async with topics.open_trio(tmp_path / "a", options=topics.StoreOptions(shards=3)) as store:
            source = await store.create("s", durability="disk")
            for dest in DESTS:
                await store.put_router(dest, "s", dest)
            await source.put_many([{"data": n} for n in range(500)])
            assert await store.delete("s")
            for dest in DESTS:
                assert (await store.topic(dest).state()).count == 500

    trio.run(main)
