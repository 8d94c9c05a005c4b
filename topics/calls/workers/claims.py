"""Jobs of a store in this process: claimed as soon as somebody waits for one, one claim at a time for all who wait."""

from __future__ import annotations

import random
import time
from typing import Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio import to_thread

from topics.calls.call import Steps
from topics.calls.job_values import Claimant, LeasedRecord
from topics.calls.jobs import Claim, Settle
from topics.calls.workers.desk import Desk
from topics.calls.workers.leases import passes, pause_s
from topics.engine.replies import JobsSettled
from topics.kernel.errors import TopicsError
from topics.kernel.limits import Limits

J = TypeVar("J", bound=LeasedRecord)
R = TypeVar("R")

_chance: Final = random.random


class AsyncCarrier(Protocol):
    """What claims ask of a store."""

    is_remote: bool
    limits: Limits

    async def do(self, steps: Steps[R]) -> R: ...


class Carrier(Protocol):
    """The same of one whose calls block."""

    is_remote: bool
    limits: Limits

    def do(self, steps: Steps[R]) -> R: ...


class InThreads:
    """A store whose calls block, for tasks."""

    def __init__(self, store: Carrier) -> None:
        self.is_remote, self.limits = store.is_remote, store.limits
        self._store = store

    async def do(self, steps: Steps[R]) -> R:
        return await to_thread.run_sync(self._store.do, steps)


class Claims(Generic[J]):
    """The supply of a worker whose store answers claims at once."""

    def __init__(self, store: AsyncCarrier, queue: Claimant) -> None:
        self._store = store
        self._queue = queue

    async def run(self, desk: Desk[J]) -> None:
        failures = 0
        while not desk.is_stopping:
            if not desk.room:
                await desk.wishes.wait()
                continue
            try:
                await self._claim(desk)
                failures = 0
            except TopicsError as error:
                if not passes(error, is_remote=self._store.is_remote):
                    raise
                failures += 1
                await desk.pause(pause_s(failures, _chance()))
        desk.end()

    async def _claim(self, desk: Desk[J]) -> None:
        most = min(desk.room, self._store.limits.claim_limit)
        leases, asked_s = desk.leases, time.monotonic()
        asked = Claim(self._queue, most, lease_ms=leases.lease_ms, wait_ms=leases.wait_ms)
        with anyio.CancelScope(
            shield=True
        ):  # for a second at most; else nobody would have what it has leased
            found = await self._store.do(asked)
        desk.bring(cast("list[J]", found), asked_s)  # the queue's `job_type`

    async def tell(self, call: Settle) -> JobsSettled:
        return await self._store.do(call)
