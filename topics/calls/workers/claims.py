"""Jobs of a store in this process: claimed as soon as somebody waits for one, one claim at a time for all who wait.

And those of any store until it has none, which only claims can tell.
"""

from __future__ import annotations

import time
from typing import Generic, Protocol, TypeVar, cast

import anyio
from anyio import to_thread

from topics.calls.call import Steps
from topics.calls.patience import Absence
from topics.calls.queues.jobs import ClaimCall, SettleCall
from topics.calls.queues.values import Claimant, LeasedRecord
from topics.calls.workers.desk import Desk
from topics.engine.replies import JobsSettled
from topics.kernel.errors import TopicsError
from topics.kernel.limits import Limits

J = TypeVar("J", bound=LeasedRecord)
R = TypeVar("R")


class AsyncCarrier(Protocol):
    """What claims ask of a store."""

    where: str
    is_remote: bool
    limits: Limits

    async def do(self, steps: Steps[R]) -> R: ...


class Carrier(Protocol):
    """The same of one whose calls block."""

    where: str
    is_remote: bool
    limits: Limits

    def do(self, steps: Steps[R]) -> R: ...


class InThreads:
    """A store whose calls block, for tasks."""

    def __init__(self, store: Carrier) -> None:
        self.where, self.is_remote, self.limits = store.where, store.is_remote, store.limits
        self._store = store

    async def do(self, steps: Steps[R]) -> R:
        return await to_thread.run_sync(self._store.do, steps)


class ClaimingSupply(Generic[J]):
    """The supply of a worker whose store answers claims at once."""

    def __init__(self, store: AsyncCarrier, queue: Claimant, *, until_empty: bool = False) -> None:
        self._store = store
        self._queue = queue
        self._until_empty = until_empty

    async def run(self, desk: Desk[J]) -> None:
        absence = Absence(self._store.where, "topics.worker")
        while not desk.is_stopping:
            if not desk.room:
                await desk.wishes.wait()
                continue
            try:
                found = await self._claim(desk)
                absence.ended()
            except TopicsError as error:
                await desk.pause(absence.pause_s(error, is_remote=self._store.is_remote))
                continue
            if self._until_empty and not found:
                if not desk.leases.held():
                    break
                await desk.wishes.wait()  # one that is being done may fail, and be ready again
        desk.end()

    async def _claim(self, desk: Desk[J]) -> list[J]:
        most = min(desk.room, self._store.limits.claim_limit)
        leases, asked_s = desk.leases, time.monotonic()
        wait_ms = 0 if self._until_empty else leases.wait_ms
        asked = ClaimCall(self._queue, most, lease_ms=leases.lease_ms, wait_ms=wait_ms)
        with anyio.CancelScope(
            shield=True
        ):  # for a second at most; else nobody would have what it has leased
            found = cast("list[J]", await self._store.do(asked))  # the queue's `job_type`
        desk.bring(found, asked_s)
        return found

    async def tell(self, call: SettleCall) -> JobsSettled:
        return await self._store.do(call)
