"""What a command has printed, for durable consumers: they have read it.

It is committed behind the output, so whatever ends the command, what was not printed is not read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from topics.log.floors import Gap

if TYPE_CHECKING:
    from topics.calls.blocking import Topic
    from topics.cli.io.lines import Item

UNCOMMITTED_MAX: Final = 1000


class Consumed:
    """`consumer`: its name, in each of the topics; None if nothing is to be committed. `positions`: where they stand.

    Raises:
        Rejected: topic_not_found, consumer_not_found.
    """

    def __init__(self, topics: Sequence[Topic], consumer: str | None) -> None:
        self._consumers = (
            {} if consumer is None else {topic.name: topic.consumer(consumer) for topic in topics}
        )
        self.positions = {name: one.position() for name, one in self._consumers.items()}
        self._printed: dict[str, int] = {}
        self._count = 0

    def printed(self, topic: str, item: Item) -> None:
        """It is on its way to the output."""
        self.passed(topic, item.gap_to if isinstance(item, Gap) else item.seq)
        self._count += 1
        if self._count >= UNCOMMITTED_MAX:
            self.commit()

    def passed(self, topic: str, seq: int) -> None:
        """All that is to be printed up to there is."""
        if topic in self._consumers:
            self._printed[topic] = seq

    def commit(self) -> None:
        """Get the output out, and say what is read.

        Raises:
            Rejected: consumer_not_found, if it was deleted, or its topic was created again.
        """
        sys.stdout.flush()
        self._count = 0
        for name, seq in self._printed.items():
            self._consumers[name].commit(seq, self.positions[name].epoch)
        self._printed.clear()
