"""The instants of a schedule: from the calendar or by arithmetic, the missed ones, and what jitter makes of one.

An instant is when a schedule should fire; it is due a little later if the schedule has jitter, and before the next
instant in any case, so instants are due in their order. All of it is a function of the definition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Final

import xxhash

from topics.codec.log.schedules import Schedule
from topics.kernel.ports import Calendar

_LOOK_BACK_MS: Final = 60_000  # for missed instants, at first; then twice as far


class Instants:
    """Those of one schedule."""

    __slots__ = ("_calendar", "_definition")

    def __init__(self, calendar: Calendar | None, definition: Schedule) -> None:
        self._calendar = calendar
        self._definition = definition

    def after(self, at_ms: int) -> Iterator[int]:
        """Those that are later, ascending. Raises `Rejected` if the calendar does not know what is meant."""
        every_ms = self._definition.every_ms
        if every_ms:  # since 1970, so that nothing needs to be known of when it began
            return count((at_ms // every_ms + 1) * every_ms, every_ms)
        assert self._calendar is not None
        return self._calendar.instants(self._definition.cron, self._definition.timezone, at_ms)

    def first(self, at_ms: int) -> int | None:
        """The first that is later; None if none ever is."""
        return next(self.after(at_ms), None)

    def due_ms(self, instant_ms: int) -> int:
        """When an instant is fired: always the same, and before the next one."""
        jitter_ms = self._definition.jitter_ms
        if not jitter_ms:
            return instant_ms
        seed = self._definition.id.to_bytes(8, "little") + instant_ms.to_bytes(8, "little")
        due_ms = instant_ms + xxhash.xxh3_64_intdigest(seed) % (jitter_ms + 1)
        following = self.first(instant_ms)
        return due_ms if following is None else min(due_ms, following - 1)

    def newest(self, base_ms: int, last_ms: int, count_max: int) -> list[int]:
        """The last so many of those behind `base_ms` and up to `last_ms`, ascending. What it costs goes by how many
        those are, not by how long it is.
        """
        assert count_max > 0
        span_ms = _LOOK_BACK_MS
        while True:
            start_ms = max(base_ms, last_ms - span_ms)
            found = deque[int](maxlen=count_max)
            for instant_ms in self.after(start_ms):
                if instant_ms > last_ms:
                    break
                found.append(instant_ms)
            if len(found) == count_max or start_ms == base_ms:
                return list(found)
            span_ms *= 2

    def due_newest(self, base_ms: int, now_ms: int, count_max: int) -> list[int]:
        """The last so many that are due."""
        found = self.newest(base_ms, now_ms, count_max + 1)
        while found and self.due_ms(found[-1]) > now_ms:
            found.pop()
        return found[-count_max:]
