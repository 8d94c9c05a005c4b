"""Tasks for connections that keep none: who has served one serves the next (decision 130).

A connection at rest has no task. To start one for each request would cost twice as much as to wake one, so a few wait
here for the next connection that has something to serve. Each has a cancel scope, which is lent to whom it serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import outcome
import trio

WAITING_MAX: Final = 64  # tasks that wait for something to do


class Attended(Protocol):
    """Who is served for a while."""

    async def attend(self, scope: trio.CancelScope) -> None:
        """Until it rests, or has ended. The scope is its own meanwhile: to set its deadline, or to cancel it."""
        ...

    async def given_up(self) -> None:
        """Its scope was cancelled."""
        ...


class TaskPool:
    """Of one port. They end with the nursery. `failed`: told of a bug in who is served, which ends nobody else."""

    def __init__(self, nursery: trio.Nursery, failed: Callable[[Exception], None]) -> None:
        self._nursery = nursery
        self._failed = failed
        self._waiting: list[trio.lowlevel.Task] = []

    def start(self, attended: Attended) -> None:
        """Have it served by a task, soon."""
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.pop(), outcome.Value(attended))
        else:
            self._nursery.start_soon(self._run, attended)

    async def _run(self, attended: Attended) -> None:
        while True:
            try:
                if (found := await self._attend(attended)) is None:
                    return
                attended = found
            except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
                self._failed(bug)
                attended = await self._next()

    async def _attend(self, attended: Attended) -> Attended | None:
        """One after another, as long as they leave the scope as it was. Who is next; None if enough tasks wait."""
        with trio.CancelScope() as scope:
            await attended.attend(scope)
            while not scope.cancel_called and scope.deadline == math.inf:
                if len(self._waiting) >= WAITING_MAX:
                    return None
                attended = await self._next()
                await attended.attend(scope)
        if scope.cancelled_caught:
            await attended.given_up()
        return None if len(self._waiting) >= WAITING_MAX else await self._next()

    async def _next(self) -> Attended:
        self._waiting.append(trio.lowlevel.current_task())
        found: Attended = await trio.lowlevel.wait_task_rescheduled(self._leave)
        return found

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        """All that wait are cancelled together."""
        self._waiting.clear()
        return trio.lowlevel.Abort.SUCCEEDED


async def attend(attended: Attended) -> None:
    """In the present task, for as long as it needs one."""
    with trio.CancelScope() as scope:
        await attended.attend(scope)
    if scope.cancelled_caught:
        await attended.given_up()
