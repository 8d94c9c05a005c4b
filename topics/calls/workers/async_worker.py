"""`AsyncWorker`: does the jobs of a queue, by tasks on Trio and on asyncio."""

from __future__ import annotations

import logging
import random
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus

from topics.calls.call import Steps
from topics.calls.job_values import LeasedRecord
from topics.calls.jobs import Ack, Claim, Extend, Nack
from topics.calls.topics import State
from topics.calls.workers.leases import HELD, LEFT, STOPPED, Leases, WorkerRules, passes, pause_s, reason_of
from topics.kernel.errors import TopicsError
from topics.kernel.limits import Limits

J = TypeVar("J", bound=LeasedRecord)
R = TypeVar("R")

_chance: Final = random.random
_log: Final = logging.getLogger("topics.worker")
_GIVE_BACK_S: Final = 5  # for what is told at the end, also where the block was cancelled


class AsyncCarrier(Protocol):
    """What a worker asks of a store."""

    is_remote: bool
    limits: Limits

    async def do(self, steps: Steps[R]) -> R: ...


class AsyncJobs(Protocol):
    """The queue whose jobs it does."""

    job_type: ClassVar[type[LeasedRecord]]

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def store(self) -> AsyncCarrier: ...


class AsyncWorker(Generic[J]):
    """As `Worker`, inside `async with store.worker(queue) as worker`. A handler is cancelled when its lease is lost.

    Where the block is cancelled, so are the handlers, and their jobs are given back. A claim that is cancelled after
    its server has answered leaves its jobs leased until their leases end.
    """

    def __init__(self, queue: AsyncJobs, rules: WorkerRules) -> None:
        self._queue = queue
        self._store = queue.store
        self._rules = rules
        self._ready: deque[J] = deque()  # at most one for each who waits
        self._left: list[J] = []  # by loops that ended before their job was done
        self._turn = anyio.Lock()  # of who claims, for all who wait
        self._waiting = 0
        self._failures = 0
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._news = anyio.Event()
        self._is_extending = False
        self._is_stopping = False
        self._is_over = False

    def stop(self) -> None:
        """Take no more jobs: `run` returns, and loops end, when those in hand are done."""
        self._is_stopping = True

    async def run(self, handler: Callable[[J], Awaitable[object]]) -> None:
        """As `Worker.run`. A handler whose lease is lost is cancelled."""
        failures: list[Exception] = []

        async def work() -> None:
            try:
                while (job := await self._next()) is not None:
                    await self._handle(job, handler)
            except Exception as error:  # noqa: BLE001 -- raised below, behind what the others have in hand
                failures.append(error)
                self.stop()

        async with anyio.create_task_group() as tasks:
            for _ in range(self._rules.concurrency):
                tasks.start_soon(work)
        if failures:
            raise failures[0]

    def __aiter__(self) -> AsyncIterator[J]:
        return _Loop(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """With its tasks; behind it nothing is held. What the block raises is raised as it is, and not in a group."""
        lease_ms = self._rules.lease_ms
        if lease_ms is None:
            lease_ms = (await self._store.do(State(self._queue.name, touch=False))).config.lease_ms
        self._leases: Leases[J] = Leases(lease_ms)
        raised: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep, tasks)
                if self._rules.handle_signals:
                    await tasks.start(self._stop_at_sigterm)
                try:
                    yield self
                except Exception as error:  # noqa: BLE001 -- raised below
                    raised = error
                self._is_over = True
                tasks.cancel_scope.cancel()
        finally:
            self.stop()
            with anyio.move_on_after(_GIVE_BACK_S, shield=True):
                if raised is not None:  # by the body of a loop: the first of these jobs failed of it
                    await self._give_back(self._left, reason_of(raised))
                await self._give_back(self._leases.held(), STOPPED, delay_ms=0)
        if raised is not None:
            raise raised

    async def _next(self) -> J | None:
        """The next job, as soon as there is one; None when it is to stop."""
        self._waiting += 1
        try:
            async with self._turn:
                while True:
                    while self._ready:
                        job = self._ready.popleft()
                        if not job.is_lost:
                            return job
                        self._leases.drop(job)
                    if self._is_stopping:
                        return None
                    await self._claim()
        finally:
            self._waiting -= 1

    async def _claim(self) -> None:
        """One claim, for all who wait."""
        leases, asked_s = self._leases, time.monotonic()
        most = min(self._waiting, self._store.limits.claim_limit)
        try:
            found = await self._store.do(
                Claim(self._queue, most, lease_ms=leases.lease_ms, wait_ms=leases.wait_ms)
            )
        except TopicsError as error:
            self._failures += 1
            await self._pause(error, self._failures)
            return
        self._failures = 0
        fresh, again = leases.take(cast("list[J]", found), asked_s)  # the queue's `job_type`
        self._ready.extend(fresh)
        self._news.set()
        await self._give_back(again, HELD)

    async def _handle(self, job: J, handler: Callable[[J], Awaitable[object]]) -> None:
        failure: Exception | None = None
        with anyio.CancelScope() as scope:
            self._scopes[job.seq] = scope
            try:
                await handler(job)
            except Exception as error:  # noqa: BLE001 -- the job's failure, which the queue is told
                failure = error
            finally:
                del self._scopes[job.seq]
        if scope.cancelled_caught:
            _log.warning(
                "queue %s: the lease of job %d was lost; its handler was cancelled", self._queue.name, job.seq
            )
            self._leases.drop(job)
            return
        if failure is not None:
            _log.warning("queue %s: job %d failed", self._queue.name, job.seq, exc_info=failure)
        await self._settle(job, failure)

    async def _settle(self, job: J, failure: Exception | None = None) -> None:
        """Tell that it is done, or why not; again, if no answer comes, until its lease has ended: twice is safe."""
        tell = (
            Ack(self._queue, [job])
            if failure is None
            else Nack(self._queue, [job], reason=reason_of(failure))
        )
        failures = 0
        while not job.is_settled:
            try:
                await self._store.do(tell)
            except TopicsError as error:
                if job.is_lost:
                    break
                failures += 1
                await self._pause(error, failures)
            else:
                job.is_settled = True
        self._leases.drop(job)

    async def _keep(self, tasks: TaskGroup) -> None:
        """Extend leases while their jobs are being done, and cancel the handlers of those that are lost."""
        while True:
            self._news = anyio.Event()
            now_s = time.monotonic()
            for job in self._leases.lost(now_s):
                if job.seq in self._scopes:
                    self._scopes[job.seq].cancel()
            if (due := self._leases.due(now_s)) and not self._is_extending:
                self._is_extending = True
                tasks.start_soon(self._extend, due[: self._store.limits.claim_limit])
            if self._left and not self._is_over:  # at the end they are told why it ended
                left, self._left = self._left, []
                tasks.start_soon(self._give_back, left, LEFT)
            next_s = self._leases.next_s(now_s)
            with anyio.move_on_after(None if next_s is None else max(next_s - time.monotonic(), 0)):
                await self._news.wait()

    async def _extend(self, jobs: Sequence[J]) -> None:
        asked_s = time.monotonic()
        try:
            found = await self._store.do(Extend(self._queue, jobs, self._leases.lease_ms))
            self._leases.extended(jobs, set(found.seqs), asked_s)
        except TopicsError as error:
            if passes(error, is_remote=self._store.is_remote):
                await anyio.sleep(pause_s(1, _chance()))
            else:  # who claims is told as well, and raises it
                self._leases.extended(jobs, (), asked_s)
        self._is_extending = False
        self._news.set()

    async def _give_back(self, jobs: Iterable[J], reason: str, *, delay_ms: int | None = None) -> None:
        """Others may have them. Where nobody can be told, their leases end in their own time."""
        given = [job for job in jobs if not (job.is_settled or job.is_lost)]
        if given:
            with suppress(TopicsError):
                await self._store.do(Nack(self._queue, given, reason=reason, delay_ms=delay_ms))
        for job in given:
            job.until_s = float("-inf")
        for job in jobs:
            self._leases.drop(job)

    async def _pause(self, error: TopicsError, failures: int) -> None:
        if not passes(error, is_remote=self._store.is_remote):
            raise error
        await anyio.sleep(pause_s(failures, _chance()))

    async def _stop_at_sigterm(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                self.stop()
                return


class _Loop(AsyncIterator[J]):
    """One job after another: each is done when the next one is asked for."""

    def __init__(self, worker: AsyncWorker[J]) -> None:
        self._worker = worker
        self._job: J | None = None

    async def __anext__(self) -> J:
        if self._job is not None:
            await self._worker._settle(self._job)  # noqa: SLF001 -- its own
            self._job = None
        self._job = await self._worker._next()  # noqa: SLF001 -- its own
        if self._job is None:
            raise StopAsyncIteration
        return self._job

    def __del__(self) -> None:
        if self._job is not None:  # by `break`, or by what its body raised
            self._worker._left.append(self._job)  # noqa: SLF001 -- its own
