"""Background work in a simulation: at once, or a step now and a step then, with anything in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.engine.commands import Command
from topics.engine.tickets import Ticket
from topics.host.checkpoint.blocked_topics import CheckpointIncomplete
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps, Swap, WaitForBatch
from topics.kernel.errors import Fatal, Rejected, TopicsError
from topics.simulation.background.backups import Backups
from topics.store.opened import Opened
from topics.store.orders import next_order

_BACKUP = 0.2


class Ask(Protocol):
    """Propose a command. Raises what refuses it."""

    def __call__(self, command: Command, *, sync: bool = False) -> Ticket: ...


class WorkWalk:
    """One work under way. What a step raises is raised in the work, as by every driver."""

    def __init__(self, steps: Steps, propose: Ask) -> None:
        self._steps = steps
        self._propose = propose
        self._ticket: Ticket | None = None
        self._failed: Exception | None = None
        self.done = False

    def advance(self) -> str:
        """Go on by a step; says which. Raises what the work raises, and with it the work is over."""
        try:
            return self._advance()
        except BaseException:
            self.done = True
            self._steps.close()
            raise

    def _advance(self) -> str:
        if self._ticket is not None:
            if not self._ticket.done:
                return "waits for a batch"
            self._failed, self._ticket = self._ticket.error, None
        failed, self._failed = self._failed, None
        try:
            step = next(self._steps) if failed is None else self._steps.throw(failed)
        except StopIteration:
            self.done = True
            return "ends"
        except CheckpointIncomplete as left:
            self.done = True
            return f"leaves something out: {left.message}"
        try:
            return self._do(step)
        except (OSError, TopicsError) as error:
            self._failed = error
            return f"fails: {error}"

    def _do(self, step: Step) -> str:
        match step:
            case Blocking(call):
                call()
                return "works on the disk"
            case Swap(call):
                call()
                return "swaps"
            case Propose(command, sync):
                self._ticket = self._propose(command, sync=sync)
                return f"proposes {command!r:.120}"
            case _:
                return "waits" if isinstance(step, WaitForBatch) else "goes on"


class Works:
    """What a store does beside its writes, a step of something at a time: background work, backups of it, moves."""

    def __init__(
        self, propose: Ask, rng: random.Random, note: Callable[[str], None], counts: Counter[str]
    ) -> None:
        self.backups = Backups()
        self._propose, self._random, self._note, self._counts = propose, rng, note, counts
        self._walk: WorkWalk | None = None
        self._moves: list[WorkWalk] = []

    def take_orders(self, opened: Opened) -> None:
        """What is to be moved, or brought over by routers, from now on."""
        while (steps := next_order(opened.engine, opened.reader.read)) is not None:
            self._counts["orders"] += 1
            self._moves.append(WorkWalk(steps, self._propose))

    def advance(self, opened: Opened) -> None:
        """A step. What fails is begun anew later."""
        self._moves = [walk for walk in self._moves if not walk.done]
        walk = self._random.choice(self._moves) if self._moves and self._random.random() < 0.5 else None
        walk = walk or self._background(opened)
        try:
            self._note(f"works: {walk.advance()}")
        except (OSError, Rejected, Fatal) as error:
            self._note(f"work failed: {error}")
        self._counts["works ended"] += walk.done

    def end(self, opened: Opened | None) -> None:
        """The process has ended. Counts what became of the store's background work."""
        if opened is not None and opened.checkpointer is not None:
            self._counts["checkpoints"] += opened.checkpointer.rounds
            self._counts["rewrites"] += opened.checkpointer.reclaimer.rewrites
        self._walk, self._moves = None, []
        self.backups.forget()

    def _background(self, opened: Opened) -> WorkWalk:
        """Some background work of an open store, or of a backup of it."""
        assert opened.checkpointer is not None
        if self._walk is None or self._walk.done:
            is_backup = self._random.random() < _BACKUP
            choose = self.backups.work if is_backup else partial(choose_work, rng=self._random)
            self._walk = WorkWalk(choose(opened.checkpointer), self._propose)
            self._counts["works begun"] += 1
        return self._walk


def choose_work(checkpointer: Checkpointer, rng: random.Random) -> Steps:
    """A round, or a slice of what is done between rounds if there is any."""
    steps = checkpointer.between() if rng.random() < 0.5 else None
    return checkpointer.round() if steps is None else steps
