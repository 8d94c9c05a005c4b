"""Wall time of this machine, and how a time is written for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

_LAST_MS: Final = (2**63 - 1) // 1_000_000  # in the year 2262: beyond it Python tells no time


class SystemClock:
    """`kernel.ports.Clock` over the system's real-time clock."""

    __slots__ = ("_time_ns",)

    def __init__(self, time_ns: Callable[[], int] = time.time_ns) -> None:
        self._time_ns = time_ns

    def now_ms(self) -> int:
        try:
            return self._time_ns() // 1_000_000
        except OverflowError:
            return _LAST_MS


def moment(ts: int) -> str:
    """UTC, to the millisecond; a time beyond the calendar is its number."""
    try:
        when = datetime.fromtimestamp(ts // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ts} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{ts % 1000:03d}Z"
