"""A router on its way from topic to topic: the allocator's side of one, as a lane is of a topic (architecture 3.1).

What the log says of how far it has come is `Topic.inbound` of its dest. Here is what has been handed to the log, which
is that or more.
"""

from __future__ import annotations

from topics.engine.lane import Lane
from topics.engine.routers.orders import ForwardOrder
from topics.kernel.limits import FORWARD_RECORDS_MAX
from topics.log.routers import Router


class RunningRouter:
    """One router that stands.

    `cursor`: the log has, or gets, all up to this seq of the source. `sent`: so far it has been looked at; what is
    between the two goes nowhere, and the log need not hear of it yet. `durable`: so far dest's log was known to be
    synced when somebody last asked (`settling`). It is late while `sent` is behind the source's last assigned seq.
    `order` is out, of which `together` records are one; `failures`: in a row; `due_ms`: when to try again, of
    `timer_ms`.
    """

    __slots__ = (
        "cursor", "dest", "dest_topic", "due_ms", "durable", "failures", "order", "router", "sent", "source",
        "source_topic", "together",
    )  # fmt: skip

    def __init__(self, router: Router, source: Lane, dest: Lane) -> None:
        assert source.topic is not None
        assert dest.topic is not None
        self.router = router
        self.source, self.source_topic = source, source.topic
        self.dest, self.dest_topic = dest, dest.topic
        self.cursor = self.sent = self.durable = dest.topic.inbound[router.id].cursor
        self.order: ForwardOrder | None = None
        self.together = FORWARD_RECORDS_MAX
        self.failures = 0
        self.due_ms: int | None = None

    @property
    def dealt_seq(self) -> int:
        """The last seq of its source that it has dealt with, as published."""
        cursor = self.dest_topic.inbound[self.router.id].cursor
        if cursor == self.cursor:
            # Nothing is on its way, and of what it has passed over the log need not have heard.
            return min(self.sent, self.source_topic.head_seq)
        return cursor
