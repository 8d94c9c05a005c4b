"""Reading a replicated queue in order, with an offset of one's own (replication 2.2, 2.3).

Records stay until they are truncated, so any number of consumers read at their own pace. An offset is the next one to
read; the queue does not keep it, the consumer does, in a KV database or wherever else.

Never is a loss silent: a consumer whose offset lies below the start gets an `OffsetGap` in the place of what is gone,
then goes on at the start. Only what it had truncated itself is passed over without a word.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from topics.codec.cell import Cell
from topics.kernel.checks import whole_number
from topics.kernel.errors import invalid
from topics.lattice.queues.queue_state import OFFSET_MAX, LatticeQueueState
from topics.lattice.queues.record import QueueRecord

POLL_LIMIT_DEFAULT: Final = 256
POLL_LIMIT_MAX: Final = 10_000


@attrs.frozen
class OffsetGap:
    """Offsets [gap_from, gap_to], both inclusive, will never be delivered here: truncated, or never assigned."""

    gap_from: int
    gap_to: int

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.gap_from <= self.gap_to


@attrs.frozen
class Delivery:
    """A record at its absolute offset."""

    offset: int
    record: QueueRecord

    def __attrs_post_init__(self) -> None:
        assert self.offset >= 0

    @property
    def value(self) -> Cell:
        return self.record.value


Item: TypeAlias = "OffsetGap | Delivery"


class Consumer:
    """A position in one queue. `truncated_below`: what this consumer asked to be gone, so that it is not told."""

    __slots__ = ("_offset", "_truncated_below")

    def __init__(self, offset: int = 0, *, truncated_below: int = 0) -> None:
        self._offset = min(whole_number("offset", offset), OFFSET_MAX)
        self._truncated_below = min(whole_number("truncated_below", truncated_below), OFFSET_MAX)

    @property
    def offset(self) -> int:
        """The next offset to read: what to store, and to start from again."""
        return self._offset

    def poll(self, queue: LatticeQueueState, limit: int = POLL_LIMIT_DEFAULT) -> list[Item]:
        """The next records, at most `limit`, after the gap if there is one; moves the offset behind them."""
        if not 0 < whole_number("limit", limit) <= POLL_LIMIT_MAX:
            raise invalid("limit", f"must be from 1 to {POLL_LIMIT_MAX}, not {limit}")
        before = self._offset
        items: list[Item] = []
        gap = self._skip_to(queue.start)
        if gap is not None:
            items.append(gap)
        for offset, record in enumerate(
            queue.entries.between(self._offset, self._offset + limit), start=self._offset
        ):
            items.append(Delivery(offset, record))
            self._offset = offset + 1
        assert self._offset >= before
        assert len(items) <= limit + 1  # a gap is no record
        return items

    def seek(self, offset: int) -> None:
        """Go anywhere, backwards too."""
        self._offset = min(whole_number("offset", offset), OFFSET_MAX)

    def truncate(self, queue: LatticeQueueState, now_ms: int) -> LatticeQueueState:
        """The queue without what this consumer has read; it will not be told of that."""
        self._truncated_below = max(self._truncated_below, self._offset)
        assert 0 <= self._truncated_below <= OFFSET_MAX
        truncated, _ = queue.truncate(self._offset, now_ms)
        assert truncated.start >= self._offset
        return truncated

    def _skip_to(self, start: int) -> OffsetGap | None:
        """Move up to the start; the gap begins above what the consumer had truncated."""
        if self._offset >= start:
            return None
        gap_from = max(self._offset, min(self._truncated_below, start))
        assert gap_from >= self._offset
        self._offset = start
        return OffsetGap(gap_from, start - 1) if gap_from < start else None
