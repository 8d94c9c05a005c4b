"""How long what is waited for takes from its write until what is sent of it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from topics.engine.engine import Engine
from topics.kernel.errors import Rejected
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
        with suppress(Rejected):  # the topic may be gone since
            last_write_ts = self._engine.topic_state(plan.topic).last_write_ts
            if last_write_ts is not None:
                self._observe((self._engine.now_ms() - last_write_ts) / 1000)
