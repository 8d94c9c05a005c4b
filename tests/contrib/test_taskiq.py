"""Taskiq's tasks as jobs of a real server, done by Taskiq's own receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import AckableMessage, BrokerMessage
from taskiq.acks import AcknowledgeType
from taskiq.receiver import Receiver

import topics
from topics.contrib.taskiq import TopicsBroker
from topics.pytest_plugin.clock import Clock
from topics.pytest_plugin.server import Server

HOUR_MS = 3_600_000


def ran(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())


@asynccontextmanager
async def started(url: str, **options: Any) -> AsyncIterator[TopicsBroker]:
    broker = TopicsBroker(url, **options)
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def received(broker: TopicsBroker, **options: Any) -> AsyncIterator[None]:
    """While Taskiq's receiver does the tasks; behind it they have ended."""
    finish = asyncio.Event()
    receiver = Receiver(broker, run_startup=False, max_async_tasks=10, **options)
    listening = asyncio.create_task(receiver.listen(finish))
    try:
        yield
    finally:
        finish.set()
        await listening


def test_what_is_kicked_is_done_and_acknowledged(topics_client: topics.Client, topics_server: Server) -> None:
    done: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def main() -> None:
        async with started(topics_server.url) as broker:

            @broker.task(task_name="greet")
            async def greet(number: int, *, word: str) -> None:
                await done.put((number, word))

            for number in range(3):
                await greet.kiq(number, word="hallo")
            async with received(broker):
                assert {await done.get() for _ in range(3)} == {(number, "hallo") for number in range(3)}

    ran(main)
    state = topics_client.topic("taskiq").state().queue
    assert state is not None
    assert (state.ready, state.in_flight, state.delayed) == (0, 0, 0)


def test_a_task_is_acknowledged_when_it_has_ended_and_not_before(
    topics_client: topics.Client, topics_server: Server
) -> None:
    async def main() -> None:
        began, goes_on = asyncio.Event(), asyncio.Event()
        async with started(topics_server.url) as broker:

            @broker.task(task_name="long")
            async def long() -> None:
                began.set()
                await goes_on.wait()

            await long.kiq()
            async with received(broker):
                await began.wait()
                assert in_flight(topics_client) == 1
                goes_on.set()
        assert in_flight(topics_client) == 0

    ran(main)
    assert topics_client.topic("taskiq").state().count == 0


def in_flight(client: topics.Client) -> int:
    state = client.topic("taskiq").state().queue
    assert state is not None
    return state.in_flight


def test_an_acknowledgement_counts_when_it_returns(
    topics_client: topics.Client, topics_server: Server
) -> None:
    """So `when_received` is before the task begins."""

    async def main() -> None:
        async with started(topics_server.url) as broker:
            await broker.kick(BrokerMessage(task_id="1", task_name="t", message=b"{}", labels={}))
            listening = broker.listen()
            found = await anext(listening)
            assert isinstance(found, AckableMessage)
            await found.ack()
            assert (in_flight(topics_client), topics_client.topic("taskiq").state().count) == (0, 0)
            await listening.aclose()

    ran(main)


def test_what_is_never_acknowledged_is_given_back_at_the_end(
    topics_client: topics.Client, topics_server: Server
) -> None:
    async def main() -> None:
        began = asyncio.Event()
        async with started(topics_server.url) as broker:

            @broker.task(task_name="forgets")
            async def forgets() -> None:
                began.set()

            await forgets.kiq()
            async with received(broker, ack_type=AcknowledgeType.MANUAL):
                await began.wait()

    ran(main)
    (job,) = topics_client.queue("taskiq").claim()
    assert job.tag == "forgets"


def test_a_running_task_is_waited_for_and_acknowledged_after_the_receiver_was_told_to_end(
    topics_client: topics.Client, topics_server: Server
) -> None:
    async def main() -> None:
        began, goes_on = asyncio.Event(), asyncio.Event()
        async with started(topics_server.url) as broker:

            @broker.task(task_name="long")
            async def long() -> None:
                began.set()
                await goes_on.wait()

            await long.kiq()
            finish = asyncio.Event()
            receiver = Receiver(broker, run_startup=False, max_async_tasks=10)
            listening = asyncio.create_task(receiver.listen(finish))
            await began.wait()
            finish.set()
            await long.kiq()  # is not begun any more
            goes_on.set()
            await listening

    ran(main)
    (left,) = topics_client.queue("taskiq").claim(2)
    assert left.seq == 2


def test_a_delay_and_a_priority_are_those_of_the_job(
    topics_client: topics.Client, topics_server: Server, topics_clock: Clock
) -> None:
    async def main() -> None:
        async with started(topics_server.url) as broker:

            @broker.task(task_name="t")
            async def nothing() -> None: ...

            await nothing.kicker().with_labels(delay=3600).kiq()
            await nothing.kicker().with_labels(priority=1).kiq()
            await nothing.kicker().with_labels(priority=9).kiq()

    ran(main)
    jobs = topics_client.queue("taskiq")
    assert [job.priority for job in jobs.claim(5)] == [9, 1]
    topics_clock.advance(HOUR_MS)
    assert len(jobs.claim(5)) >= 1


@pytest.mark.parametrize(
    "message", [b'{"a": 1}', b"\x00\xff not JSON", b"[1]", b'"text"', b"", b'{"a": NaN}']
)
def test_a_message_of_any_formatter_comes_as_it_went(
    topics_client: topics.Client, topics_server: Server, message: bytes
) -> None:
    async def main() -> None:
        async with started(topics_server.url) as broker:
            await broker.kick(BrokerMessage(task_id="1", task_name="t", message=message, labels={}))
            listening = broker.listen()
            found = await anext(listening)
            assert isinstance(found, AckableMessage)
            assert found.data == message
            await listening.aclose()

    ran(main)


def test_the_queue_is_made_as_asked(topics_client: topics.Client, topics_server: Server) -> None:
    async def main() -> None:
        async with started(topics_server.url, queue="mails", max_deliveries=3, dead_letter="mails-failed"):
            pass

    ran(main)
    assert topics_client.topic("mails").state().config.max_deliveries == 3


def test_why_it_cannot_listen_is_raised(topics_client: topics.Client, topics_server: Server) -> None:
    async def main() -> None:
        async with started(topics_server.url, queue="mails") as broker:
            topics_client.delete("mails")
            with pytest.raises(topics.Rejected, match="mails"):
                await anext(broker.listen())

    ran(main)
