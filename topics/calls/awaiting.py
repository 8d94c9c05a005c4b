"""`AsyncTopic` and `AsyncTopicStore`: the calls as methods to be awaited, on Trio and on asyncio.

The tables are those of `blocking`, line by line, tested. Nothing here knows a loop: what is waited for is a store's.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast

from topics.calls import consumers as of_consumers
from topics.calls import records as of_records
from topics.calls import topics as of_topics
from topics.calls.call import Call, Steps
from topics.calls.definitions import routers as of_routers
from topics.calls.definitions import schedules as of_schedules
from topics.calls.methods import Located, described, with_call_names
from topics.calls.page import Page, Record
from topics.calls.producing.async_producer import AsyncProducer
from topics.calls.producing.batches import Rules
from topics.calls.queues import jobs as of_jobs
from topics.calls.queues.values import Claimant, LeasedRecord, worker_name
from topics.calls.watching.async_watch import AsyncFeed, AsyncWatch
from topics.calls.watching.rules import Asked, WatchRules
from topics.calls.workers.async_worker import AsyncWorker
from topics.calls.workers.claims import ClaimingSupply
from topics.calls.workers.desk import Supply
from topics.calls.workers.leases import WorkerRules
from topics.codec.manifest import Written
from topics.kernel.ids import check_consumer_name, check_topic_name
from topics.log.floors import Gap

P = ParamSpec("P")
R = TypeVar("R")
To: TypeAlias = Coroutine[Any, Any, R]  # of `async def`


def of_topic(
    call: Callable[Concatenate[str, P], Steps[R]], **defaults: Any
) -> Callable[Concatenate[AsyncTopic, P], To[R]]:
    """A method of `AsyncTopic`. `defaults`: other ones than the call has."""

    async def method(topic: AsyncTopic, /, *args: P.args, **options: P.kwargs) -> R:
        return await topic.store.do(call(topic.name, *args, **{**defaults, **options}))

    return described(method, call, is_of_handle=True, defaults=defaults)


def of_queue(
    call: Callable[Concatenate[AsyncQueue, P], Steps[R]],
) -> Callable[Concatenate[AsyncQueue, P], To[R]]:
    """A method of `AsyncQueue`."""

    async def method(queue: AsyncQueue, /, *args: P.args, **options: P.kwargs) -> R:
        return await queue.store.do(call(queue, *args, **options))

    return described(method, call, is_of_handle=True)


def jobs_of(
    call: Callable[Concatenate[AsyncQueue, P], Steps[list[LeasedRecord]]],
) -> Callable[Concatenate[AsyncQueue, P], To[list[AsyncJob]]]:
    """A method of `AsyncQueue` that gives jobs."""

    async def method(queue: AsyncQueue, /, *args: P.args, **options: P.kwargs) -> list[AsyncJob]:
        return cast("list[AsyncJob]", await queue.store.do(call(queue, *args, **options)))  # its `job_type`

    return described(method, call, is_of_handle=True, gives="list[AsyncJob]")


def job_of(
    call: Callable[Concatenate[AsyncQueue, P], Steps[LeasedRecord | None]],
) -> Callable[Concatenate[AsyncQueue, P], To[AsyncJob | None]]:
    """A method of `AsyncQueue` that gives a job, if there is one."""

    async def method(queue: AsyncQueue, /, *args: P.args, **options: P.kwargs) -> AsyncJob | None:
        return cast("AsyncJob | None", await queue.store.do(call(queue, *args, **options)))

    return described(method, call, is_of_handle=True, gives="AsyncJob | None")


def of_job(
    call: Callable[Concatenate[LeasedRecord, P], Steps[R]],
) -> Callable[Concatenate[AsyncJob, P], To[R]]:
    """A method of `AsyncJob`."""

    async def method(job: AsyncJob, /, *args: P.args, **options: P.kwargs) -> R:
        store: AsyncTopicStore = job.queue.store
        return await store.do(call(job, *args, **options))

    return described(method, call, is_of_handle=True)


def stream_of(
    call: Callable[Concatenate[str, P], of_records.Stream[R]],
) -> Callable[Concatenate[AsyncTopic, P], AsyncIterator[R]]:
    """A method of `AsyncTopic` that reads a page whenever the next one is needed."""

    def method(topic: AsyncTopic, /, *args: P.args, **options: P.kwargs) -> AsyncIterator[R]:
        stream = call(topic.name, *args, **options)
        stream.page_wait_ms()  # what is wrong is refused here and not by the first item
        return _Items(topic.store, stream)

    return described(method, call, is_of_handle=True, stream=AsyncIterator)


def of_consumer(
    call: Callable[Concatenate[AsyncConsumer, P], Steps[R]],
) -> Callable[Concatenate[AsyncConsumer, P], To[R]]:
    """A method of `AsyncConsumer`."""

    async def method(consumer: AsyncConsumer, /, *args: P.args, **options: P.kwargs) -> R:
        return await consumer.store.do(call(consumer, *args, **options))

    return described(method, call, is_of_handle=True)


def stream_of_consumer(
    call: Callable[Concatenate[AsyncConsumer, P], of_records.Pageable[R]], gives: object
) -> Callable[Concatenate[AsyncConsumer, P], AsyncIterator[R]]:
    """A method of `AsyncConsumer` that reads a page whenever the next one is needed."""

    def method(consumer: AsyncConsumer, /, *args: P.args, **options: P.kwargs) -> AsyncIterator[R]:
        stream = call(consumer, *args, **options)
        stream.page_wait_ms()  # what is wrong is refused here and not by the first item
        return _Items(consumer.store, stream)

    return described(method, call, is_of_handle=True, stream=AsyncIterator, gives=gives)


def of_store(call: Callable[P, Steps[R]]) -> Callable[Concatenate[AsyncTopicStore, P], To[R]]:
    """A method of every store."""

    async def method(store: AsyncTopicStore, /, *args: P.args, **options: P.kwargs) -> R:
        return await store.do(call(*args, **options))

    return described(method, call)


def topic_of(call: Callable[P, Steps[str]]) -> Callable[Concatenate[AsyncTopicStore, P], To[AsyncTopic]]:
    """A method of every store that gives the topic whose name comes of the call."""

    async def method(store: AsyncTopicStore, /, *args: P.args, **options: P.kwargs) -> AsyncTopic:
        return store.topic(await store.do(call(*args, **options)))

    return described(method, call, gives="AsyncTopic")


def producer_of(
    rules: Callable[P, Rules],
) -> Callable[Concatenate[AsyncTopicStore, P], AbstractAsyncContextManager[AsyncProducer]]:
    """A method of every store that gives a producer."""

    def method(
        store: AsyncTopicStore, /, *args: P.args, **options: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncProducer]:
        return AsyncProducer(store, rules(*args, **options)).running()

    return described(method, rules, gives=AbstractAsyncContextManager[AsyncProducer])


def worker_of(
    rules: Callable[P, WorkerRules],
) -> Callable[Concatenate[AsyncTopicStore, P], AbstractAsyncContextManager[AsyncWorker[AsyncJob]]]:
    """A method of every store that gives a worker."""

    def method(
        store: AsyncTopicStore, /, *args: P.args, **options: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncWorker[AsyncJob]]:
        asked = rules(*args, **options)
        queue = store.queue(asked.queue, node=asked.node)
        return AsyncWorker(queue, asked, store, store.supply(queue, until_empty=asked.until_empty)).running()

    return described(method, rules, gives="AbstractAsyncContextManager[AsyncWorker[AsyncJob]]")


def watch_of(rules: Callable[P, WatchRules]) -> Callable[Concatenate[AsyncTopicStore, P], AsyncWatch]:
    """A method of every store that gives a watch."""

    def method(store: AsyncTopicStore, /, *args: P.args, **options: P.kwargs) -> AsyncWatch:
        return AsyncWatch(store.feed(rules(*args, **options).asked(store.limits)), store.do)

    return described(method, rules, gives="AsyncWatch")


@with_call_names
class AsyncTopic:
    """A handle of one topic, by name, as `Topic` is: its methods are awaited, and its streams are async iterators.

    An item that is waited for may be cancelled, as by a time limit; the next one goes on where the last one was.
    """

    __slots__ = ("name", "store")

    def __init__(self, store: AsyncTopicStore, name: str) -> None:
        self.store = store
        self.name = name

    put = of_topic(of_records.PutCall)
    put_many = of_topic(of_records.PutManyCall)
    read = of_topic(of_records.ReadCall)
    pages = stream_of(of_records.Pages)
    records = stream_of(of_records.Records)
    follow = stream_of(of_records.Follow)
    delete = of_topic(of_records.DeleteRecordsCall)
    configure = of_topic(of_topics.configure)
    state = of_topic(of_topics.StateCall)
    consumers = of_topic(of_consumers.ListConsumersCall)

    def consumer(self, name: str) -> AsyncConsumer:
        """A handle of a durable consumer: a position in this topic that the store keeps, by name. `seek` makes it."""
        return AsyncConsumer(self.store, self.name, check_consumer_name(name))

    def __repr__(self) -> str:
        return f"AsyncTopic({self.name!r} at {self.store.where!r})"


@with_call_names
class AsyncConsumer:
    """A handle of a durable consumer, as `Consumer` is: its methods are awaited."""

    __slots__ = ("name", "store", "topic_name")

    def __init__(self, store: AsyncTopicStore, topic_name: str, name: str) -> None:
        self.store = store
        self.topic_name = topic_name
        self.name = name

    seek = of_consumer(of_consumers.SeekCall)
    position = of_consumer(of_consumers.PositionCall)
    read = of_consumer(of_consumers.ReadConsumerCall)
    records = stream_of_consumer(of_consumers.ConsumerRecords, Record | Gap)
    commit = of_consumer(of_consumers.CommitCall)
    delete = of_consumer(of_consumers.DeleteConsumerCall)

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.name!r} of {self.topic_name!r} at {self.store.where!r})"


@with_call_names
class AsyncJob(LeasedRecord):
    """A job that is leased to `queue.node`, as `Job` is: its methods are awaited."""

    __slots__ = ()

    ack = of_job(of_jobs.ack_one)
    nack = of_job(of_jobs.nack_one)
    extend = of_job(of_jobs.extend_one)


@with_call_names
class AsyncQueue(AsyncTopic):
    """A handle of one queue, by name, as `Queue` is: its methods are awaited, and it is async iterable."""

    __slots__ = ("node",)
    job_type: ClassVar[type[LeasedRecord]] = AsyncJob

    def __init__(self, store: AsyncTopicStore, name: str, node: str) -> None:
        super().__init__(store, name)
        self.node = node

    put = of_topic(of_records.PutCall, create=False)  # what a write creates is a log
    put_many = of_topic(of_records.PutManyCall, create=False)
    claim = jobs_of(of_jobs.ClaimCall)
    get = job_of(of_jobs.get)
    get_many = jobs_of(of_jobs.get_many)
    ack = of_queue(of_jobs.AckCall)
    nack = of_queue(of_jobs.NackCall)
    extend = of_queue(of_jobs.ExtendCall)
    peek = of_topic(of_jobs.PeekCall)
    pause = of_topic(of_jobs.pause)
    resume = of_topic(of_jobs.resume)
    purge = of_topic(of_jobs.PurgeCall)
    redrive = of_topic(of_jobs.redrive)
    retry_info = of_topic(of_jobs.retry_info)

    @property
    async def dead_letters(self) -> AsyncTopic:
        """As `Queue.dead_letters`: `await queue.dead_letters` is the topic."""
        return self.store.topic(await self.store.do(of_jobs.dead_letter_topic(self.name)))

    def __aiter__(self) -> AsyncIterator[AsyncJob]:
        return _Jobs(self)

    def __repr__(self) -> str:
        return f"AsyncQueue({self.name!r} at {self.store.where!r}, node={self.node!r})"


@with_call_names
class AsyncTopicStore(Located, ABC):
    """Topics, wherever they are, for tasks of one run of Trio or asyncio. An async context manager; or call `aclose`.

    A call that is cancelled may have been carried out, as one whose answer was lost.
    """

    @abstractmethod
    async def do(self, steps: Steps[R]) -> R:
        """Carry out a call."""

    @abstractmethod
    async def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        """As `TopicStore.backup`. Cancelled, nothing is left of it."""

    @abstractmethod
    async def aclose(self) -> None:
        """As `TopicStore.close`."""

    def topic(self, name: str) -> AsyncTopic:
        """A handle. The topic need not exist: a write creates it, a read says that it is not there."""
        return AsyncTopic(self, check_topic_name(name))

    def queue(self, name: str, *, node: str | None = None) -> AsyncQueue:
        """A handle of a queue. `node`: who claims its jobs, at most 128 bytes; without it a name of its own."""
        return AsyncQueue(self, check_topic_name(name), worker_name(node, self.limits))

    def supply(self, queue: Claimant, *, until_empty: bool) -> Supply[Any]:
        """Where a worker has its jobs from: of a store in this process by claims, of a server by a WebSocket."""
        return ClaimingSupply(self, queue, until_empty=until_empty)

    @abstractmethod
    def feed(self, asked: Asked) -> AsyncFeed:
        """Where a watch has its values from: of a store in this process by reads, of a server by a stream of events."""

    create = topic_of(of_topics.create)
    config = of_store(of_topics.config)
    delete = of_store(of_topics.DeleteTopicCall)
    list = of_store(of_topics.ListTopicsCall)
    sync = of_store(of_topics.SyncCall)
    checkpoint = of_store(of_topics.CheckpointCall)
    why = of_store(of_topics.WhyCall)
    why_range = of_store(of_topics.WhyRangeCall)
    put_schedule = of_store(of_schedules.PutScheduleCall)
    schedule = of_store(of_schedules.GetScheduleCall)
    schedules = of_store(of_schedules.ListSchedulesCall)
    delete_schedule = of_store(of_schedules.DeleteScheduleCall)
    put_router = of_store(of_routers.PutRouterCall)
    router = of_store(of_routers.GetRouterCall)
    routers = of_store(of_routers.ListRoutersCall)
    delete_router = of_store(of_routers.DeleteRouterCall)
    producer = producer_of(Rules)
    worker = worker_of(WorkerRules)
    watch = watch_of(WatchRules)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Jobs(AsyncIterator["AsyncJob"]):
    """One job after another, each as soon as there is one."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue

    async def __anext__(self) -> AsyncJob:
        (job,) = await self._queue.get_many(1)
        return job


class _Items(AsyncIterator[R], Generic[R]):
    """An async generator would end when an item that it waits for is cancelled, and warn when a loop breaks off."""

    def __init__(self, store: AsyncTopicStore, stream: of_records.Pageable[R]) -> None:
        self._store, self._stream, self._reads = store, stream, stream.reads()
        self._read: Call[Page] | None = next(self._reads)
        self._here: Iterator[R] = iter(())
        self._is_reading = False

    async def __anext__(self) -> R:
        while True:
            for item in self._here:
                return item
            if self._read is None:
                raise StopAsyncIteration
            page = await self._page(self._read)
            self._here = iter(self._stream.items(page))
            try:
                self._read = self._reads.send(page)
            except StopIteration:
                self._read = None

    async def _page(self, read: Call[Page]) -> Page:
        if self._is_reading:
            raise RuntimeError("another task waits for the next item: give each task its own iterator")
        self._is_reading = True
        try:
            return await self._store.do(read)
        finally:
            self._is_reading = False
