"""Readers who wait for news of a topic: woken once a change, all together (architecture 6)."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from topics.log.waiting import FOR_READERS, News


class _Waiting:
    """The readers of one topic until its next news."""

    __slots__ = ("event", "readers")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.readers = 0


class Hub:
    """Who waits for which topic. The engine's news come in, waiting tasks go on."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self.readers = 0

    async def wait(self, topic: str) -> None:
        """Until a record of the topic is published, or it is deleted."""
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

    def tell(self, news: Mapping[str, News]) -> None:
        for topic, kinds in news.items():
            if topic in self._waiting and kinds & FOR_READERS:
                self._waiting.pop(topic).event.set()

    def tell_all(self) -> None:
        """The server drains: nobody waits any longer."""
        for waiting in self._waiting.values():
            waiting.event.set()
        self._waiting.clear()

    @property
    def topics(self) -> int:
        return len(self._waiting)
