"""The feed of a `Watch` in this process: calls on the store, and waits for the next news of any topic."""

from __future__ import annotations

import math
import threading
from typing import Any

from topics.calls.blocking import TopicStore
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rounds import Rounds, Wait
from topics.calls.watching.rules import Asked
from topics.embed.readers import Driver, wait_for_news


class RoundsFeed:
    """`Feed` of a store."""

    def __init__(self, asked: Asked, store: TopicStore, local: Driver) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = Rounds(self.cursors, asked).steps()
        self._store = store
        self._local = local
        self._event = threading.Event()
        self._is_cut = False

    def answer(self, step: Any) -> Any:
        if not isinstance(step, Wait):
            return self._store.do(step)
        self._event.clear()
        if not self._is_cut:
            asked = [read.query(self._store.limits) for read in step.reads]
            wait_for_news(self._local, asked, math.inf, self._event)
        return None

    def cut(self) -> None:
        self._is_cut = True
        self._event.set()

    def close(self) -> None:
        """It holds nothing."""
