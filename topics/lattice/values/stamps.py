"""Times on replicated values: how a write is stamped, and what becomes of stamps from the future (replication 1.3).

Stamps are milliseconds. A clock may step back, and two writes may fall into one millisecond; so a write is stamped
above everything already in the object it edits, and the object only moves up. A foreign stamp that is further ahead
than clocks may differ waits in a `Deferral` until the local clock comes near. It is not altered, for two nodes would
alter it differently, and not dropped, for then they would never agree.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, Generic, TypeVar

from topics.kernel.errors import WrongState
from topics.lattice.values.algebra import Lattice

T = TypeVar("T")

MAX_DRIFT_MS: Final = 3_600_000
STAMP_MAX: Final = (1 << 48) - 1  # of what is written here, in the year 10889
CLOCK_SET_MS: Final = 1_577_836_800_000  # 2020: a clock that stands before it was never set
DEFERRED_MAX: Final = 64  # values that wait on their own; more share places


def next_stamp(now_ms: int, newest: int) -> int:
    """The stamp of a write to an object whose newest stamp is `newest` (0 if it has none).

    Raises:
        WrongState: it would be above `STAMP_MAX`; nothing may be written.
    """
    assert newest >= 0
    stamp = max(now_ms, newest + 1)
    if stamp > STAMP_MAX:
        raise WrongState(
            f"stamp: {stamp} ms would be above the last one that can be written, {STAMP_MAX}; the clock says {now_ms}, "
            f"and the newest stamp of the object is {newest}: set the clock, or write under another name"
        )
    return stamp


def is_future(stamp: int, now_ms: int, max_drift_ms: int = MAX_DRIFT_MS) -> bool:
    """Whether a foreign stamp is too far ahead to be believed now. Exactly the drift is still believed."""
    return stamp > now_ms + max_drift_ms


def is_unset(now_ms: int, newest: int) -> bool:
    """Whether it is the clock that is wrong, not the stamp `newest`: it was never set since the machine started."""
    return now_ms < CLOCK_SET_MS <= newest


class Deferral(Generic[T]):
    """Foreign values from the future, until the clock comes near them.

    `newest` tells the newest stamp in a value. At most `room` values wait on their own, in the order they are due; when
    there are more, the two neighbours nearest in time are joined and wait for the later of their times. So a value from
    the year 3000 does not take the next one along with it, and little room costs little delay.
    """

    def __init__(
        self,
        lattice: Lattice[T],
        newest: Callable[[T], int],
        *,
        max_drift_ms: int = MAX_DRIFT_MS,
        room: int = DEFERRED_MAX,
    ) -> None:
        assert max_drift_ms >= 0
        assert room >= 1
        self._lattice: Final = lattice
        self._newest: Final = newest
        self._max_drift_ms: Final = max_drift_ms
        self._room: Final = room
        self._waiting: list[tuple[int, T]] = []  # newest stamp and value, earliest first

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> tuple[T, ...]:
        """What waits, earliest first: for a snapshot, which gives each to `admit` again."""
        return tuple(value for _, value in self._waiting)

    def next_due_ms(self) -> int | None:
        """When `release` has something to give; None if nothing waits."""
        return self._waiting[0][0] - self._max_drift_ms if self._waiting else None

    def admit(self, value: T, now_ms: int) -> T | None:
        """The value itself if it may be merged now; else None, and it waits here."""
        stamp = self._newest(value)
        if not is_future(stamp, now_ms, self._max_drift_ms):
            return value
        self._hold(stamp, value)
        if len(self._waiting) > self._room:
            self._join_nearest()
        assert len(self._waiting) <= self._room
        return None

    def release(self, now_ms: int) -> list[T]:
        """Those whose time has come, earliest first. The caller merges them."""
        count = 0
        while count < len(self._waiting) and not is_future(
            self._waiting[count][0], now_ms, self._max_drift_ms
        ):
            count += 1
        due = [value for _, value in self._waiting[:count]]
        del self._waiting[:count]
        assert not self._waiting or is_future(self._waiting[0][0], now_ms, self._max_drift_ms)
        return due

    def _join_nearest(self) -> None:
        assert len(self._waiting) >= 2
        gaps = [later[0] - earlier[0] for earlier, later in pairwise(self._waiting)]
        at = gaps.index(min(gaps))
        both = self._lattice.join(self._waiting[at][1], self._waiting[at + 1][1])
        del self._waiting[at : at + 2]
        self._hold(self._newest(both), both)

    def _hold(self, stamp: int, value: T) -> None:
        at = len(self._waiting)
        while at and self._waiting[at - 1][0] > stamp:
            at -= 1
        self._waiting.insert(at, (stamp, value))
        assert at == 0 or self._waiting[at - 1][0] <= stamp
