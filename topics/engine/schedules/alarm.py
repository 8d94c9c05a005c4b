"""What is known of a schedule beyond what the log says: which instant is fired next. A start makes it anew."""

from __future__ import annotations

from topics.engine.tickets import Ticket


class Alarm:
    """The next instant of a schedule, None if there is none; it is due at `due_ms`. Up to `owed_ms` instants are fired
    however late it is. `skipped`: the first and the last of those that are passed over before it. `failures`: in a row.
    """

    __slots__ = ("due_ms", "failures", "instant_ms", "owed_ms", "skipped", "ticket", "topic_id")

    def __init__(self, topic_id: int) -> None:
        self.topic_id = topic_id
        self.instant_ms: int | None = None
        self.due_ms = 0
        self.owed_ms = 0
        self.skipped: tuple[int, int] | None = None
        self.failures = 0
        self.ticket: Ticket | None = None
