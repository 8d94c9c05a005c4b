"""Producers over a store in this process: by a thread, and by a task on Trio and on asyncio."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import topics
from topics.calls.awaiting import AsyncTopicStore
from topics.calls.blocking import TopicStore
from topics.calls.call import Steps
from topics.calls.producing.batches import RECORD_OVERHEAD
from topics.kernel.errors import Code

PUTS, PRODUCERS = 400, 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[topics.Store]:
    with topics.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda function, *arguments: anyio.run(function, *arguments, backend=request.param)


class Gated(TopicStore):
    """A store whose writes wait for the gate. `writes`: how many records each had; `meanwhile` is called in each."""

    def __init__(self, store: TopicStore, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.where, self.limits, self.store, self.meanwhile = store.where, store.limits, store, meanwhile
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.writes: list[int] = []

    def do(self, steps: Steps[Any]) -> Any:
        self.begun.set()
        self.gate.wait()
        self.meanwhile()
        done = self.store.do(steps)
        self.writes.append(len(done))
        return done

    def feed(self, asked: Any) -> Any:
        raise NotImplementedError

    def backup(self, dest: Any, **options: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Loop(AsyncTopicStore):
    """A store of this process for tasks: each call is made on the loop. `fails`: what a write raises instead."""

    def __init__(self, store: TopicStore) -> None:
        self.where, self.limits, self.store = store.where, store.limits, store
        self.gate: anyio.Event | None = None
        self.fails: Exception | None = None

    async def do(self, steps: Steps[Any]) -> Any:
        await anyio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return self.store.do(steps)

    def feed(self, asked: Any) -> Any:
        raise NotImplementedError

    async def backup(self, dest: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


def data_of(store: TopicStore, topic: str = "t") -> list[Any]:
    return [record.data for record in store.topic(topic).records()]


@pytest.mark.rule("O5.6")
def test_what_many_threads_put_is_there_in_the_order_of_each(store: topics.Store) -> None:
    receipts: dict[int, list[topics.Receipt]] = {}
    with store.producer("t", linger_ms=1, batch_records=50) as producer:

        def put(me: int) -> None:
            receipts[me] = [producer.put([me, i], tag=f"t{me}") for i in range(PUTS)]

        threads = [threading.Thread(target=put, args=(me,)) for me in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    records = {record.seq: record for record in store.topic("t").records()}
    assert len(records) == PUTS * PRODUCERS
    for me in range(PRODUCERS):
        seqs = [receipt.result(0) for receipt in receipts[me]]
        assert seqs == sorted(seqs)
        assert [(records[seq].data, records[seq].tag) for seq in seqs] == [
            ([me, i], f"t{me}") for i in range(PUTS)
        ]


def test_while_a_batch_is_on_its_way_the_next_one_grows(store: topics.Store) -> None:
    gated = Gated(store)
    with gated.producer("t", linger_ms=0, batch_records=30) as producer:
        first = producer.put(0)
        gated.begun.wait()
        others = [producer.put(i) for i in range(1, 101)]
        assert not first.is_done
        gated.gate.set()
        assert [receipt.result() for receipt in (first, *others)] == list(range(1, 102))
        assert all(receipt.is_done for receipt in others)

    assert gated.writes == [1, 30, 30, 30, 10]


@pytest.mark.rule("O5.6")
def test_a_put_waits_while_too_much_is_pending(store: topics.Store) -> None:
    """As seen whenever a write is made: no more is on its way, or waits, than there may be."""
    begun, seen = [0], []
    gated = Gated(store, lambda: seen.append(begun[0] - sum(gated.writes)))
    room = 5
    with gated.producer("t", linger_ms=0, pending_bytes=room * (RECORD_OVERHEAD + 1)) as producer:

        def put() -> None:
            for _ in range(100):
                producer.put(1)
                begun[0] += 1

        thread = threading.Thread(target=put)
        thread.start()
        gated.begun.wait()
        gated.gate.set()
        thread.join()

    assert sum(gated.writes) == 100
    assert max(seen) <= room


def test_a_record_larger_than_all_room_goes_alone(store: topics.Store) -> None:
    with store.producer("t", pending_bytes=1, batch_bytes=1) as producer:
        seqs = [producer.put("x" * 1000) for _ in range(3)]

    assert [receipt.result() for receipt in seqs] == [1, 2, 3]


def test_what_no_topic_takes_is_refused_at_once_and_what_this_one_does_not_take_fails_alone(
    tmp_path: Path,
) -> None:
    options = topics.StoreOptions(limits=topics.Limits(record_bytes=20, records_per_write=7))
    with topics.open(tmp_path, options=options) as store:
        producer = store.producer("t", linger_ms=10_000)
        with pytest.raises(topics.Rejected, match="NaN"):
            producer.put(float("nan"))
        with pytest.raises(TypeError, match="tagg"):
            producer.put(1, tagg="x")  # type: ignore[call-arg]  # on purpose
        receipts = [producer.put("x" * 30 if i in (3, 17) else i) for i in range(20)]
        with pytest.raises(topics.Rejected, match="limit of 20") as first:
            producer.close()
        producer.close()

        assert first.value.__notes__ == ["topic 't': 2 records were put in vain; each receipt says why"]
        assert data_of(store) == [i for i in range(20) if i not in (3, 17)]
        for i, receipt in enumerate(receipts):
            if i in (3, 17):
                with pytest.raises(topics.Rejected) as refused:
                    receipt.result()
                assert refused.value.code is Code.RECORD_TOO_LARGE
            else:
                assert receipt.result() == i + 1 - (i > 3) - (i > 17)


def test_a_failure_is_told_once_by_flush_and_each_time_by_its_receipt(store: topics.Store) -> None:
    store.create("t", cap_records=2, discard="reject")
    gated = Gated(store)
    with gated.producer("t", batch_records=2, linger_ms=0) as producer:
        kept = producer.put(1)
        gated.begun.wait()
        lost = [producer.put(i) for i in range(4)]
        gated.gate.set()
        with pytest.raises(topics.Rejected) as full:
            producer.flush()
        producer.flush()
        for _ in range(2):
            with pytest.raises(topics.Rejected) as of_one:
                lost[0].result()
            assert of_one.value.code is full.value.code is Code.TOPIC_FULL
        with pytest.raises(topics.Rejected, match="put it again behind that") as behind:
            lost[3].result()

    assert kept.result() == 1
    assert behind.value.code is Code.NOT_READY
    assert data_of(store) == [1]


def test_what_a_block_raises_is_raised_and_what_it_put_is_written(store: topics.Store) -> None:
    with pytest.raises(ZeroDivisionError) as raised, store.producer("t", linger_ms=10_000) as producer:
        producer.put(1)
        raise ZeroDivisionError

    assert data_of(store) == [1]
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(ZeroDivisionError) as raised, store.producer("t", linger_ms=10_000) as producer:
        producer.put("x" * 2_000_000)
        raise ZeroDivisionError
    assert "and of what was put before" in raised.value.__notes__[0]


def test_a_closed_producer_takes_nothing_nor_does_one_of_a_closed_store(tmp_path: Path) -> None:
    store = topics.open(tmp_path)
    closed, late = store.producer("t"), store.producer("t")
    closed.close()
    with pytest.raises(topics.Rejected, match="the producer is closed"):
        closed.put(1)
    store.close()
    receipt = late.put(1)
    with pytest.raises(topics.Rejected, match="the store is closed"):
        late.close()
    with pytest.raises(topics.Rejected, match="the store is closed"):
        receipt.result()


def test_an_answer_is_waited_for_as_long_as_was_asked(store: topics.Store) -> None:
    gated = Gated(store)
    with gated.producer("t", linger_ms=0) as producer:
        receipt = producer.put(1)
        with pytest.raises(TimeoutError, match="still on its way"):
            receipt.result(timeout_s=0)
        gated.gate.set()
        assert receipt.result() == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_producer_that_breaks_leaves_nobody_waiting(store: topics.Store) -> None:
    def explode() -> None:
        raise MemoryError

    gated = Gated(store, explode)
    producer = gated.producer("t", linger_ms=0, batch_records=1)
    receipts = [producer.put(i) for i in range(3)]
    gated.gate.set()
    with pytest.raises(topics.Unreachable, match=r"MemoryError.*may be there"):
        producer.close()
    with pytest.raises(topics.Unreachable):
        receipts[0].result()
    with pytest.raises(topics.Rejected, match="not sent"):
        receipts[2].result()


def test_a_forked_child_has_no_part_in_it(store: topics.Store) -> None:
    producer = store.producer("t")

    def in_child() -> None:
        with pytest.raises(topics.Rejected, match="make another one here"):
            producer.put(1)
        os._exit(7)

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(30)
    producer.close()

    assert child.exitcode == 7


# Tasks.


def test_what_many_tasks_put_is_there_in_the_order_of_each(
    run: Callable[..., Any], store: topics.Store
) -> None:
    receipts: dict[int, list[topics.AsyncReceipt]] = {}

    async def main() -> None:
        room = 20 * (RECORD_OVERHEAD + 10)
        async with (
            Loop(store) as loop,
            loop.producer("t", linger_ms=1, batch_records=7, pending_bytes=room) as producer,
            anyio.create_task_group() as tasks,
        ):

            async def put(me: int) -> None:
                receipts[me] = [await producer.put([me, i]) for i in range(50)]

            for me in range(PRODUCERS):
                tasks.start_soon(put, me)
        records = {record.seq: record.data for record in store.topic("t").records()}
        assert len(records) == 50 * PRODUCERS
        for me in range(PRODUCERS):
            assert [records[await receipt.result()] for receipt in receipts[me]] == [
                [me, i] for i in range(50)
            ]

    run(main)


def test_a_put_that_waits_for_room_and_is_cancelled_hands_nothing_over(
    run: Callable[..., Any], store: topics.Store
) -> None:
    async def main() -> None:
        loop = Loop(store)
        loop.gate = anyio.Event()
        async with loop.producer("t", linger_ms=0, pending_bytes=1) as producer:
            await producer.put(1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(producer.put, 2)
                tasks.start_soon(producer.put, 3)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            loop.gate.set()
            await producer.put(4)

    run(main)
    assert data_of(store) == [1, 4]


def test_a_block_that_is_cancelled_leaves_nobody_without_an_answer(
    run: Callable[..., Any], store: topics.Store
) -> None:
    async def main() -> None:
        loop, receipts = Loop(store), []
        loop.gate = anyio.Event()
        with anyio.CancelScope() as scope:
            async with loop.producer("t", linger_ms=0, batch_records=1) as producer:
                receipts += [await producer.put(i) for i in range(3)]
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                await receipts[0].result()
        assert scope.cancelled_caught
        with pytest.raises(topics.Unreachable, match="cancelled; the record may be there"):
            await receipts[0].result()
        with pytest.raises(topics.Rejected, match="not sent"):
            await receipts[2].result()
        with pytest.raises(topics.Rejected, match="the producer is closed"):
            await producer.put(4)

    run(main)


def test_what_a_block_of_a_task_raises_is_raised_as_it_is(
    run: Callable[..., Any], store: topics.Store
) -> None:
    async def main() -> None:
        loop = Loop(store)
        with pytest.raises(ZeroDivisionError):
            async with loop.producer("t", linger_ms=10_000) as producer:
                await producer.put(1)
                raise ZeroDivisionError
        with pytest.raises(topics.Rejected, match="limit of"):
            async with loop.producer("t") as producer:
                await producer.put("x" * 2_000_000)
        with pytest.raises(topics.Rejected, match="limit of"):
            async with loop.producer("t") as producer:
                await producer.put("x" * 2_000_000)
                await producer.flush()

    run(main)
    assert data_of(store) == [1]


def test_a_topic_that_is_none_is_refused_before_anything(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected):
        store.producer("a/b")
    with pytest.raises(topics.Rejected):
        Loop(store).producer("a/b")
