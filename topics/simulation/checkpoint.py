"""Background work in a simulation: at once, or a step now and a step then, with anything in between."""

from __future__ import annotations

import random
from collections.abc import Callable

from topics.engine.commands import Command
from topics.engine.tickets import Ticket
from topics.host.checkpoint.blocked_topics import CheckpointIncomplete
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Blocking, Propose, Step, Steps, Swap, Wait
from topics.simulation.backups import Backups
from topics.store.inline import carry_out
from topics.store.opened import Opened

_BACKUP = 0.2


def take_checkpoint(checkpointer: Checkpointer, drain: Callable[[], None]) -> None:
    """All of a round. Raises what its steps raise."""
    carry_out(checkpointer.engine, checkpointer.round(), drain)


class WorkWalk:
    """One work under way. `propose` gives the ticket of a command, None if it is refused."""

    def __init__(self, steps: Steps, propose: Callable[[Command], Ticket | None]) -> None:
        self._steps = steps
        self._propose = propose
        self._step: Step | None = None
        self._ticket: Ticket | None = None
        self.done = False

    def advance(self) -> str:
        """Go on by a step; says which. Raises what the step raises, and with it the work is over."""
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
            ticket, self._ticket = self._ticket, None
            ticket.result()
        try:
            step = next(self._steps, None)
        except CheckpointIncomplete as left:
            self.done = True
            return f"leaves something out: {left.message}"
        match step:
            case None:
                self.done = True
                return "ends"
            case Blocking(call):
                call()
                return "works on the disk"
            case Swap(call):
                call()
                return "swaps"
            case Propose(command):
                self._ticket = self._propose(command)
                self.done = self._ticket is None
                if self.done:
                    self._steps.close()
                return f"proposes {command!r:.120}"
            case _:
                return "waits" if isinstance(step, Wait) else "goes on"


def begin_walk(
    opened: Opened | None,
    propose: Callable[[Command], Ticket | None],
    rng: random.Random,
    backups: Backups,
) -> WorkWalk:
    """Some background work of an open store, or of a backup of it."""
    assert opened is not None
    assert opened.checkpointer is not None
    if rng.random() < _BACKUP:
        return WorkWalk(backups.work(opened.checkpointer), propose)
    return WorkWalk(choose_work(opened.checkpointer, rng), propose)


def choose_work(checkpointer: Checkpointer, rng: random.Random) -> Steps:
    """A round, or a slice of what is done between rounds if there is any."""
    steps = checkpointer.between() if rng.random() < 0.5 else None
    return checkpointer.round() if steps is None else steps
