"""One seed, one order of tasks: Trio run with a seeded scheduler on a clock that jumps to whatever is due next.

Trio shuffles the tasks that are ready, so that nobody relies on an order. What it draws from is private, and so is the
switch that makes the order repeat; both are touched here and nowhere else. A contract test holds them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from topics.simulation.oracle import PromiseBroken
from topics.testing.clock import ManualClock

T = TypeVar("T")


def run_seeded(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """`trio.run` in virtual time. Tasks run in an order of the seed, as long as no thread and no socket joins."""
    private = vars(trio_run)
    before = {name: private[name] for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING")}
    private.update(_r=random.Random(seed), _ALLOW_DETERMINISTIC_SCHEDULING=True)
    try:
        return trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        private.update(before)


def innermost(group: BaseExceptionGroup) -> BaseException:
    """The first error that is no group; a broken promise before any other."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += reversed(error.exceptions)
        else:
            leaves.append(error)
    first = next((leaf for leaf in leaves if isinstance(leaf, PromiseBroken)), leaves[0])
    for note in getattr(group, "__notes__", ()):
        first.add_note(note)
    return first


class LoopClock(ManualClock):
    """The engine's clock in a seeded run: it goes with the loop's time, and may be set besides."""

    __slots__ = ()

    def now_ms(self) -> int:
        return super().now_ms() + _passed_ms()

    def advance(self, ms: int) -> int:
        super().advance(ms)
        return self.now_ms()

    def set(self, now_ms: int) -> None:
        super().set(now_ms - _passed_ms())


def _passed_ms() -> int:
    return int(trio.current_time() * 1000) if trio.lowlevel.in_trio_run() else 0
