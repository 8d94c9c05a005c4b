"""A proposed command on its way to its reply (architecture 2).

pending -> done, or riding (another ticket's end is awaited) -> done, or parked (behind a barrier) -> pending.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

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


class Ticket:
    """`waiter` belongs to the driver. `created`: the topic was made for this command. `head_checked`: its
    `expected_head` held when it was first proposed, and is not looked at again. `answer`: what the good end of
    those it rides brings; None if it is then proposed again.
    """

    __slots__ = (
        "answer",
        "awaited",
        "command",
        "created",
        "error",
        "head_checked",
        "reply",
        "riders",
        "stage",
        "sync",
        "waiter",
    )

    def __init__(self, command: Command, *, sync: bool = False) -> None:
        self.command = command
        self.sync = sync
        self.stage = Stage.NEW
        self.reply: Reply | None = None
        self.error: TopicsError | None = None
        self.created = False
        self.head_checked = False
        self.riders: list[Ticket] = []
        self.awaited = 0
        self.answer: Callable[[], None] | None = None
        self.waiter: object = None

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
