"""The floor of involuntary loss, and the memory of what was lost below it (semantics 2.2, 2.3).

`evict_floor` moves only by involuntary loss (I-05). For the reason of a tombstone it is enough to know, for each
reason, the highest seq lost so: a gap always reaches up to the floor, so a reason is in it iff its highest seq is.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from topics.log.lost import LostRange, LostRanges


class Reason(StrEnum):
    """Why records were lost (semantics 4)."""

    CAP = "cap"
    TTL = "ttl"
    MIXED = "mixed"
    CRASH = "crash"
    CORRUPT = "corrupt"
    RESTART = "restart"
    SOURCE_TRIM = "source_trim"
    RECREATED = "recreated"


@attrs.frozen(kw_only=True)
class Gap:
    """The tombstone: seqs [gap_from, gap_to], both inclusive, are lost to this reader."""

    gap_from: int
    gap_to: int
    reason: Reason
    earliest_seq: int
    head_seq: int

    @property
    def missed_estimate(self) -> int:
        return self.gap_to - self.gap_from + 1


class Floors:
    """`evict_floor`, the ts of the last record lost below it, and the highest seq lost for each reason."""

    __slots__ = ("evict_floor", "lost_ts", "reasons")

    def __init__(self) -> None:
        self.evict_floor = 1
        self.lost_ts = 0
        self.reasons: dict[Reason, int] = {}

    def raise_to(self, last_seq: int, *, ts: int, reason: Reason, lost: LostRanges) -> None:
        """Live records up to `last_seq` are lost. Ranges the floor has passed are folded into the reasons."""
        assert last_seq >= self.evict_floor
        self.evict_floor = last_seq + 1
        self.lost_ts = max(self.lost_ts, ts)
        self.note(last_seq, reason)
        for passed in lost.drop_below(self.evict_floor):
            self.note(passed.last, Reason(passed.reason))
            self.lost_ts = max(self.lost_ts, passed.ts)

    def note(self, last_seq: int, reason: Reason) -> None:
        self.reasons[reason] = max(self.reasons.get(reason, 0), last_seq)

    def reason_above(self, from_seq: int, between: list[LostRange]) -> Reason:
        """The reason of a gap from above `from_seq` over the floor; `between`: lost ranges above the floor in it."""
        found = {reason for reason, last_seq in sorted(self.reasons.items()) if last_seq > from_seq}
        found.update(Reason(r.reason) for r in between)
        assert found
        return Reason.MIXED if len(found) > 1 else next(iter(found))
