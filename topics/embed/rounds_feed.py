"""The feed of a `Watch` in this process: calls on the store, and waits for the next news of any topic."""

from __future__ import annotations

import math
import threading
from typing import Any, Protocol

import msgspec

from topics.calls.call import Call
from topics.calls.page import Page
from topics.calls.records import ReadCall
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rounds import Rounds, WaitForNews
from topics.calls.watching.rules import Asked
from topics.embed.readers import ReadersDriver, wait_for_news
from topics.kernel.limits import Limits
from topics.log.reads.diff import DiffQuery


class ReadingStore(Protocol):
    """What is asked of a store."""

    limits: Limits

    def do(self, steps: Call[Any]) -> Any: ...

    def read(self, query: DiffQuery, *, account: bool) -> Page: ...


class RoundsFeed:
    """`Feed` of a store."""

    def __init__(self, asked: Asked, store: ReadingStore, local: ReadersDriver) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = Rounds(self.cursors, asked).steps()
        self._store = store
        self._local = local
        self._is_strong = asked.is_strong
        self._event = threading.Event()
        self._is_cut = False

    def answer(self, step: Any) -> Any:
        if isinstance(step, ReadCall):
            return self._store.read(self._query(step), account=False)
        if not isinstance(step, WaitForNews):
            return self._store.do(step)
        self._event.clear()
        if not self._is_cut:
            wait_for_news(self._local, list(map(self._query, step.reads)), math.inf, self._event)
        return None

    def _query(self, read: ReadCall) -> DiffQuery:
        return msgspec.structs.replace(read.query(self._store.limits), durable_only=self._is_strong)

    def cut(self) -> None:
        self._is_cut = True
        self._event.set()

    def close(self) -> None:
        """It holds nothing."""
