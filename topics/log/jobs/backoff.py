"""How long a job rests after a delivery that failed (queues 1). Whole numbers only: a replay on another machine must
come to the same instant.
"""

from __future__ import annotations

from typing import Final

from topics.kernel.config import RetryBackoff

_STEPS_MAX: Final = (
    1000  # a factor so near to 1 that it has not reached `max_ms` by then counts as 1 from there on
)
_SCALE: Final = 1_000_000
_SPREAD: Final = 10  # per cent
_MIX: Final = 0x9E3779B97F4A7C15  # consecutive seqs lie far apart


def backoff_ms(backoff: RetryBackoff | None, deliveries: int, seq: int) -> int:
    """`min(max_ms, base_ms · factor^(deliveries - 1))`, ±10 % by the seq; 0 without a backoff."""
    if backoff is None:
        return 0
    rest, factor = backoff.base_ms * _SCALE, round(backoff.factor * _SCALE)
    for _ in range(min(deliveries - 1, _STEPS_MAX)):
        if rest >= backoff.max_ms * _SCALE or factor == _SCALE:
            break
        rest = rest * factor // _SCALE
    rest = min(rest // _SCALE, backoff.max_ms)
    spread = (seq * _MIX >> 32) % (2 * _SPREAD * 100 + 1) - _SPREAD * 100  # in hundredths of a per cent
    return rest + rest * spread // 10_000
