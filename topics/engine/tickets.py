"""A proposed command on its way to its reply (architecture 2).

It waits for its turn (behind a barrier, or for the end of another ticket that does what it asks), is pending once it is
in frames, and done when it is answered. What waits can be withdrawn, and then never happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from topics.engine.commands import Command
from topics.engine.replies import Reply
from topics.kernel.errors import TopicsError


class Stage(Enum):
    NEW = "new"
    PENDING = "pending"
    WAITING = "waiting"
    DONE = "done"
    WITHDRAWN = "withdrawn"

    __hash__ = object.__hash__  # a member is itself only; Enum's own goes by its name, in Python


DONE: Final = Stage.DONE  # a member of a class of them is looked up slowly, and each command asks often
TRANSITIONS: Final = {
    Stage.NEW: {Stage.PENDING, Stage.WAITING, Stage.DONE},
    Stage.PENDING: {Stage.DONE},
    Stage.WAITING: {Stage.NEW, Stage.DONE, Stage.WITHDRAWN},
    Stage.DONE: set(),
    Stage.WITHDRAWN: set(),
}


class Ticket(msgspec.Struct, eq=False):
    """`waiter` is the driver's, who calls it once when the ticket has finished. `created`: the topic was made for this
    command. `head_checked`: its `expected_head` held when it was first proposed, and is not looked at again.
    `firing`: the schedule that it is of. `line`: where it was last parked. `asks_room`: refused disk_low, it is given
    room and proposed again.
    """

    command: Command
    sync: bool = False
    asks_room: bool = False
    stage: Stage = Stage.NEW
    reply: Reply | None = None
    error: TopicsError | None = None
    created: bool = False
    head_checked: bool = False
    firing: int = 0
    line: deque[Ticket] | None = None
    waiter: Callable[[], object] | None = None

    @property
    def done(self) -> bool:
        return self.stage is DONE

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
