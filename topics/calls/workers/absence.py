"""A store that is away for a while: how long to wait until it is asked again, and what the log is told of that."""

from __future__ import annotations

import logging
import random
from typing import Final

from topics.calls.workers.leases import passes, pause_s
from topics.kernel.errors import TopicsError

_chance: Final = random.random
_log: Final = logging.getLogger("topics.worker")


class Absence:
    """Failures in a row of what is at `where`."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._failures = 0

    def pause_s(self, error: TopicsError, *, is_remote: bool) -> float:
        """How long to wait behind this one. Raises it if no patience helps."""
        if not passes(error, is_remote=is_remote):
            raise error
        self._failures += 1
        if self._failures == 1:
            _log.warning("%s; trying again until it is there", error.message)
        return pause_s(self._failures, _chance())

    def ended(self) -> None:
        if self._failures:
            _log.warning("%s is there again", self._where)
        self._failures = 0
