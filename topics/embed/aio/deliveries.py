"""How long what is waited for takes from its write until what is sent of it is made."""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.engine import Engine
from topics.log.reads.diff import DiffPlan


class Deliveries:
    """`observe`: is told of each, in seconds; of those who share a page, of the first."""

    def __init__(self, engine: Engine, observe: Callable[[float], None] | None) -> None:
        self._engine = engine
        self._observe = observe
        self._last: DiffPlan | None = None

    def made(self, plan: DiffPlan) -> None:
        """A page that was waited for."""
        if self._observe is None or plan is self._last:
            return
        self._last = plan
        topic = self._engine.catalog.find(plan.topic)
        if topic is not None and topic.last_write_ts:  # it may be gone since
            self._observe((self._engine.now_ms() - topic.last_write_ts) / 1000)
