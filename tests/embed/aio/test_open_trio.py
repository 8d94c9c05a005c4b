"""A store in a program on Trio: its tasks share it, what is cancelled is only an answer, and its end is an end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

import topics
from topics.engine.checkpoint import SegmentRules
from topics.host.backup.verifying import verify_backup
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Code, Unusable
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio

WRITES, TASKS = 20, 30


def files(folder: Path) -> dict[Path, int]:
    """Each with the time of its last change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "LOCK"}


@pytest.mark.rule("Q7.3")
async def test_what_many_tasks_put_is_there_when_the_directory_is_opened_again(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path / "data") as store:
        topic = await store.create("t", durability="fsync")

        async def put(me: int) -> None:
            seqs = [(await topic.put([me, i], tag=f"t{me}")).first_seq for i in range(WRITES)]
            assert seqs == sorted(seqs)

        async with trio.open_nursery() as tasks:
            for me in range(TASKS):
                tasks.start_soon(put, me)
        assert (await topic.state()).durable_seq == WRITES * TASKS

    with topics.open(tmp_path / "data") as again:
        assert again.cuts == again.damages == again.warnings == []
        records = list(again.topic("t").records())
    for me in range(TASKS):
        assert [record.data for record in records if record.tag == f"t{me}"] == [
            [me, i] for i in range(WRITES)
        ]


async def test_a_caller_who_is_cancelled_loses_his_answer_and_not_his_write(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("t", durability="fsync")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(topic.put, 1)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await topic.put(2)

        assert [record.data async for record in topic.records()] == [1, 2]


async def test_who_waits_is_woken_by_a_write_and_goes_on_where_he_was_cancelled(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("t")
        items, seen = topic.follow(), []
        for number in range(5):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as tasks:
                    tasks.start_soon(anext, items)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            async with trio.open_nursery() as tasks:
                tasks.start_soon(topic.put_many, [{"data": number}] * 2)
                seen += [(await anext(items)).data, (await anext(items)).data]
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_a_wait_ends_with_its_time_its_topic_or_the_store(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("t")
        await topic.put_many([{"data": 1, "tag": "other"}] * 3)
        page = await topic.read(match="mine", wait_ms=20, account=True)
        assert (page.records, page.next_from_seq, page.account.filtered) == ([], 3, 3)

        async def write() -> None:
            await topic.put(2, tag="other")
            await topic.put(3, tag="mine")

        async with trio.open_nursery() as tasks:
            tasks.start_soon(write)
            page = await topic.read(from_seq=1, match="mine", wait_ms=30_000, account=True)
        assert [record.data for record in page.records] == [3]
        assert (page.from_seq, page.account.filtered) == (1, 3)

        async def refused(code: Code, head: int) -> None:
            with pytest.raises(topics.Rejected) as ended:
                await topic.read(from_seq=head, wait_ms=30_000)
            assert ended.value.code is code

        async with trio.open_nursery() as tasks:
            tasks.start_soon(refused, Code.TOPIC_NOT_FOUND, 5)
            await trio.testing.wait_all_tasks_blocked()
            assert await store.delete("t") is True
        await topic.put(1)
        async with trio.open_nursery() as tasks:
            tasks.start_soon(refused, Code.SHUTTING_DOWN, 1)
            await trio.testing.wait_all_tasks_blocked()
            await store.aclose()
        for call in (topic.put, topic.read, topic.state, store.list, store.sync):
            with pytest.raises(topics.Rejected, match="the store is closed"):
                await (call(1) if call == topic.put else call())


async def test_news_between_a_page_and_its_wait_are_not_slept_over(tmp_path: Path) -> None:
    """Readers and writers without a pause: whoever missed a write would wait for the next one, which waits for him."""
    async with topics.open_trio(tmp_path) as store:
        ping, pong = await store.create("ping"), await store.create("pong", durability="fsync")

        async def answer() -> None:
            items = ping.follow()
            for _ in range(200):
                await pong.put((await anext(items)).seq)

        async with trio.open_nursery() as tasks:
            tasks.start_soon(answer)
            items = pong.follow()
            for number in range(1, 201):
                await ping.put(number)
                assert (await anext(items)).data == number


async def test_what_the_block_raises_is_raised_as_it_is_and_the_directory_is_free(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with topics.open_trio(tmp_path) as store:
            await store.topic("t").put(1)
            raise ZeroDivisionError
    with trio.CancelScope() as scope:
        async with topics.open_trio(tmp_path) as store:
            await store.topic("t").put(2)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    async with topics.open_trio(tmp_path) as store:
        with pytest.raises(topics.CannotOpen) as in_use:
            async with topics.open_trio(tmp_path):
                pass
        assert in_use.value.reason is Unusable.IN_USE
        assert [record.data async for record in store.topic("t").records()] == [1, 2]
    with pytest.raises(topics.CannotOpen) as missing:
        async with topics.open_trio(tmp_path / "missing", create=False):
            pass
    assert missing.value.reason is Unusable.MISSING


async def test_a_store_that_is_only_read_changes_nothing(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        await store.topic("t").put(b"\x00", content_type="image/png")
    before = files(tmp_path)
    async with topics.open_trio(tmp_path, read_only=True) as store:
        assert store.read_only is True
        assert [record.data async for record in store.topic("t").records()] == [b"\x00"]
        for call in (store.topic("t").put(1), store.checkpoint(), store.backup(tmp_path / "b")):
            with pytest.raises(topics.Rejected) as refused:
                await call
            assert refused.value.code is Code.STORAGE_READ_ONLY
    assert files(tmp_path) == before


async def test_a_backup_is_whole_while_others_write_and_one_that_is_cancelled_leaves_nothing(
    tmp_path: Path,
) -> None:
    told: list[int] = []
    async with topics.open_trio(tmp_path / "data") as store:
        await store.topic("t").put_many([{"data": "x" * 1000}] * 1000)
        with trio.CancelScope() as scope:
            await store.backup(tmp_path / "b", tell=lambda done, total: scope.cancel())
        assert scope.cancelled_caught
        async with trio.open_nursery() as tasks:
            tasks.start_soon(store.topic("t").put_many, [{"data": 2}] * 10)
            written = await store.backup(
                tmp_path / "whole", tell=lambda done, total: told.append(threading.get_ident())
            )
    assert {path.relative_to(tmp_path).parts[0] for path in files(tmp_path)} == {"data", "whole"}
    assert verify_backup(OsDisk(tmp_path / "whole"), "b").findings == []
    assert written.manifest.topics[0].head_seq in (1000, 1010)
    assert set(told) == {threading.get_ident()}


async def test_space_is_given_back_when_it_is_asked_for(tmp_path: Path) -> None:
    options = topics.StoreOptions(segments=SegmentRules(records_max=100))
    async with topics.open_trio(tmp_path, options=options) as store:
        topic = store.topic("t")
        await topic.put_many([{"data": "x" * 1000}] * 1000)
        await store.checkpoint()
        await topic.delete(before_seq=901)
        freed = await store.compact()
    assert (freed.segments_removed, freed.bytes_freed > 900_000) == (9, True)


async def test_a_producer_in_tasks_of_the_same_program(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        async with store.producer("t", batch_records=10) as producer:
            receipts = [await producer.put({"n": n}) for n in range(95)]
        assert [await receipt.result() for receipt in receipts] == list(range(1, 96))


async def test_topics_whose_records_are_compressed_come_back_whole(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        topic = await store.create("t", compression="zstd")
        await topic.put_many([{"data": ["text"] * 500}] * 20)
        page = await topic.read(limit=5)
        assert [record.data for record in page.records] == [["text"] * 500] * 5


async def test_a_topic_whose_records_have_expired_is_empty_to_who_deletes_it(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with topics.open_trio(tmp_path, clock=clock) as store:
        topic = await store.create("t", ttl_ms=1000)
        await topic.put(1)
        clock.advance(5000)
        assert await store.delete("t", if_empty=True) is True


async def test_a_claim_is_bounded_by_what_its_jobs_are_unfolded(tmp_path: Path) -> None:
    async with topics.open_trio(tmp_path) as store:
        await store.create("q", type="queue", compression="gzip")
        queue = store.queue("q", node="w")
        for priority in (0, 0, 0, 9):
            await queue.put("0" * 4000, priority=priority)
        assert [job.seq for job in await queue.claim(9, max_bytes=9000)] == [4, 1]
        again = await queue.claim(9, wait_ms=30_000)
        assert [(job.seq, job.deliveries) for job in again] == [(2, 1), (3, 1)]
