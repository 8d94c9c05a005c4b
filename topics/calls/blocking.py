"""`Topic` and `TopicStore`: the calls as methods that return when it is done.

`Store` and `Client` are the two `TopicStore`s: each says how a call is carried out, and has every method from that.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from topics.calls import consumers as of_consumers
from topics.calls import records as of_records
from topics.calls import topics as of_topics
from topics.calls.call import Steps
from topics.calls.definitions import routers as of_routers
from topics.calls.definitions import schedules as of_schedules
from topics.calls.methods import Located, described, with_call_names
from topics.calls.page import Record
from topics.calls.producing.batches import Rules
from topics.calls.producing.producer import Producer
from topics.calls.queues import jobs as of_jobs
from topics.calls.queues.values import Claimant, LeasedRecord, worker_name
from topics.calls.watching.rules import Asked, WatchRules
from topics.calls.watching.watch import Feed, Watch
from topics.calls.workers.leases import WorkerRules
from topics.codec.manifest import Written
from topics.kernel.extras import Needs
from topics.kernel.ids import check_consumer_name, check_topic_name
from topics.log.floors import Gap

if TYPE_CHECKING:
    from topics.calls.workers.desk import Supply
    from topics.calls.workers.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


def of_topic(
    call: Callable[Concatenate[str, P], Steps[R]], **defaults: Any
) -> Callable[Concatenate[Topic, P], R]:
    """A method of `Topic`. `defaults`: other ones than the call has."""

    def method(topic: Topic, /, *args: P.args, **options: P.kwargs) -> R:
        return topic.store.do(call(topic.name, *args, **{**defaults, **options}))

    return described(method, call, is_of_handle=True, defaults=defaults)


def of_queue(call: Callable[Concatenate[Queue, P], Steps[R]]) -> Callable[Concatenate[Queue, P], R]:
    """A method of `Queue`."""

    def method(queue: Queue, /, *args: P.args, **options: P.kwargs) -> R:
        return queue.store.do(call(queue, *args, **options))

    return described(method, call, is_of_handle=True)


def jobs_of(
    call: Callable[Concatenate[Queue, P], Steps[list[LeasedRecord]]],
) -> Callable[Concatenate[Queue, P], list[Job]]:
    """A method of `Queue` that gives jobs."""

    def method(queue: Queue, /, *args: P.args, **options: P.kwargs) -> list[Job]:
        return cast("list[Job]", queue.store.do(call(queue, *args, **options)))  # its `job_type`

    return described(method, call, is_of_handle=True, gives="list[Job]")


def job_of(
    call: Callable[Concatenate[Queue, P], Steps[LeasedRecord | None]],
) -> Callable[Concatenate[Queue, P], Job | None]:
    """A method of `Queue` that gives a job, if there is one."""

    def method(queue: Queue, /, *args: P.args, **options: P.kwargs) -> Job | None:
        return cast("Job | None", queue.store.do(call(queue, *args, **options)))

    return described(method, call, is_of_handle=True, gives="Job | None")


def of_job(call: Callable[Concatenate[LeasedRecord, P], Steps[R]]) -> Callable[Concatenate[Job, P], R]:
    """A method of `Job`."""

    def method(job: Job, /, *args: P.args, **options: P.kwargs) -> R:
        store: TopicStore = job.queue.store
        return store.do(call(job, *args, **options))

    return described(method, call, is_of_handle=True)


def stream_of(
    call: Callable[Concatenate[str, P], of_records.Stream[R]],
) -> Callable[Concatenate[Topic, P], Iterator[R]]:
    """A method of `Topic` that reads a page whenever the next one is needed."""

    def method(topic: Topic, /, *args: P.args, **options: P.kwargs) -> Iterator[R]:
        stream = call(topic.name, *args, **options)
        stream.page_wait_ms()  # what is wrong is refused here and not by the first `next`
        return _items(topic.store, stream)

    return described(method, call, is_of_handle=True, stream=Iterator)


def of_consumer(
    call: Callable[Concatenate[Consumer, P], Steps[R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """A method of `Consumer`."""

    def method(consumer: Consumer, /, *args: P.args, **options: P.kwargs) -> R:
        return consumer.store.do(call(consumer, *args, **options))

    return described(method, call, is_of_handle=True)


def stream_of_consumer(
    call: Callable[Concatenate[Consumer, P], of_records.Pageable[R]], gives: object
) -> Callable[Concatenate[Consumer, P], Iterator[R]]:
    """A method of `Consumer` that reads a page whenever the next one is needed."""

    def method(consumer: Consumer, /, *args: P.args, **options: P.kwargs) -> Iterator[R]:
        stream = call(consumer, *args, **options)
        stream.page_wait_ms()  # what is wrong is refused here and not by the first item
        return _items(consumer.store, stream)

    return described(method, call, is_of_handle=True, stream=Iterator, gives=gives)


def of_store(call: Callable[P, Steps[R]]) -> Callable[Concatenate[TopicStore, P], R]:
    """A method of every store."""

    def method(store: TopicStore, /, *args: P.args, **options: P.kwargs) -> R:
        return store.do(call(*args, **options))

    return described(method, call)


def topic_of(call: Callable[P, Steps[str]]) -> Callable[Concatenate[TopicStore, P], Topic]:
    """A method of every store that gives the topic whose name comes of the call."""

    def method(store: TopicStore, /, *args: P.args, **options: P.kwargs) -> Topic:
        return store.topic(store.do(call(*args, **options)))

    return described(method, call, gives="Topic")


def producer_of(rules: Callable[P, Rules]) -> Callable[Concatenate[TopicStore, P], Producer]:
    """A method of every store that gives a producer."""

    def method(store: TopicStore, /, *args: P.args, **options: P.kwargs) -> Producer:
        return Producer(store, rules(*args, **options))

    return described(method, rules, gives=Producer)


def worker_of(rules: Callable[P, WorkerRules]) -> Callable[Concatenate[TopicStore, P], Worker[Job]]:
    """A method of every store that gives a worker."""

    def method(store: TopicStore, /, *args: P.args, **options: P.kwargs) -> Worker[Job]:
        with Needs("workers", "worker"):
            from topics.calls.workers.worker import Worker  # with all that tasks need

        asked = rules(*args, **options)
        queue = store.queue(asked.queue, node=asked.node)
        return Worker(queue, asked, store, store.supply(queue, until_empty=asked.until_empty))

    return described(method, rules, gives="Worker[Job]")


def watch_of(rules: Callable[P, WatchRules]) -> Callable[Concatenate[TopicStore, P], Watch]:
    """A method of every store that gives a watch."""

    def method(store: TopicStore, /, *args: P.args, **options: P.kwargs) -> Watch:
        return Watch(store.feed(rules(*args, **options).asked(store.limits)), store.do)

    return described(method, rules, gives="Watch")


@with_call_names
class Topic:
    """A handle of one topic, by name. The topic need not exist: a write creates it, a read says that it is not there.

    The same for a store in this process and for one at a server, so code moves by changing one line.
    """

    __slots__ = ("name", "store")

    def __init__(self, store: TopicStore, name: str) -> None:
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

    def consumer(self, name: str) -> Consumer:
        """A handle of a durable consumer: a position in this topic that the store keeps, by name. `seek` makes it."""
        return Consumer(self.store, self.name, check_consumer_name(name))

    def __repr__(self) -> str:
        return f"Topic({self.name!r} at {self.store.where!r})"


@with_call_names
class Consumer:
    """A handle of a durable consumer, by name: a position in one topic that the store keeps, safe as the topic's
    records are. It goes forward by `commit`, and anywhere by `seek`, which makes it.
    """

    __slots__ = ("name", "store", "topic_name")

    def __init__(self, store: TopicStore, topic_name: str, name: str) -> None:
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
        return f"Consumer({self.name!r} of {self.topic_name!r} at {self.store.where!r})"


@with_call_names
class Job(LeasedRecord):
    """A job that is leased to `queue.node`: do it, and say what became of it before `deadline`."""

    __slots__ = ()

    ack = of_job(of_jobs.ack_one)
    nack = of_job(of_jobs.nack_one)
    extend = of_job(of_jobs.extend_one)


@with_call_names
class Queue(Topic):
    """A handle of one queue, by name: a topic that hands out its records as jobs (`store.create(name, type="queue")`).

    `node`: who works here; jobs are leased to it. Iterating gives one job after another, each as soon as there is one,
    for ever.
    """

    __slots__ = ("node",)
    job_type: ClassVar[type[LeasedRecord]] = Job

    def __init__(self, store: TopicStore, name: str, node: str) -> None:
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
    def dead_letters(self) -> Topic:
        """The topic that takes what this queue gives up, by its config as it is now.

        Raises:
            Rejected: topic_not_found, not_a_queue; invalid_request if it has none.
        """
        return self.store.topic(self.store.do(of_jobs.dead_letter_topic(self.name)))

    def __iter__(self) -> Iterator[Job]:
        while True:
            yield from self.get_many(1)

    def __repr__(self) -> str:
        return f"Queue({self.name!r} at {self.store.where!r}, node={self.node!r})"


@with_call_names
class TopicStore(Located, ABC):
    """Topics, wherever they are. A context manager; or call `close`."""

    @abstractmethod
    def do(self, steps: Steps[R]) -> R:
        """Carry out a call."""

    @abstractmethod
    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        with_cold: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> Written:
        """Write a backup to the directory `dest` here, which must not be there: the store as it is now, while it is
        used.

        `tell` is told the bytes that are done, and how many there are. In an embedded store sealed segments are linked,
        not copied, where the file system can. What is in the cold tier stays there, and is copied only `with_cold`.

        Raises:
            Rejected: something is at `dest`, it lies in the store, or the store is read-only.
            CannotOpen: it cannot be written there; nothing is left of it.
            Corrupt: a file of the store is damaged, or what came is no whole backup.
            Unreachable: the way to the server was broken off.
        """

    @abstractmethod
    def close(self) -> None:
        """End it: a store in this process syncs, writes exact heads and closing marks, and gives the directory free; a
        client closes its connections. Twice is fine.
        """

    def topic(self, name: str) -> Topic:
        """A handle. The topic need not exist: a write creates it, a read says that it is not there."""
        return Topic(self, check_topic_name(name))

    def queue(self, name: str, *, node: str | None = None) -> Queue:
        """A handle of a queue. `node`: who claims its jobs, at most 128 bytes; without it a name of its own."""
        return Queue(self, check_topic_name(name), worker_name(node, self.limits))

    def supply(self, queue: Claimant, *, until_empty: bool) -> Supply[Any]:
        """Where a worker has its jobs from: of a store in this process by claims, of a server by a WebSocket."""
        from topics.calls.workers.claims import ClaimingSupply, InThreads

        return ClaimingSupply(InThreads(self), queue, until_empty=until_empty)

    @abstractmethod
    def feed(self, asked: Asked) -> Feed:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()


def _items(store: TopicStore, stream: of_records.Pageable[R]) -> Iterator[R]:
    reads = stream.reads()
    read = next(reads)
    while True:
        page = store.do(read)
        yield from stream.items(page)
        try:
            read = reads.send(page)
        except StopIteration:
            return
