"""A proposed command on its way to its reply (architecture 2).

pending -> done, or riding (another ticket's end is awaited) -> done, or parked (behind a barrier) -> pending.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from topics.engine.commands import Command
from topics.engine.replies import Reply
from topics.kernel.errors import TopicsError


class Stage(Enum):
    NEW = "new"
    PENDING = "pending"
    RIDING = "riding"
    PARKED = "parked"
    DONE = "done"

    __hash__ = object.__hash__  # a member is itself only; Enum's own goes by its name, in Python


TRANSITIONS: Final = {
    Stage.NEW: {Stage.PENDING, Stage.RIDING, Stage.PARKED, Stage.DONE},
    Stage.PENDING: {Stage.DONE},
    Stage.RIDING: {Stage.NEW, Stage.DONE},
    Stage.PARKED: {Stage.NEW, Stage.DONE},
    Stage.DONE: set(),
}


class Ticket(msgspec.Struct, eq=False):
    """`waiter` belongs to the driver. `created`: the topic was made for this command. `head_checked`: its
    `expected_head` held when it was first proposed, and is not looked at again.
    """

    command: Command
    sync: bool = False
    stage: Stage = Stage.NEW
    reply: Reply | None = None
    error: TopicsError | None = None
    created: bool = False
    head_checked: bool = False
    waiter: object = None

    @property
    def done(self) -> bool:
        return self.stage is Stage.DONE

    def move(self, stage: Stage) -> None:
        assert stage in TRANSITIONS[self.stage], (self.stage, stage)
        self.stage = stage

    def result(self) -> Reply:
        """The reply of a done ticket, or its error raised."""
        assert self.done
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply
