"""Wall time of this machine."""

from __future__ import annotations

import time


class SystemClock:
    """`kernel.ports.Clock` over the system's real-time clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
