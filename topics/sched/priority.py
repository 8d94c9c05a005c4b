"""A topic's effective priority: as configured, or by how lately it was read; and what waiting adds (semantics 10)."""

from __future__ import annotations

from math import exp, log
from typing import Final

from topics.kernel.config import TopicConfig

PRIORITY_MAX: Final = 1000  # either way
RECENCY_MAX: Final = 500
HALF_LIFE_MS: Final = 30_000  # in which recency falls by half
FORGOTTEN_MS: Final = 300_000  # from then on it is nothing
AGE_STEP_US: Final = 10_000  # of waiting, for each of which it is one more
AGE_MAX: Final = 1000


def priority_of(config: TopicConfig, *, read_ms: int, now_ms: int) -> int:
    """Without age. `read_ms`: when it was last read, 0 for never."""
    if config.priority is not None:
        return min(max(config.priority, -PRIORITY_MAX), PRIORITY_MAX)
    if not config.auto_priority or not read_ms:
        return 0
    return recency(now_ms - read_ms)


def recency(since_ms: int) -> int:
    """What having been read so long ago is worth. A clock that was set back says just now."""
    if since_ms >= FORGOTTEN_MS:
        return 0
    return round(RECENCY_MAX * exp(-log(2) * max(since_ms, 0) / HALF_LIFE_MS))


def age_boost(waited_us: int) -> int:
    """What having waited so long is worth."""
    assert waited_us >= 0
    return min(waited_us // AGE_STEP_US, AGE_MAX)
