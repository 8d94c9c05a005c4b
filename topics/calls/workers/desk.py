"""Where jobs lie between who brings them and those who do them, each one job at a time.

A job that is brought while an earlier run of it goes on here, because the lease of that one was lost, waits for that to
end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import anyio

from topics.calls.queues.jobs import SettleCall
from topics.calls.queues.values import LeasedRecord
from topics.calls.workers.leases import Leases
from topics.engine.replies import JobsSettled
from topics.kernel.errors import TopicsError

J = TypeVar("J", bound=LeasedRecord)


class Bell:
    """One task waits, and hears whether it has been rung since it waited last."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung = anyio.Event()


class Desk(Generic[J]):
    """`hands`: how many do jobs. `waiting`: how many of them have none. `is_stopping`: bring no more.

    `wishes` rings for who brings, when one of these has changed; `news` for who keeps the leases.
    """

    def __init__(self, leases: Leases[J]) -> None:
        self.leases = leases
        self.hands = self.waiting = 0
        self.is_stopping = False
        self.wishes = Bell()
        self.news = Bell()
        self.ended = anyio.Event()  # no more will come
        self._failure: TopicsError | None = None
        self._ready: deque[J] = deque()
        self._under_way: dict[int, J] = {}  # by seq
        self._useless: set[str] = set()  # leases that are lost, and whose runs go on
        self._turn = anyio.Lock()  # one task waits for all, so a job wakes one
        self._moved = Bell()

    # For who brings.

    @property
    def room(self) -> int:
        """For how many jobs somebody waits."""
        return max(self.waiting - len(self._ready), 0)

    @property
    def wanted(self) -> int:
        """How many jobs may be leased here: one for each who does jobs, but for those who still do what is lost."""
        return max(self.hands - len(self._useless), 0)

    def bring(self, jobs: Iterable[J], asked_s: float) -> None:
        """They are leased, from `asked_s` on or later."""
        brought = list(jobs)
        self.leases.take(brought, asked_s)
        self._ready.extend(brought)
        self.news.ring()
        self._moved.ring()

    def unwanted(self) -> list[J]:
        """What was brought, and nobody is here to do. It is not here any more."""
        if self.wanted:
            return []
        jobs = [job for job in self._ready if not job.is_lost]
        for job in self._ready:
            self.leases.drop(job)
        self._ready.clear()
        return jobs

    def lose(self) -> None:
        """The leases of all that are here have ended."""
        self.leases.lose()
        self.news.ring()
        self._moved.ring()

    def end(self, failure: TopicsError | None = None) -> None:
        """No more will come; `failure` is why, if it was not asked for. Those who wait are told."""
        self._failure = self._failure or failure
        self.ended.set()
        self._moved.ring()

    async def pause(self, seconds: float) -> None:
        """Or until it is to stop."""
        with anyio.move_on_after(seconds):
            while not self.is_stopping:
                await self.wishes.wait()

    def goes_on(self, job: J) -> None:
        """Its lease is lost, and nobody can end its run."""
        if self._under_way.get(job.seq) is job and job.lease_id not in self._useless:
            self._useless.add(job.lease_id)
            self.wishes.ring()

    # For those who do jobs.

    def add_hands(self, count: int) -> None:
        """More do jobs from here on, or fewer."""
        self.hands += count
        assert self.hands >= 0
        self.wishes.ring()

    def stop(self) -> None:
        self.is_stopping = True
        self.wishes.ring()
        self._moved.ring()

    async def next(self) -> J | None:
        """The next job, as soon as there is one; None if no more is to come, whoever brings jobs may hear of that
        later. Raises why, if that was not asked for.
        """
        self.waiting += 1
        self.wishes.ring()
        try:
            async with self._turn:
                while True:
                    if (job := self._pick()) is not None:
                        return job
                    if self._failure is not None:
                        raise self._failure
                    if (self.ended.is_set() or self.is_stopping) and not self._ready:
                        return None
                    await self._moved.wait()
        finally:
            self.waiting -= 1

    def done(self, job: J) -> None:
        """Its run has ended."""
        self.leases.drop(job)
        if self._under_way.get(job.seq) is job:
            del self._under_way[job.seq]
            self._useless.discard(job.lease_id)
        self._moved.ring()

    def _pick(self) -> J | None:
        for job in list(self._ready):
            if job.is_lost:
                self._ready.remove(job)
                self.leases.drop(job)
            elif job.seq not in self._under_way:
                self._ready.remove(job)
                self._under_way[job.seq] = job
                return job
        return None


class Supply(Protocol[J]):
    """Where the jobs of a worker come from, and who is told what became of them."""

    async def run(self, desk: Desk[J]) -> None:
        """Bring jobs until it is to stop, and end it. Waits and tries again as long as that may help.

        Raises:
            TopicsError: what no patience helps against.
        """
        ...

    async def tell(self, call: SettleCall) -> JobsSettled:
        """Raises what the call raises; Unreachable if no answer came."""
        ...
