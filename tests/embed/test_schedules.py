"""Schedules of a store in this process: what was fired is known wherever its log goes."""

from __future__ import annotations

import itertools

import pytest
import trio

import topics
from topics.host.system.readonly import ReadOnlyDisk
from topics.store.restore import restore

EVERY_MS = 1000


def fired(store):
    return [int(record.meta["$schedule_instant"]) for record in store.topic("t").records()]


def began(path):
    """A store that has fired twice; what the schedule says of itself then."""
    with topics.open(path) as store:
        store.create("t", durability="fsync")
        store.put_schedule(
            "s", "t", b"\x00bytes", every_ms=EVERY_MS, catch_up="all", content_type="image/png"
        )
        for _ in itertools.islice(store.topic("t").follow(), 2):
            pass
        assert store.schedule("s").record == {"data": b"\x00bytes", "content_type": "image/png"}
        return store.topic("t").read().records[0].data


def whole(instants):
    return list(range(instants[0], instants[-1] + 1, EVERY_MS))


@pytest.mark.rule("Q4.18")
def test_it_goes_along_with_a_backup_a_restore_another_count_of_shards_and_a_checkpoint(tmp_path):
    assert began(tmp_path / "a") == b"\x00bytes"
    with topics.open(tmp_path / "a") as store:
        store.checkpoint()
        store.backup(tmp_path / "backup")
        last = store.schedule("s").last_fired
    restore(ReadOnlyDisk(tmp_path / "backup"), tmp_path / "b")
    with topics.open(tmp_path / "b", options=topics.StoreOptions(shards=3)) as store:
        for _ in itertools.islice(store.topic("t").follow(), 4):
            pass
        instants = fired(store)
        assert instants == whole(instants)
        assert store.schedule("s").last_fired >= last
    with topics.open(tmp_path / "b", read_only=True) as store:
        assert store.schedule("s").last_fired == fired(store)[-1]
        with pytest.raises(topics.Rejected, match="nothing is written"):
            store.delete_schedule("s")


def test_a_program_of_tasks_has_them_too(tmp_path):
    async def main():
        async with topics.open_trio(tmp_path / "a") as store:
            await store.create("t", durability="disk")
            await store.put_schedule("s", "t", "x", every_ms=EVERY_MS)
            async for record in store.topic("t").follow():
                assert record.meta["$schedule"] == "s"
                break
            assert [one.schedule for one in await store.schedules()] == ["s"]
            assert await store.delete_schedule("s")
            assert not await store.delete_schedule("s")

    trio.run(main)
