"""`Worker`: does the jobs of a queue, by threads."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

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


class Carrier(Protocol):
    """What a worker asks of a store."""

    is_remote: bool
    limits: Limits

    def do(self, steps: Steps[R]) -> R: ...


class Jobs(Protocol):
    """The queue whose jobs it does."""

    job_type: ClassVar[type[LeasedRecord]]

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def store(self) -> Carrier: ...


class Worker(Generic[J]):
    """Does the jobs of a queue, inside `with store.worker(queue) as worker`. For any number of threads.

    A job is done when its handler has returned, or its loop asks for the next one. If the handler raises, it is handed
    out again as the queue's `retry_backoff` says; the exception is the reason, and is told to the log `topics.worker`.
    If the loop is left, by `break` or an exception, its job is handed out again as well, so none is lost.

    Leases are extended as long as jobs are being done. One may be lost all the same, if this process or the way to the
    server stands still for so long: then `job.is_lost` is true, and its handler should end, for another worker may
    have the job. What is lost is not done: an ack counts for a very lease only. No job is done twice at a time here.

    An answer that is lost is asked for again: a claim at once, with pauses that double up to 1 s, for as long as the
    block lasts; an ack until the lease has ended. Jobs of a claim whose answer was lost come when their leases end.
    """

    def __init__(self, queue: Jobs, rules: WorkerRules) -> None:
        self._queue = queue
        self._store = queue.store
        self._rules = rules
        self._ready: deque[J] = deque()  # at most one for each who waits
        self._left: list[J] = []  # by loops that ended before their job was done
        self._turn = threading.Lock()  # of who claims, for all who wait
        self._lock = threading.Lock()  # of what follows, and of the leases
        self._news = threading.Condition(self._lock)
        self._waiting = 0
        self._failures = 0
        self._is_stopping = False  # without a lock, as signal handlers have none
        self._is_over = False
        self._before: Any = None

    def stop(self) -> None:
        """Take no more jobs: `run` returns, and loops end, when those in hand are done."""
        self._is_stopping = True

    def run(self, handler: Callable[[J], object]) -> None:
        """Do jobs until `stop`: `concurrency` at once, each by one call of `handler`, in a thread.

        Raises:
            Rejected, Fatal, Unreachable: what no repetition helps against, as `topic_not_found`, `not_a_queue`; of a
                store in this process also that it was closed. Behind what the other threads have in hand.
        """
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while (job := self._next()) is not None:
                    self._handle(job, handler)
            except BaseException as error:  # noqa: BLE001 -- raised below, where somebody sees it
                failures.append(error)
                self.stop()

        name = f"topics-worker-{self._queue.name}"
        threads = [
            threading.Thread(target=work, name=f"{name}-{i}", daemon=True)
            for i in range(self._rules.concurrency)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def __iter__(self) -> Iterator[J]:
        while (job := self._next()) is not None:
            try:
                yield job
            except GeneratorExit:
                with self._lock:
                    self._left.append(
                        job
                    )  # the keeper looks before long; here the block may end of what was raised
                raise
            self._settle(job)

    def __enter__(self) -> Self:
        lease_ms = self._rules.lease_ms
        if lease_ms is None:
            lease_ms = self._store.do(State(self._queue.name, touch=False)).config.lease_ms
        self._leases: Leases[J] = Leases(lease_ms)
        if self._rules.handle_signals:
            self._before = signal.signal(signal.SIGTERM, self._stop_at_signal)
        self._keeper = threading.Thread(
            target=self._keep, name=f"topics-leases-{self._queue.name}", daemon=True
        )
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        with self._lock:
            self._is_over = True
            self._news.notify()
            left, held = list(self._left), self._leases.held()
        if isinstance(error, Exception):  # by the body of a loop: its job failed of it
            self._give_back(left, reason_of(error))
        self._give_back(held, STOPPED, delay_ms=0)

    def _next(self) -> J | None:
        """The next job, as soon as there is one; None when it is to stop."""
        with self._lock:
            self._waiting += 1
        try:
            with self._turn:
                while True:
                    while self._ready:
                        job = self._ready.popleft()
                        if not job.is_lost:
                            return job
                        self._drop(job)
                    if self._is_stopping:
                        return None
                    self._claim()
        finally:
            with self._lock:
                self._waiting -= 1

    def _claim(self) -> None:
        """One claim, for all who wait."""
        leases, asked_s = self._leases, time.monotonic()
        most = min(self._waiting, self._store.limits.claim_limit)
        try:
            found = self._store.do(Claim(self._queue, most, lease_ms=leases.lease_ms, wait_ms=leases.wait_ms))
        except TopicsError as error:
            self._failures += 1
            self._pause(error, self._failures)
            return
        self._failures = 0
        with self._lock:
            fresh, again = leases.take(cast("list[J]", found), asked_s)  # the queue's `job_type`
            self._news.notify()
        self._ready.extend(fresh)
        self._give_back(again, HELD)

    def _handle(self, job: J, handler: Callable[[J], object]) -> None:
        failure: Exception | None = None
        try:
            handler(job)
        except Exception as error:  # noqa: BLE001 -- the job's failure, which the queue is told
            failure = error
            _log.warning("queue %s: job %d failed", self._queue.name, job.seq, exc_info=error)
        self._settle(job, failure)

    def _settle(self, job: J, failure: Exception | None = None) -> None:
        """Tell that it is done, or why not; again, if no answer comes, until its lease has ended: twice is safe."""
        tell = (
            Ack(self._queue, [job])
            if failure is None
            else Nack(self._queue, [job], reason=reason_of(failure))
        )
        failures = 0
        while not job.is_settled:
            try:
                self._store.do(tell)
            except TopicsError as error:
                if job.is_lost:
                    break
                failures += 1
                self._pause(error, failures)
            else:
                job.is_settled = True
        self._drop(job)

    def _keep(self) -> None:
        """Extend leases while their jobs are being done."""
        while True:
            with self._lock:
                now_s = time.monotonic()
                due, left = self._leases.due(now_s), self._left
                if not (due or left or self._is_over):
                    next_s = self._leases.next_s(now_s)
                    self._news.wait(None if next_s is None else max(next_s - now_s, 0))
                if self._is_over:
                    return
                self._left = []
            if due:
                self._extend(due[: self._store.limits.claim_limit])
            self._give_back(left, LEFT)

    def _extend(self, jobs: Sequence[J]) -> None:
        asked_s, seqs = time.monotonic(), set[int]()
        try:
            seqs.update(self._store.do(Extend(self._queue, jobs, self._leases.lease_ms)).seqs)
        except TopicsError as error:
            if passes(error, is_remote=self._store.is_remote):
                time.sleep(pause_s(1, _chance()))
                return
            # who claims is told as well, and raises it
        with self._lock:
            self._leases.extended(jobs, seqs, asked_s)

    def _give_back(self, jobs: Iterable[J], reason: str, *, delay_ms: int | None = None) -> None:
        """Others may have them. Where nobody can be told, their leases end in their own time."""
        given = [job for job in jobs if not (job.is_settled or job.is_lost)]
        if given:
            with suppress(TopicsError):
                self._store.do(Nack(self._queue, given, reason=reason, delay_ms=delay_ms))
        for job in given:
            job.until_s = float("-inf")
        for job in jobs:
            self._drop(job)

    def _drop(self, job: J) -> None:
        with self._lock:
            self._leases.drop(job)

    def _pause(self, error: TopicsError, failures: int) -> None:
        if not passes(error, is_remote=self._store.is_remote):
            raise error
        time.sleep(pause_s(failures, _chance()))

    def _stop_at_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()
        signal.signal(signal.SIGTERM, self._before)
