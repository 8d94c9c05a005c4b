"""A store that is away for a while: whether it is worth waiting for, for how long, and what the log is told of that."""

from __future__ import annotations

import logging
import random
from typing import Final

from topics.calls.patience import Patience
from topics.calls.trouble import Trouble, Unreachable
from topics.kernel.errors import Code, Rejected, TopicsError

_ATTEMPTS_COUNTED: Final = 10
_PATIENCE: Final = Patience()
_PASSES: Final = frozenset({Code.THROTTLED, Code.NOT_READY, Code.DISK_LOW, Code.REQUEST_TIMEOUT})
_RESTARTS: Final = frozenset({Code.SHUTTING_DOWN, Code.STORAGE_READ_ONLY})
_chance: Final = random.random


class Absence:
    """Failures in a row of what is at `where`, told to the log `name`."""

    def __init__(self, where: str, name: str) -> None:
        self._where = where
        self._log = logging.getLogger(name)
        self._failures = 0

    def pause_s(self, error: TopicsError, *, is_remote: bool) -> float:
        """How long to wait behind this one. Raises it if no patience helps."""
        if not passes(error, is_remote=is_remote):
            raise error
        self._failures += 1
        if self._failures == 1:
            self._log.warning("%s; trying again until it is there", error.message)
        return pause_s(self._failures, _chance())

    def ended(self) -> None:
        if self._failures:
            self._log.warning("%s is there again", self._where)
        self._failures = 0


def passes(error: TopicsError, *, is_remote: bool) -> bool:
    """Whether the same call may do later. A server is started again by somebody; a store in this process is not."""
    if isinstance(error, Unreachable):
        return error.reason not in (Trouble.TLS, Trouble.NOT_TOPICS)
    if not isinstance(error, Rejected):
        return False
    return error.code in _PASSES or (is_remote and error.code in _RESTARTS)


def pause_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row, in seconds: as a client waits. `chance` in [0, 1)."""
    attempts = min(failures, _ATTEMPTS_COUNTED)
    wait_s = _PATIENCE.wait_s(attempts, elapsed_s=0, retry_after_s=0, known=True, chance=chance)
    assert wait_s is not None
    return wait_s
