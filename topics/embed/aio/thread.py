"""A thread for system calls, one a shard (performance 4): never a pool's, never Python's work.

A job goes in by a slot and a lock, for there is never a second one before the first has ended; its end comes back by
the loop's doorbell. An `OSError` is a value; anything else that a job raises is raised where it was asked for.

`Threads` is the port through which the runtime leaves the loop: a simulator has its own, which runs jobs on the
loop at moments it chooses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import outcome
import trio

from topics.host.cold.cold_tier import COLD_READS_MAX, COLD_WAITING_MAX
from topics.kernel.limits import INLINE_BYTES_MAX

T = TypeVar("T")
_Job = tuple[Callable[[], object], trio.lowlevel.Task]


class DedicatedThread(Protocol):
    """One job after another, off the loop."""

    async def run(self, job: Callable[[], T]) -> T: ...

    def close(self) -> None: ...


class Threads:
    """Where blocking work goes. Neither kind of it can be cancelled once it has begun.

    `inline_bytes_max`: a write into the page cache up to this size may stay on the loop. `now_s`: by what is measured
    how long a call took; any thread may ask.
    """

    def __init__(
        self, *, inline_bytes_max: int = INLINE_BYTES_MAX, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self.inline_bytes_max = inline_bytes_max
        self.now_s = now_s
        self._cold: trio.CapacityLimiter | None = None

    def dedicated(self, name: str) -> DedicatedThread:
        """A thread of one's own."""
        return SystemThread(name)

    async def run(self, job: Callable[[], T]) -> T:
        """In some thread of Trio's pool."""
        return await trio.to_thread.run_sync(job)

    async def run_cold(self, job: Callable[[], T], *, limit_s: float) -> T:
        """In a pool of its own, of a few threads, for what may take long; nothing else ever waits for one of these.

        Raises:
            trio.TooSlowError: it took longer than that, or its turn did not come. Its thread goes on to its end.
            trio.WouldBlock: too many wait.
        """
        if self._cold is None:
            self._cold = trio.CapacityLimiter(COLD_READS_MAX)
        if self._cold.statistics().tasks_waiting >= COLD_WAITING_MAX:
            raise trio.WouldBlock
        with trio.fail_after(limit_s):
            return await trio.to_thread.run_sync(job, limiter=self._cold, abandon_on_cancel=True)


class SystemThread:
    """Runs one job after another. Use it from one Trio run only; `close` ends it once its jobs are done."""

    def __init__(self, name: str) -> None:
        self._job: _Job | None = None
        self._given = threading.Lock()  # free when there is a job to take
        self._given.acquire()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result. Cancellation waits for its end: what the disk has begun, nobody takes back."""
        assert self._job is None
        self._job = (job, trio.lowlevel.current_task())
        self._given.release()
        return await trio.lowlevel.wait_task_rescheduled(_not_before_its_end)  # type: ignore[no-any-return]  # Trio says Any; the job's type is T

    def close(self) -> None:
        assert self._job is None
        self._given.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            if self._job is None:
                return
            job, task = self._job
            self._job = None
            result = outcome.capture(job)
            try:
                self._token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            except trio.RunFinishedError:
                return


def _not_before_its_end(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
