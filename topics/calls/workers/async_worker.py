"""`AsyncWorker`: does the jobs of a queue, by tasks on Trio and on asyncio."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Final, Generic, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from topics.calls.patience import pause_s
from topics.calls.queues.jobs import AckCall, ExtendCall, NackCall, SettleCall
from topics.calls.queues.values import Claimant, LeasedRecord
from topics.calls.topics import StateCall
from topics.calls.trouble import passes
from topics.calls.workers.claims import AsyncCarrier
from topics.calls.workers.desk import Desk, Supply
from topics.calls.workers.leases import (
    LEFT,
    STOPPED,
    Leases,
    WorkerRules,
    nack_reason,
    retry_ms,
)
from topics.calls.workers.sigterm import soon, stopping_at_sigterm
from topics.kernel.errors import TopicsError

J = TypeVar("J", bound=LeasedRecord)

_chance: Final = random.random
_log: Final = logging.getLogger("topics.worker")
_GIVE_BACK_S: Final = 5  # for what is told at the end, also where the block was cancelled


class AsyncWorker(Generic[J]):
    """As `Worker`, inside `async with store.worker(queue) as worker`. A handler is cancelled when its lease is lost.

    Where the block is cancelled, so are the handlers, and their jobs are given back.
    """

    def __init__(self, queue: Claimant, rules: WorkerRules, store: AsyncCarrier, supply: Supply[J]) -> None:
        self._queue = queue
        self._store = store
        self._supply = supply
        self._rules = rules
        self._backs_off = False  # the queue says when a job that failed is handed out again
        self._left: list[J] = []  # by loops that ended before their job was done
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._telling: set[str] = set()  # leases of jobs that are done, which the queue is being told
        self._is_extending = False
        self._is_over = False

    def stop(self) -> None:
        """Take no more jobs: `run` returns, and loops end, when those in hand are done."""
        self.desk.stop()

    async def run(self, handler: Callable[[J], Awaitable[object]]) -> None:
        """As `Worker.run`. A handler whose lease is lost is cancelled."""
        failures: list[Exception] = []

        async def work() -> None:
            try:
                while (job := await self.desk.next()) is not None:
                    await self._handle(job, handler)
            except Exception as error:  # noqa: BLE001 -- raised below, behind what the others have in hand
                failures.append(error)
                self.stop()

        self.desk.add_hands(self._rules.concurrency)
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self._rules.concurrency):
                    tasks.start_soon(work)
        finally:
            self.desk.add_hands(-self._rules.concurrency)
        if failures:
            raise failures[0]

    def __aiter__(self) -> AsyncIterator[J]:
        return _Loop(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """With its tasks; behind it nothing is held. What the block raises is raised as it is, and not in a group."""
        config = (await self._store.do(StateCall(self._queue.name, touch=False))).config
        self._backs_off = config.retry_backoff is not None
        self.desk = Desk(Leases[J](self._rules.lease_ms or config.lease_ms))
        raised: Exception | None = None
        bringing = anyio.CancelScope(
            shield=True
        )  # also where the block is cancelled, until its jobs are given back
        handles = self._rules.handle_signals
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._bring, bringing)
            tasks.start_soon(self._keep, tasks)
            try:
                with stopping_at_sigterm(soon(self.stop)) if handles else nullcontext():
                    yield self
            except Exception as error:  # noqa: BLE001 -- raised below
                raised = error
            finally:
                self._is_over = True
                self.stop()
                try:
                    with anyio.move_on_after(_GIVE_BACK_S, shield=True):
                        await self.desk.ended.wait()  # else what is given back would be brought again
                        if raised is not None:  # by the body of a loop: the first of these jobs failed of it
                            await self._give_back(self._left, nack_reason(raised), failed=True)
                        await self._give_back(self.desk.leases.held(), STOPPED)
                finally:  # no shield of anyio holds off a task's own `cancel` on asyncio
                    bringing.cancel()
                    tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _bring(self, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await self._supply.run(self.desk)
            except TopicsError as error:
                self.desk.end(error)
            finally:
                self.desk.end()

    async def _handle(self, job: J, handler: Callable[[J], Awaitable[object]]) -> None:
        failure: Exception | None = None
        with anyio.CancelScope() as scope:
            self._scopes[job.lease_id] = scope
            try:
                await handler(job)
            except Exception as error:  # noqa: BLE001 -- the job's failure, which the queue is told
                failure = error
            finally:
                del self._scopes[job.lease_id]
        if scope.cancelled_caught:
            _log.warning(
                "queue %s: the lease of job %d was lost; its handler was cancelled", self._queue.name, job.seq
            )
            self.desk.done(job)
            return
        await self._settle(job, failure)

    async def _settle(self, job: J, failure: Exception | None = None) -> None:
        """Tell that it is done, or why not; again, if no answer comes, until its lease has ended: twice is safe."""
        tell: SettleCall = AckCall(self._queue, [job])
        if failure is not None:
            _log.warning("queue %s: job %d failed", self._queue.name, job.seq, exc_info=failure)
            tell = self._nack([job], nack_reason(failure), failed=True)
        failures = 0
        self._telling.add(job.lease_id)
        while not job.is_settled:
            try:
                found = await self._supply.tell(tell)
            except TopicsError as error:
                if job.is_lost:
                    break
                if not passes(error, is_remote=self._store.is_remote):
                    raise
                failures += 1
                await anyio.sleep(pause_s(failures, _chance()))
            else:
                if job.seq in found.skipped:
                    self._came_too_late(job, is_certain=not failures)
                    break
                job.is_settled = True
        self._telling.discard(job.lease_id)
        self.desk.done(job)

    def _came_too_late(self, job: J, *, is_certain: bool) -> None:
        """What was said of it does not count."""
        job.until_s = float("-inf")
        why = "its lease had ended" if is_certain else "its lease had ended, or only an answer was lost"
        _log.warning(
            "queue %s: job %d was finished and does not count: %s; it may be done again",
            self._queue.name, job.seq, why,
        )  # fmt: skip

    def _leave(self, job: J) -> None:
        """Its loop was left. The keeper looks before long; until then the block may end of what was raised."""
        self._left.append(job)

    async def _keep(self, tasks: TaskGroup) -> None:
        """Extend leases while their jobs are being done, and cancel the handlers of those that are lost."""
        leases = self.desk.leases
        while True:
            now_s = time.monotonic()
            for job in leases.lost(now_s):
                if job.lease_id in self._scopes:
                    self._scopes[job.lease_id].cancel()
                elif job.lease_id not in self._telling:
                    self.desk.goes_on(job)
            if (due := leases.due(now_s)) and not self._is_extending:
                self._is_extending = True
                tasks.start_soon(self._extend, due[: self._store.limits.claim_limit])
            if self._left and not self._is_over:  # at the end they are told why it ended
                left, self._left = self._left, []
                tasks.start_soon(self._give_back, left, LEFT)
            next_s = leases.next_s(now_s)
            with anyio.move_on_after(None if next_s is None else max(next_s - time.monotonic(), 0)):
                await self.desk.news.wait()

    async def _extend(self, jobs: Sequence[J]) -> None:
        leases, asked_s = self.desk.leases, time.monotonic()
        try:
            found = await self._supply.tell(ExtendCall(self._queue, jobs, leases.lease_ms))
            leases.extended(jobs, set(found.seqs), asked_s)
        except TopicsError as error:
            if passes(error, is_remote=self._store.is_remote):
                await anyio.sleep(pause_s(1, _chance()))
            else:  # who brings jobs is told as well, and those who wait raise it
                leases.extended(jobs, (), asked_s)
        self._is_extending = False
        self.desk.news.ring()

    def _nack(self, jobs: Sequence[J], reason: str, *, failed: bool) -> NackCall:
        """A job that was only given back rests not at all; one that failed as its queue says, or as we do."""
        delay_ms = max(retry_ms(job.deliveries) for job in jobs) if failed else 0
        says_itself = failed and self._backs_off
        return NackCall(self._queue, jobs, reason=reason, delay_ms=None if says_itself else delay_ms)

    async def _give_back(self, jobs: Iterable[J], reason: str, *, failed: bool = False) -> None:
        """Others may have them. Where nobody can be told, their leases end in their own time."""
        given = [job for job in jobs if not (job.is_settled or job.is_lost)]
        if given:
            with suppress(TopicsError):
                await self._supply.tell(self._nack(given, reason, failed=failed))
        for job in given:
            job.until_s = float("-inf")
        for job in jobs:
            self.desk.done(job)


class _Loop(AsyncIterator[J]):
    """One job after another: each is done when the next one is asked for."""

    def __init__(self, worker: AsyncWorker[J]) -> None:
        self._worker = worker
        self._job: J | None = None
        self._is_on = False

    async def __anext__(self) -> J:
        worker = self._worker
        if not self._is_on:
            self._is_on = True
            worker.desk.add_hands(1)
        if self._job is not None:
            await worker._settle(self._job)  # noqa: SLF001 -- its own
            self._job = None
        self._job = await worker.desk.next()
        if self._job is None:
            raise StopAsyncIteration
        return self._job

    def __del__(self) -> None:
        if self._is_on:
            self._worker.desk.add_hands(-1)
        if self._job is not None:  # by `break`, or by what its body raised
            self._worker._leave(self._job)  # noqa: SLF001 -- its own
