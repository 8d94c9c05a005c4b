"""Readers who wait for news of a topic: woken once a change, all together (architecture 6)."""

from __future__ import annotations

from collections.abc import Iterable

import trio


class _Waiting:
    """The readers of one topic until its next news."""

    __slots__ = ("event", "readers")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.readers = 0


class Hub:
    """Who waits for which topic. The engine's dirty topics come in, waiting tasks go on."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self.readers = 0

    async def wait(self, topic: str) -> None:
        """Until something of the topic is published, deleted or retired."""
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = _Waiting()
        waiting.readers += 1
        self.readers += 1
        try:
            await waiting.event.wait()
        finally:
            waiting.readers -= 1
            self.readers -= 1
            if waiting.readers == 0 and self._waiting.get(topic) is waiting:
                del self._waiting[topic]

    def tell(self, topics: Iterable[str]) -> None:
        for topic in topics:
            waiting = self._waiting.pop(topic, None)
            if waiting is not None:
                waiting.event.set()

    def tell_all(self) -> None:
        """The server drains: nobody waits any longer."""
        self.tell(list(self._waiting))

    @property
    def topics(self) -> int:
        return len(self._waiting)
