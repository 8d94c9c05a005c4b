"""Tasks for connections that keep none: who has served one serves the next (decision 130).

A connection at rest has no task. To start one for each request would cost twice as much as to wake one, so a few wait
here for the next connection that has something to serve. Each has a cancel scope, which is lent to whom it serves.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import outcome
import trio

WAITING_MAX: Final = 64  # tasks that wait for something to do


class Attended(Protocol):
    """Who is served for a while."""

    async def attend(self, scope: trio.CancelScope) -> None:
        """Until it rests, or has ended. The scope is its own meanwhile: to set its deadline, or to cancel it."""
        ...


class TaskPool:
    """Of one port. They end with the nursery. `failed`: told of a bug in who is served, which ends nobody else."""

    def __init__(self, nursery: trio.Nursery, failed: Callable[[Exception], object]) -> None:
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
        return None if len(self._waiting) >= WAITING_MAX else await self._next()

    async def _next(self) -> Attended:
        self._waiting.append(trio.lowlevel.current_task())
        found: Attended = await trio.lowlevel.wait_task_rescheduled(self._leave)
        return found

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        """All that wait are cancelled together."""
        self._waiting.clear()
        return trio.lowlevel.Abort.SUCCEEDED


class ConnectionTasks:
    """The tasks of one connection, which end together. `start`: has one served, as `TaskPool.start`; `failed`: told of
    a bug in one.
    """

    __slots__ = ("_ended", "_failed", "_running", "_scopes", "_start", "is_cancelled")

    def __init__(self, start: Callable[[Attended], None], failed: Callable[[Exception], None]) -> None:
        self._start = start
        self._failed = failed
        self._running = 0
        self._scopes: list[trio.CancelScope] = []
        self._ended: Callable[[], None] | None = None
        self.is_cancelled = False

    def start(self, task: Callable[[], Awaitable[object]]) -> None:
        """Have it run, soon. Behind `cancel` it is cancelled from its beginning."""
        self._running += 1
        self._start(_ConnectionTask(self, task))

    def cancel(self, ended: Callable[[], None]) -> None:
        """All of them. `ended`: called once, when none is left. Raises nothing."""
        self.is_cancelled = True
        self._ended = ended
        for scope in self._scopes:
            scope.cancel()
        self._tell_ended()

    async def run(self, task: Callable[[], Awaitable[object]], scope: trio.CancelScope) -> None:
        self._scopes.append(scope)
        if self.is_cancelled:
            scope.cancel()
        try:
            await task()
        except trio.BrokenResourceError:
            pass  # nobody takes any more what it makes
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            self._failed(bug)
        finally:
            self._scopes.remove(scope)
            self._running -= 1
            self._tell_ended()

    def _tell_ended(self) -> None:
        if self._running == 0 and self._ended is not None:
            ended, self._ended = self._ended, None
            ended()


class _ConnectionTask:
    """One of them, as who is attended."""

    __slots__ = ("_task", "_tasks")

    def __init__(self, tasks: ConnectionTasks, task: Callable[[], Awaitable[object]]) -> None:
        self._tasks = tasks
        self._task = task

    async def attend(self, scope: trio.CancelScope) -> None:
        await self._tasks.run(self._task, scope)
