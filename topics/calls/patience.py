"""When to try again: a policy without a clock of its own.

A call is repeated after a lost connection, a 429 or a 503, with a wait that doubles, is spread by chance, and is at
least what `Retry-After` asks. It ends after so many attempts, or when the next one would begin after the bound in time.
As long as a server has never answered, nobody may be there at all, and the bound is `reach_ms`; one that has answered
before is being restarted, and worth `total_ms`. Who goes on by himself, as workers and watches do, waits without end:
that is an `Absence`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from topics.calls.trouble import passes
from topics.kernel.errors import TopicsError

_DOUBLINGS_MAX: Final = 16
_ATTEMPTS_COUNTED: Final = 10


@attrs.frozen(kw_only=True)
class Patience:
    """Bounds of one call with all its attempts."""

    reach_ms: int = 2000
    total_ms: int = 30_000
    attempts_max: int = 64
    first_ms: int = 50
    longest_ms: int = 1000

    def wait_s(
        self, attempts: int, *, elapsed_s: float, retry_after_s: float, known: bool, chance: float
    ) -> float | None:
        """How long to wait after that many attempts; None to give up. `chance` in [0, 1)."""
        assert attempts >= 1
        if attempts >= self.attempts_max:
            return None
        doubled = self.first_ms * 2 ** min(attempts - 1, _DOUBLINGS_MAX)
        backoff_s = min(doubled, self.longest_ms) / 1000 * (0.5 + chance / 2)
        wait_s = max(backoff_s, retry_after_s)
        bound_s = (self.total_ms if known else self.reach_ms) / 1000
        return wait_s if elapsed_s + wait_s <= bound_s else None


@attrs.frozen(kw_only=True)
class Pace:
    """Time and chance, as the operating system has them. `sleep` blocks, or gives what is to be awaited."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None] | None] = time.sleep
    chance: Callable[[], float] = random.random


def retry_after_s(value: str | None) -> float:
    """The header in seconds; 0 if it is missing or a date (ours never sends one)."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 9:
        return 0.0
    return float(value)


class Absence:
    """Failures in a row of what is at `where`, told to the log `name`."""

    def __init__(self, where: str, name: str) -> None:
        self._where = where
        self._log = logging.getLogger(name)
        self._chance = Pace().chance
        self._failures = 0

    def pause_s(self, error: TopicsError, *, is_remote: bool) -> float:
        """How long to wait behind this one. Raises it if no patience helps."""
        if not passes(error, is_remote=is_remote):
            raise error
        self.failed(error)
        return pause_s(self._failures, self._chance())

    def failed(self, error: TopicsError) -> None:
        """A call that failed is tried again. Only the first in a row is told: an hour away is one line."""
        self._failures += 1
        if self._failures == 1:
            self._log.warning("%s; trying again until it is there", error.message)

    def ended(self) -> None:
        if self._failures:
            self._log.warning("%s is there again", self._where)
        self._failures = 0


def pause_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row, in seconds: as a client waits. `chance` in [0, 1)."""
    attempts = min(failures, _ATTEMPTS_COUNTED)
    wait_s = Patience().wait_s(attempts, elapsed_s=0, retry_after_s=0, known=True, chance=chance)
    assert wait_s is not None
    return wait_s
