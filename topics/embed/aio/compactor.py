"""Checkpoints and other background work: a task carries out the steps, the blocking ones in a thread."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from topics.embed.aio.events import EventLog
from topics.embed.aio.thread import Threads
from topics.engine.commands import Command
from topics.engine.recovery.recover import DamageReport
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.reclaim import Reclaimer
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps, Swap, WaitForBatch
from topics.kernel.errors import Fatal, Rejected
from topics.store.background import LOOK_S, BackgroundWork
from topics.store.steps import drive_async


class Submit(Protocol):
    """Propose a command, and wait for its reply."""

    def __call__(self, command: Command, *, sync: bool = False) -> Awaitable[object]: ...


class CompactorTask:
    """`submit`: propose and wait. `go_on`: batches are given out again, so shards with work are rung. `damages`: what
    background work has found damaged.

    `ended` is set by the runtime whenever a batch has ended.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        threads: Threads,
        submit: Submit,
        go_on: Callable[[], None],
        damages: Callable[[], Sequence[DamageReport]],
        log: EventLog,
    ) -> None:
        self.ended: trio.Event | None = None
        self._checkpointer = checkpointer
        self._work = BackgroundWork(checkpointer)
        self._threads = threads
        self._submit = submit
        self._go_on = go_on
        self._damages = damages
        self._log = log
        self._told: set[object] = set()
        self._turn = trio.Lock()
        self._cold_failure: str | None = None

    @property
    def failures(self) -> int:
        """In a row, since the last whole round."""
        return self._work.failures

    @property
    def reclaimer(self) -> Reclaimer:
        """What gives space back, and counts it."""
        return self._checkpointer.reclaimer

    @property
    def rounds(self) -> int:
        """Checkpoints taken since the start."""
        return self._checkpointer.rounds

    @property
    def log_bytes(self) -> int:
        """Of all files of the log."""
        return self._checkpointer.log_bytes

    @property
    def number(self) -> int:
        """Of the newest snapshot; 0 if there is none."""
        return self._checkpointer.kept[0].number if self._checkpointer.kept else 0

    async def run(self) -> None:
        """Whatever is due, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            await trio.sleep(await self.attempt(self._checkpointer.due))

    async def keep_state(self) -> None:
        """At the end of the store: a snapshot of what was written since the last one. Without it nothing is lost."""
        before = self.number
        await self.attempt(self._checkpointer.closing)
        if self.number != before:
            self._log.info("snapshot.kept", number=self.number)

    async def attempt(self, choose: Callable[[], Steps | None]) -> float:
        """As `carry_out`; what goes wrong is logged. Returns for how many seconds the next had better wait."""
        rest_s = 0.0
        try:
            await self.carry_out(choose)
        except Rejected as refused:
            rest_s = self._work.rest_after(refused)
            self._log.warning("checkpoint.refused", code=refused.code.value, message=refused.message)
        except Fatal as error:
            rest_s = self._work.rest_after(error)
            self._log.error("checkpoint.failed", error=error.message, again_s=rest_s)
        self._tell_of_cold()
        self._tell_of_damage()
        return rest_s

    def _tell_of_damage(self) -> None:
        """Each once; again if it comes back."""
        found = {(damage.file, damage.offset): damage for damage in self._damages()}
        for place, damage in found.items():
            if place not in self._told:
                self._log.error("log.damaged" if damage.in_log else "segment.damaged", damage=str(damage))
        self._told = set(found)

    def _tell_of_cold(self) -> None:
        """Once when the cold store begins to fail, and once when it is well again. What cannot move stays hot."""
        relocator = self._checkpointer.relocator
        why = None if relocator is None else relocator.failed
        if why == self._cold_failure:
            return
        self._cold_failure = why
        if why is None:
            self._log.info("cold.works")
        else:
            self._log.warning("cold.failing", why=why)

    async def checkpoint(self) -> None:
        """One whole round, as `carry_out`."""
        await self.carry_out(self._checkpointer.round)

    async def carry_out(self, choose: Callable[[], Steps | None]) -> bool:
        """As `BackgroundWork.work`, when it is this work's turn."""
        async with self._turn:
            started, rounds = time.monotonic(), self.rounds
            try:
                has_worked = await drive_async(self._work.work(choose), self._do)
            finally:
                self.ended = None
                self._go_on()  # batches are given out again, whatever happened
            if self.rounds != rounds:
                took_s = time.monotonic() - started
                self._log.info("checkpoint.taken", took_ms=round(took_s * 1000), number=self.number)
            return has_worked

    async def _do(self, step: Step) -> None:
        match step:
            case Blocking(call):
                await self._threads.run(call)
            case Swap(call):
                call()
            case Propose(command, sync):
                await self._submit(command, sync=sync)
            case WaitForBatch():
                self.ended = trio.Event()
                await self.ended.wait()
            case _:
                self._go_on()
