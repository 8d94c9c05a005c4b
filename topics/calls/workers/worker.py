"""`Worker`: does the jobs of a queue, by threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from topics.calls.queues.values import Claimant, LeasedRecord
from topics.calls.workers.async_worker import AsyncWorker
from topics.calls.workers.claims import Carrier, InThreads
from topics.calls.workers.desk import Supply
from topics.calls.workers.leases import WorkerRules
from topics.calls.workers.sigterm import stopping_at_sigterm

J = TypeVar("J", bound=LeasedRecord)
R = TypeVar("R")

# A signal that comes just as the main thread begins to wait, or to another thread, does not end the wait, and its
# handler runs only when the main thread does something again.
_SIGNAL_S: Final = 1.0


class Worker(Generic[J]):
    """Does the jobs of a queue, inside `with store.worker(queue) as worker`. For any number of threads.

    A job is done when its handler has returned, or its loop asks for the next one. If the handler raises, it is handed
    out again as the queue's `retry_backoff` says, without one after 1 s, 2 s, 4 s … up to a minute; the exception is
    the reason, and is told to the log `topics.worker`. If the loop is left, by `break` or an exception, its job is
    handed out again as well, so none is lost.

    Leases are extended as long as jobs are being done. One may be lost all the same, if this process or the way to the
    server stands still for so long, or the connection to it breaks: then `job.is_lost` is true, and its handler should
    end, for another worker may have the job. What is lost is not done: an ack counts for a very lease only. No job is
    done twice at a time here.

    A server that goes away is waited for, with pauses that double up to 1 s, for as long as the block lasts.
    """

    def __init__(self, queue: Claimant, rules: WorkerRules, store: Carrier, supply: Supply[J]) -> None:
        # All that it does but handlers is done by tasks, in a thread of theirs.
        self._tasks: AsyncWorker[J] = AsyncWorker(
            queue, msgspec.structs.replace(rules, handle_signals=False), InThreads(store), supply
        )
        self._name = f"topics-worker-{queue.name}"
        self._rules = rules
        self._portal: BlockingPortal

    def stop(self) -> None:
        """Take no more jobs: `run` returns, and loops end, when those in hand are done."""
        with suppress(RuntimeError):  # it is over
            self._portal.start_task_soon(self._tasks.stop)

    def run(self, handler: Callable[[J], object]) -> None:
        """Do jobs until `stop`: `concurrency` at once, each by one call of `handler`, in a thread.

        Raises:
            Rejected, Fatal, Unreachable: what no repetition helps against, as `topic_not_found`, `not_a_queue`; of a
                store in this process also that it was closed. Behind what the other threads have in hand.
        """
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while (job := self._portal.call(self._tasks.desk.next)) is not None:
                    self._handle(job, handler)
            except BaseException as error:  # noqa: BLE001 -- raised below, where somebody sees it
                failures.append(error)
                self.stop()

        count = self._rules.concurrency
        threads = [threading.Thread(target=work, name=f"{self._name}-{i}", daemon=True) for i in range(count)]
        self._portal.call(self._tasks.desk.add_hands, count)
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_SIGNAL_S)
        self._portal.call(self._tasks.desk.add_hands, -count)
        if failures:
            raise failures[0]

    def __iter__(self) -> Iterator[J]:
        portal, tasks = self._portal, self._tasks
        portal.call(tasks.desk.add_hands, 1)
        try:
            while (job := self._hearing_signals(tasks.desk.next)) is not None:
                try:
                    yield job
                except GeneratorExit:
                    with suppress(RuntimeError):  # it is over, and the job given back
                        portal.call(tasks._leave, job)  # noqa: SLF001 -- its own
                    raise
                self._hearing_signals(tasks._settle, job)  # noqa: SLF001 -- its own
        finally:
            with suppress(RuntimeError):
                portal.call(tasks.desk.add_hands, -1)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal(name=f"{self._name}-leases"))
            stack.enter_context(self._portal.wrap_async_context_manager(self._tasks.running()))
            if self._rules.handle_signals:
                stack.enter_context(stopping_at_sigterm(self.stop))
            self._end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):  # by the body of a loop: its job failed of it
            self._end.__exit__(kind, error, trace)
        else:
            self._end.close()

    def _handle(self, job: J, handler: Callable[[J], object]) -> None:
        failure: Exception | None = None
        try:
            handler(job)
        except Exception as error:  # noqa: BLE001 -- the job's failure, which the queue is told
            failure = error
        with suppress(CancelledError):  # the block has ended while it was done
            self._portal.call(self._tasks._settle, job, failure)  # noqa: SLF001 -- its own

    def _hearing_signals(self, call: Callable[..., Awaitable[R]], *arguments: object) -> R:
        """As `portal.call`, for a main thread that may wait long."""
        future = self._portal.start_task_soon(call, *arguments)
        while not wait([future], _SIGNAL_S).done:
            pass
        return future.result()
