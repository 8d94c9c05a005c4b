"""What a driver is asked to move, and what is known of a topic that records go to. Values, and no policy."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from topics.kernel.limits import MOVES_INTO_TOPIC_MAX
from topics.log.topic import Move


class MoveOrder(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Records of one topic that are to be appended to `dest`: the driver reads them, proposes the append (`append_of`)
    and tells the engine what came of it. `moves`: by seq, ascending.
    """

    topic: str
    topic_id: int
    epoch: int
    dest: str
    moves: Mapping[int, Move]


class MovesInto:
    """Moves into one topic, by its name: it may be missing, or another one soon. One order is out at a time.

    `sources`: ids of the topics they come from, who is next first. `reserved`: records whose intents are in flight.
    `after_ts`: what follows has to be later, so that a restore to a moment keeps no half of a move without the one
    before it. `together`: so many records an order. `failures`: in a row. `due_ms`: when to go on, of `timer_ms`.
    """

    __slots__ = (
        "after_ts", "dest", "due_ms", "failures", "is_appended", "is_ending", "order", "reserved", "sources",
        "together",
    )  # fmt: skip

    def __init__(self, dest: str) -> None:
        self.dest = dest
        self.sources: dict[int, None] = {}
        self.reserved = 0
        self.after_ts = 0
        self.together = MOVES_INTO_TOPIC_MAX
        self.failures = 0
        self.due_ms: int | None = None
        self.order: MoveOrder | None = None
        self.is_appended = False  # the order's records are there, synced
        self.is_ending = False  # and the frame that says so is in flight

    def put_back(self) -> None:
        """No order is out."""
        self.order, self.is_appended, self.is_ending = None, False, False
