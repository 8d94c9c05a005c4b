"""Takes jobs of a queue, has some done at a time, keeps their leases, and says what became of each.

One thread claims; one a job waits for its end and settles it; one extends the leases of all, and one looks after tasks
whose lease has ended and that do not stop. The main thread waits for signals, which interrupt none of this. A lease
that is lost ends its task: another worker may have the job by then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from topics.calls.trouble import Unreachable
from topics.kernel.errors import Code, Rejected, TopicsError

if TYPE_CHECKING:
    from topics.calls.blocking import Job, Queue

WAIT_MS: Final = 2000  # nothing ends the wait of a thread, so a worker that is stopped waits as long
KILL_AFTER_S: Final = 5.0  # from SIGTERM to SIGKILL
_LOOK_S: Final = 0.1
_ANSWER_S: Final = WAIT_MS / 1000 + 1
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_RETRY_FIRST_MS: Final = 1000
_RETRY_MAX_MS: Final = 60_000
_PASSES: Final = frozenset({
    Code.NOT_READY, Code.SHUTTING_DOWN, Code.THROTTLED, Code.DISK_LOW, Code.STORAGE_READ_ONLY,
})  # fmt: skip
_STOPPED: Final = "its worker was stopped"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _Ends:
    """Why a worker ends: a signal, an error, or that nothing is left. The first counts.

    A pipe wakes who waits, for a handler of signals may put something there whatever it interrupts.
    """

    def __init__(self) -> None:
        self._first: list[BaseException | signal.Signals | None] = []
        self._read, self._write = os.pipe()

    def put(self, end: BaseException | signal.Signals | None) -> None:
        if not self._first:
            self._first.append(end)
            os.write(self._write, b"!")

    def get(self) -> BaseException | signal.Signals | None:
        os.read(self._read, 1)
        os.close(self._read)
        return self._first[0]


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
class Ended:
    """What became of a job: `acked`, `nacked`, or `lost`, to whoever has it now. `reason`: why, if not acked."""

    job: Job
    state: str
    reason: str | None
    seconds: float


@attrs.define(eq=False)
class _Held:
    """A job that is leased to us until about `until` (monotonic)."""

    job: Job
    began: float
    until: float
    task: Task | None = None
    is_over: bool = False  # the task is; now it is told
    cut: str | None = None  # why it was stopped
    cut_at: float = 0.0
    is_lost: bool = False

    def stop(self, why: str, *, is_lost: bool) -> None:
        if self.cut is None:
            self.cut, self.cut_at, self.is_lost = why, time.monotonic(), is_lost
            if self.task is not None:
                self.task.stop()


class Worker:
    """`start`: begins what does a job. `tell`: is given what became of each, in its thread. `say`: tells the user."""

    def __init__(
        self, queue: Queue, start: Callable[[Job], Task], rules: WorkRules, *, tell: Callable[[Ended], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.queue = queue
        self._start = start
        self._rules = rules
        self._tell = tell
        self._say = say
        self._held: set[_Held] = set()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._signals = 0
        self._over = threading.Event()
        self._ends = _Ends()
        self._backoff_s = 0.0

    def run(self) -> None:
        """Until a signal ends it, or nothing is left to do where that was asked. Jobs that run then may end.

        Raises:
            TopicsError: what no patience helps against.
        """
        with self._signalled():
            threads = [
                threading.Thread(target=one, daemon=True)
                for one in (self._claim_all, self._extend_all, self._watch_all)
            ]
            for one in threads:
                one.start()
            end = self._ends.get()
            until = time.monotonic() + self._rules.grace_s
            with self._changed:
                self._is_stopping = True
                self._changed.notify_all()
            if isinstance(end, signal.Signals):
                self._say("taking no more jobs")
            threads[0].join(_ANSWER_S)  # what a claim that is under way brings is done, too
            self._drain(until)
            self._over.set()
        if isinstance(end, BaseException):
            raise end

    def _claim_all(self) -> None:
        """Begin jobs as long as there is room for them."""
        until_empty, most = self._rules.until_empty, self._rules.concurrency
        try:
            while not self._is_stopping:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._held) < most or self._is_stopping)
                    held = len(self._held)
                if self._is_stopping:
                    break
                jobs = self._claim(most - held, 0 if until_empty else WAIT_MS)
                if jobs:
                    self._begin(jobs)
                elif jobs is not None and until_empty:
                    if not held:
                        break
                    with self._changed:  # one that fails may be ready again
                        self._changed.wait_for(lambda: len(self._held) < held or self._is_stopping)  # noqa: B023
        except BaseException as error:  # noqa: BLE001 -- raised by `run`
            self._ends.put(error)
            return
        self._ends.put(None)

    def _claim(self, room: int, wait_ms: int) -> list[Job] | None:
        """Jobs; None if the server is away, after some time."""
        try:
            jobs = self.queue.claim(room, lease_ms=self._rules.lease_ms, wait_ms=wait_ms)
        except (Unreachable, Rejected) as error:
            if isinstance(error, Rejected) and error.code not in _PASSES:
                raise
            if self._is_stopping:
                return None
            if not self._backoff_s:
                self._say(f"{error.message}; trying again until it is there")
            self._backoff_s = min(max(2 * self._backoff_s, _BACKOFF_FIRST_S), _BACKOFF_MAX_S)
            self._over.wait(self._backoff_s)
            return None
        if self._backoff_s:
            self._say(f"{self.queue.store.where} is there again")
        self._backoff_s = 0.0
        return jobs

    def _begin(self, jobs: list[Job]) -> None:
        now = time.monotonic()
        held = [_Held(job, now, now + self._rules.lease_ms / 1000) for job in jobs]
        with self._changed:
            self._held.update(held)
        for one in held:
            threading.Thread(target=self._do, args=(one,), daemon=True).start()

    def _do(self, held: _Held) -> None:
        """One job, from its start to its settlement."""
        try:
            try:
                held.task = self._start(held.job)
                if held.cut is not None:  # before there was anything to stop
                    held.task.stop()
                reason = held.task.wait()
            except OSError as error:
                reason = f"its command cannot be started: {error}"
            held.is_over = True
            self._tell(self._settle(held, reason))
        except BaseException as error:  # noqa: BLE001 -- raised by `run`
            self._ends.put(error)
        finally:
            with self._changed:
                self._held.discard(held)
                self._changed.notify_all()

    def _settle(self, held: _Held, reason: str | None) -> Ended:
        job, state = held.job, "lost"
        if held.cut is not None and reason is not None:
            reason = held.cut
        if not held.is_lost:
            try:
                if reason is None:
                    state = "acked" if job.ack() else "lost"
                else:
                    state = "nacked" if job.nack(reason, delay_ms=self._delay_ms(held)) else "lost"
            except TopicsError as error:
                reason = f"what became of it could not be told: {error.message}"
        if state == "lost" and reason is None:
            reason = "it was done, but its lease had ended: another worker may do it again"
        return Ended(job=job, state=state, reason=reason, seconds=time.monotonic() - held.began)

    def _delay_ms(self, held: _Held) -> int | None:
        """None: as the queue says. Where it says nothing, one that always fails must not keep everybody busy."""
        if held.cut is not None:
            return 0
        if self._rules.backs_off:
            return None
        return min(_RETRY_FIRST_MS << min(held.job.deliveries - 1, 10), _RETRY_MAX_MS)

    def _extend_all(self) -> None:
        """Each time that a third of the lease has passed, the leases of all that run."""
        lease_s = self._rules.lease_ms / 1000
        while not self._over.wait(lease_s / 3):
            held = [one for one in self._running() if one.cut is None]
            if not held:
                continue
            asked = time.monotonic()
            try:
                told = self.queue.extend([one.job for one in held], self._rules.lease_ms)
            except TopicsError:
                continue  # who watches ends what is not extended in time
            skipped = set(told.skipped)
            for one in held:
                if one.job.seq not in skipped:
                    one.until = asked + lease_s
                elif not one.is_over:
                    one.stop("its lease had ended", is_lost=True)

    def _watch_all(self) -> None:
        """Stop what has no lease any more, and what does not stop."""
        while not self._over.wait(_LOOK_S):
            now = time.monotonic()
            for one in self._running():
                if one.until <= now:
                    one.stop("its lease ended, and could not be extended", is_lost=True)
                if one.cut is not None and now >= one.cut_at + KILL_AFTER_S and one.task is not None:
                    one.task.stop(kill=True)

    def _running(self) -> list[_Held]:
        with self._changed:
            return [one for one in self._held if not one.is_over]

    def _drain(self, until: float) -> None:
        """What runs may end until then; then it is stopped, and its job handed out again."""
        with self._changed:
            while self._held and self._signals < 2 and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, _LOOK_S))  # a second signal does not wake it up
        for one in self._running():
            one.stop(_STOPPED, is_lost=False)
        with self._changed:
            self._changed.wait_for(lambda: not self._held)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._ends.put(signal.Signals(number))

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
