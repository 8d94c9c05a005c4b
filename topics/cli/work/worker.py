"""Takes jobs of a queue, has some done at a time, keeps their leases, and says what became of each.

The main thread claims; a thread a job waits for its end and settles it; one extends the leases of all, and one looks
after commands whose lease has ended and that do not stop. A lease that is lost ends its command: another worker
may have the job by then.
"""

from __future__ import annotations

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

WAIT_MS: Final = 20_000
KILL_AFTER_S: Final = 5.0  # from SIGTERM to SIGKILL
_LOOK_S: Final = 0.1
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_RETRY_FIRST_MS: Final = 1000
_RETRY_MAX_MS: Final = 60_000
_PASSES: Final = frozenset({
    Code.NOT_READY, Code.SHUTTING_DOWN, Code.THROTTLED, Code.DISK_LOW, Code.STORAGE_READ_ONLY,
})  # fmt: skip
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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


class _Stopped(BaseException):
    """A signal came while there was nothing to lose."""


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
        self._over = threading.Event()
        self._signals = 0
        self._may_stop = False
        self._backoff_s = 0.0

    def run(self) -> None:
        """Until a signal ends it, or nothing is left to do where that was asked. Jobs that run then may end.

        Raises:
            TopicsError: what no patience helps against.
        """
        helpers = [threading.Thread(target=one, daemon=True) for one in (self._extend_all, self._watch_all)]
        with self._signalled():
            for one in helpers:
                one.start()
            try:
                while self._take():
                    pass
            except _Stopped:
                pass
            finally:
                self._drain()
                self._over.set()
                for one in helpers:
                    one.join()

    def _take(self) -> bool:
        """Begin as many jobs as there is room for. False if that was all."""
        until_empty = self._rules.until_empty
        with self._stoppable(), self._changed:
            self._changed.wait_for(lambda: len(self._held) < self._rules.concurrency)
            room, is_idle = self._rules.concurrency - len(self._held), not self._held
        jobs = self._claim(room, 0 if until_empty else WAIT_MS)
        now = time.monotonic()
        for job in jobs or ():
            held = _Held(job, now, now + self._rules.lease_ms / 1000)
            with self._changed:
                self._held.add(held)
            threading.Thread(target=self._do, args=(held,), daemon=True).start()
        if jobs or jobs is None or not until_empty:
            return True
        if not is_idle:
            with self._stoppable(), self._changed:
                self._changed.wait_for(lambda: len(self._held) < self._rules.concurrency - room)
        return not is_idle

    def _claim(self, room: int, wait_ms: int) -> list[Job] | None:
        """Jobs; None if the server is away, after some time."""
        try:
            with self._stoppable():
                jobs = self.queue.claim(room, lease_ms=self._rules.lease_ms, wait_ms=wait_ms)
        except (Unreachable, Rejected) as error:
            if isinstance(error, Rejected) and error.code not in _PASSES:
                raise
            if not self._backoff_s:
                self._say(f"{error.message}; trying again until it is there")
            self._backoff_s = min(max(2 * self._backoff_s, _BACKOFF_FIRST_S), _BACKOFF_MAX_S)
            with self._stoppable():
                self._over.wait(self._backoff_s)
            return None
        if self._backoff_s:
            self._say(f"{self.queue.store.where} is there again")
        self._backoff_s = 0.0
        return jobs

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

    def _drain(self) -> None:
        """What runs may end in its time; then it is stopped, and its job handed out again."""
        until = time.monotonic() + self._rules.grace_s
        if self._running():
            self._say(f"taking no more jobs, {len(self._running())} running")
        with self._changed:
            while self._held and self._signals < 2 and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, _LOOK_S))  # a second signal is no reason to wake up
        for one in self._running():
            one.stop("its worker was stopped", is_lost=False)
        with self._changed:
            self._changed.wait_for(lambda: not self._held)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """A signal ends what is waited for here. A claim that was answered in that moment comes back with its lease."""
        self._may_stop = True
        try:
            if self._signals:
                raise _Stopped
            yield
        finally:
            self._may_stop = False

    def _asked(self, _signal: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._may_stop:
            self._may_stop = False
            raise _Stopped

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
