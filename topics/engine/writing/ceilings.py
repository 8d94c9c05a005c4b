"""Raising the ceiling of a topic, above which nothing is published that a power cut would take back (storage 3)."""

from __future__ import annotations

from typing import Final

from topics.codec.log.control import HeadWatermark, encode_control
from topics.engine.batch import Entry
from topics.engine.lane import Lane

RAISE_BYTES: Final = len(encode_control(HeadWatermark(1), topic_id=1, ts=0))


def due_ceiling(lane: Lane, last_seq: int) -> int:
    """The ceiling this write needs, or that is due because half the step is used; 0 for neither (storage 3)."""
    asked, held = lane.ceiling_asked, lane.ceiling
    if last_seq > asked or (asked == held and held - last_seq < lane.ceiling_step // 2):
        return lane.next_ceiling(last_seq)
    return 0


def raise_of(lane: Lane, ceiling: int, now_ms: int) -> Entry:
    """A higher ceiling. Whoever enqueues it has asked for it (`Lane.ask_ceiling`)."""
    return _Raise.of(lane, [HeadWatermark(ceiling)], now_ms, staged=True, must_sync=True, ordered=False)


class _Raise(Entry, eq=False, kw_only=True):
    """A higher ceiling. It passes the writes before it by, for it says nothing of them."""

    lane: Lane

    def settle(self) -> None:
        self.lane.raise_ceiling()
