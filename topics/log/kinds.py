"""The types of topics: what each does beyond keeping records.

Every topic is a log, so what is said of a log holds for all. A type adds frames of its own, what folding them gives,
and what must hold of that. A topic's type never changes. What a type must never know: other topics, tickets, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from topics.codec.log.control import Control
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicType
from topics.kernel.errors import invalid
from topics.log.facts import Fact
from topics.log.topic import Topic


class Kind:
    """A log, which adds nothing; the other types begin from it. `facts`: what it remembers of records, in fields of
    `TopicImage` that a log leaves empty.
    """

    facts: ClassVar[tuple[Fact, ...]] = ()

    def check_records(self, topic: Topic, records: RecordColumns) -> None:
        """Raises `Rejected` for what no record of such a topic has."""
        for field, column in (("priority", records.priority), ("delay_ms", records.delay_ms)):
            if column is not None and any(value is not None for value in column):
                raise invalid(field, f"topic {topic.name!r} is a log; only a queue takes {field}")

    def check(self, topic: Topic) -> None:
        """Assert what must hold of the type's own between any two calls (`engine.verify`)."""

    def fold(self, topic: Topic, item: Control) -> None:
        """A frame that only this type has. As all of `log.fold`: it cannot fail, and now is the frame's ts."""
        raise AssertionError(f"topic {topic.name!r}: no rule for {item.payload!r}")


class JobQueue(Kind):
    """One that an earlier build has made: it hands out nothing yet, and keeps what its records say of jobs."""

    def check_records(self, topic: Topic, records: RecordColumns) -> None: ...


_KINDS: Final[Mapping[TopicType, Kind]] = {TopicType.LOG: Kind(), TopicType.QUEUE: JobQueue()}


def kind_of(topic: Topic) -> Kind:
    return _KINDS[topic.config.type]
