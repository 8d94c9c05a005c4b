"""A worker at work until it is told to end: each job is done by a task, and what became of it is told.

Jobs, leases and the way to the server are the worker's (`calls.workers`); its threads wait for tasks, and say how they
ended. One thread more looks after tasks: it stops those whose lease is lost, since another worker may have the job, and
those that go on for too long behind a signal.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from topics.calls.workers.leases import retry_ms
from topics.cli.io.quantities import counted
from topics.kernel.errors import TopicsError

if TYPE_CHECKING:
    from topics.calls.blocking import Job, Queue
    from topics.calls.workers.worker import Worker

KILL_AFTER_S: Final = 5.0  # from SIGTERM to SIGKILL
_LOOK_S: Final = 0.1  # while there are tasks
_STOPPED: Final = "its worker was stopped"
_LOST: Final = "its lease had ended"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_log: Final = logging.getLogger("topics.worker")


class Task(Protocol):
    """What does one job."""

    def wait(self) -> str | None:
        """Until it ends: None, or why the job failed."""
        ...

    def stop(self, *, kill: bool = False) -> None:
        """End it: as it likes, or at once."""
        ...


@attrs.frozen(kw_only=True)
class WorkRules:
    """`backs_off`: the queue says itself when a job that failed is handed out again. `until_empty`: end then."""

    concurrency: int
    lease_ms: int
    grace_s: float
    backs_off: bool
    until_empty: bool


@attrs.frozen(kw_only=True)
class JobOutcome:
    """What became of a job: `acked`, `nacked`, or `lost`, to whoever has it now. `reason`: why, if not acked."""

    job: Job
    state: str
    reason: str | None
    seconds: float


@attrs.define(eq=False)
class _Run:
    """A job that is being done. `cut`: why it was stopped."""

    job: Job
    began: float
    task: Task | None = None
    cut: str | None = None
    cut_at: float = 0.0

    def stop(self, why: str) -> None:
        if self.cut is None:
            self.cut, self.cut_at = why, time.monotonic()
            if self.task is not None:
                self.task.stop()


class _Heard(logging.Handler):
    """Says what is logged."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


class Shift:
    """`start`: begins what does a job. `tell`: is given what became of each, in its thread. `say`: tells the user."""

    def __init__(
        self, queue: Queue, start: Callable[[Job], Task], rules: WorkRules, *, tell: Callable[[JobOutcome], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._start = start
        self._rules = rules
        self._tell = tell
        self._say = say
        self._runs: set[_Run] = set()
        self._look = threading.Event()
        self._signals = 0
        self._signalled_at = 0.0
        self._is_over = False
        self._worker: Worker[Job] | None = None
        self._failures: list[BaseException] = []

    def run(self) -> None:
        """Until a signal ends it, or nothing is left to do where that was asked. Jobs that run then may end.

        Raises:
            TopicsError: what no patience helps against.
        """
        queue, rules = self._queue, self._rules
        worker = queue.store.worker(
            queue.name, node=queue.node, concurrency=rules.concurrency, lease_ms=rules.lease_ms,
            until_empty=rules.until_empty,
        )  # fmt: skip
        watching = threading.Thread(target=self._watch, daemon=True)
        watching.start()
        try:
            with self._signalled(), self._heard(), worker:
                self._worker = worker
                if self._signals:
                    worker.stop()
                worker.run(self._do)
        finally:
            self._is_over = True
            self._look.set()
            watching.join()
        if self._failures:
            raise self._failures[0]

    def _do(self, job: Job) -> None:
        """One job, from its start to its settlement."""
        run = _Run(job, time.monotonic())
        self._runs.add(run)
        self._look.set()
        try:
            try:
                run.task = self._start(job)
                if run.cut is not None:  # before there was anything to stop
                    run.task.stop()
                reason = run.task.wait()
            except OSError as error:
                reason = f"its command cannot be started: {error}"
            self._runs.discard(run)
            self._tell(self._settle(run, reason))
        except BaseException as error:  # noqa: BLE001 -- raised by `run`
            self._failures.append(error)
            assert self._worker is not None
            self._worker.stop()
        finally:
            self._runs.discard(run)

    def _settle(self, run: _Run, reason: str | None) -> JobOutcome:
        job, state = run.job, "lost"
        if run.cut is not None and reason is not None:
            reason = run.cut
        if not job.is_lost:
            try:
                if reason is None:
                    state = "acked" if job.ack() else "lost"
                else:
                    state = "nacked" if job.nack(reason, delay_ms=self._delay_ms(run)) else "lost"
            except TopicsError as error:
                reason = f"what became of it could not be told: {error.message}"
                job.until_s = -math.inf  # nor will it be: its lease ends in its own time
        if state == "lost" and reason is None:
            reason = "it was done, but its lease had ended: another worker may do it again"
        return JobOutcome(job=job, state=state, reason=reason, seconds=time.monotonic() - run.began)

    def _delay_ms(self, run: _Run) -> int | None:
        """As of a handler that raises; None: as the queue says."""
        if run.cut is not None:
            return 0
        return None if self._rules.backs_off else retry_ms(run.job.deliveries)

    def _watch(self) -> None:
        """Stop what has no lease any more, what is to end, and what does not stop."""
        is_said = False
        while not self._is_over:
            self._look.wait(_LOOK_S if self._runs else None)
            self._look.clear()
            if self._signals and not is_said:
                is_said = True
                self._say(f"taking no more jobs{self._waits_for()}")
            now = time.monotonic()
            is_late = now >= self._signalled_at + self._rules.grace_s
            for run in list(self._runs):
                if run.job.is_lost:
                    run.stop(_LOST)
                elif self._signals > 1 or (self._signals and is_late):
                    run.stop(_STOPPED)
                if run.cut is not None and now >= run.cut_at + KILL_AFTER_S and run.task is not None:
                    run.task.stop(kill=True)

    def _waits_for(self) -> str:
        if not self._runs:
            return ""
        running = counted(len(self._runs), "command")
        return f"; waiting up to {self._rules.grace_s:g} s for {running}, which a second signal stops"

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        if not self._signals:
            self._signalled_at = time.monotonic()
        self._signals += 1
        if self._worker is not None:
            self._worker.stop()
        self._look.set()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """What the worker says of its server is told to the user."""
        handler = _Heard(self._say)
        _log.addHandler(handler)
        try:
            yield
        finally:
            _log.removeHandler(handler)

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        """Who runs it in another thread than the main one has no signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = [signal.signal(one, self._asked) for one in _SIGNALS]
        try:
            yield
        finally:
            for one, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(one, handler)
