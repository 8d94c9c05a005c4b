"""Threads that wait for news of a topic, woken by whoever publishes them: nobody looks again and again.

While nobody waits, publishing costs one look into an empty dict.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from topics.embed.lock import Reentered
from topics.engine.engine import Engine
from topics.log.reads.diff import DiffQuery
from topics.log.reads.waiting import FOR_READERS, FOR_STRICT_READERS, News, waits_on


class ReadersDriver(Protocol):
    """What a waiting reader asks of the engine's driver."""

    @property
    def engine(self) -> Engine: ...
    @property
    def lock(self) -> AbstractContextManager[object]: ...
    @property
    def readers(self) -> Readers: ...
    @property
    def is_inside(self) -> bool: ...
    def check_open(self) -> None: ...


class Readers:
    """Who waits for which topic; `strict`, for what is durable of it. Under the engine's lock."""

    def __init__(self) -> None:
        self.waiting: dict[str, set[threading.Event]] = {}
        self.strict: dict[str, set[threading.Event]] = {}

    def tell(self, news: Mapping[str, News]) -> None:
        for topic, kinds in news.items():
            if topic in self.waiting and kinds & FOR_READERS:
                _wake(self.waiting[topic])
            if topic in self.strict and kinds & FOR_STRICT_READERS:
                _wake(self.strict[topic])

    def tell_all(self) -> None:
        """The store ends: nobody waits any longer."""
        for events in (*self.waiting.values(), *self.strict.values()):
            _wake(events)

    def add(self, query: DiffQuery, event: threading.Event) -> None:
        """Who asks for that is woken by news of it."""
        self._table(query).setdefault(query.topic, set()).add(event)

    def discard(self, query: DiffQuery, event: threading.Event) -> None:
        table = self._table(query)
        events = table[query.topic]
        events.discard(event)
        if not events:
            del table[query.topic]

    def _table(self, query: DiffQuery) -> dict[str, set[threading.Event]]:
        return self.strict if query.durable_only else self.waiting


def _wake(events: Iterable[threading.Event]) -> None:
    for event in events:
        event.set()


def wait_for_news(
    local: ReadersDriver, asked: Sequence[DiffQuery], until_s: float, event: threading.Event | None = None
) -> bool:
    """Until one of these would give something. False if the time (monotonic) is over before. `event`: ends it, too.

    Raises:
        Rejected: topic_not_found; shutting_down if the store is closed before or meanwhile.
    """
    if local.is_inside:
        raise Reentered
    event = event or threading.Event()
    with local.lock:
        local.check_open()
        if not all(waits_on(local.engine.plan_diff(query.limited(0))) for query in asked):
            return True
        for query in asked:
            local.readers.add(query, event)
    try:
        is_told = event.wait(None if until_s == math.inf else max(until_s - time.monotonic(), 0))
    finally:
        with local.lock:
            for query in asked:
                local.readers.discard(query, event)
    local.check_open()
    return is_told
