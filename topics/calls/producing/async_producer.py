"""`AsyncProducer`: `Producer` for tasks, on Trio and on asyncio, with a task in the place of the thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import anyio

from topics.calls.call import Steps
from topics.calls.methods import described, with_call_names
from topics.calls.producing.batches import Batches, ProducerBatch, ProducerPut, Rules, deliver, ended
from topics.kernel.errors import TopicsError

P = ParamSpec("P")
R = TypeVar("R")


class AsyncSink(Protocol):
    """What a producer asks of a store."""

    where: str

    async def do(self, steps: Steps[R]) -> R: ...


class AsyncReceipt:
    """As `Receipt`."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch[anyio.Event], index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        return self._batch.done.is_set()

    async def result(self) -> int:
        """As `Receipt.result`, but for the time limit: that is the caller's scope."""
        await self._batch.done.wait()
        return self._batch.outcome(self._index)


def _putting(
    put: Callable[P, ProducerPut],
) -> Callable[Concatenate[AsyncProducer, P], Coroutine[Any, Any, AsyncReceipt]]:
    async def method(producer: AsyncProducer, /, *args: P.args, **options: P.kwargs) -> AsyncReceipt:
        return await producer._take(put(*args, **options))  # noqa: SLF001 -- its own method

    return described(method, put, gives=AsyncReceipt)


@with_call_names
class AsyncProducer:
    """As `Producer`, inside `async with store.producer(topic) as producer`.

    A `put` that is cancelled hands nothing over. Where the block is cancelled, nothing is sent any more: what was put
    and not answered fails, and may be there if it was on its way.
    """

    def __init__(self, store: AsyncSink, rules: Rules) -> None:
        self.topic = rules.topic
        self._store = store
        self._turn = anyio.Lock()  # who comes first is the first to find room
        self._work = anyio.Event()
        self._room = anyio.Event()
        self._batches: Batches[anyio.Event] = Batches(rules, anyio.Event)

    put = _putting(ProducerPut)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """With its task; behind it all is answered. What the block raises is raised as it is, and not in a group."""
        raised: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                try:
                    yield self
                except Exception as error:  # noqa: BLE001 -- raised below
                    raised = error
                self._batches.closed = True
                self._room.set()
                try:
                    await self.flush()
                except TopicsError as failure:
                    if raised is not None:
                        raised.add_note(f"and of what was put before: {failure}")
                    raised = raised or failure
                tasks.cancel_scope.cancel()
        finally:
            # Behind the tasks: whoever is cancelled with them is told that, and not what it does to the records.
            self._batches.abandon(ended(self._store.where, "the producer was cancelled"))
            self._room.set()
        if raised is not None:
            raise raised

    async def flush(self) -> None:
        """As `Producer.flush`."""
        last = self._batches.seal()
        self._work.set()
        if last is not None:
            await last.done.wait()
        failure = self._batches.failure()
        if failure is not None:
            raise failure

    async def _take(self, put: ProducerPut) -> AsyncReceipt:
        record, size = put.record()
        batches = self._batches
        async with self._turn:
            while not (batches.closed or batches.has_room(size)):
                self._room = anyio.Event()
                await self._room.wait()
            batch, index = batches.add(record, size, anyio.current_time())
        if index == 0 or batches.is_due:
            self._work.set()
        return AsyncReceipt(batch, index)

    async def _run(self) -> None:
        batches = self._batches
        while True:
            due_s = batches.due_s(anyio.current_time())
            if due_s == 0:
                batches.end(await self._store.do(deliver(self.topic, batches.take().records)))
                self._room.set()
            else:
                self._work = anyio.Event()
                with anyio.move_on_after(due_s):
                    await self._work.wait()

    def __repr__(self) -> str:
        return f"AsyncProducer({self.topic!r} at {self._store.where!r})"
