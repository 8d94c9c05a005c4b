"""Which segments hold a topic's records: what folding its CheckpointMarks gives (storage 5).

A segment covers a contiguous run of seqs, each with a slot. Records are stored in the order of their seqs, so
`stored_seq` divides a topic: up to it they lie in segments, above it in the WAL. What it must never know: files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from topics.kernel.whole_numbers import Count


class Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Seqs [first, last]; `size`: bytes of its data; `since`: ts of the mark that began it; `cold`: its data's tier."""

    first: Count
    last: Count
    size: Count
    since: Count
    sealed: bool
    cold: bool = False

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class Segments:
    """The segments of one topic that hold a slot still, ascending; only the last one may be unsealed.

    `damaged`: first seqs of those whose files lack records, as a start has found; no state. Nothing is appended to one.
    """

    __slots__ = ("_all", "damaged", "stored_seq")

    def __init__(self, segments: list[Segment] | None = None, stored_seq: int = 0) -> None:
        self._all = segments or []
        self.stored_seq = stored_seq
        self.damaged: frozenset[int] = frozenset()
        assert not self._all or self._all[-1].last == stored_seq

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    @property
    def active(self) -> Segment | None:
        """The one that more may be appended to."""
        return self._all[-1] if self._all and not self._all[-1].sealed else None

    def absorb(self, *, segment: int, first: int, last: int, size: int, sealed: bool, ts: int) -> None:
        """Seqs [first, last] were appended to `segment`, or nothing was (first = last + 1) and it is only sealed."""
        active = self.active
        if active is not None and active.first == segment:
            assert active.last + 1 == first
            assert size >= active.size
            self._all[-1] = msgspec.structs.replace(active, last=last, size=size, sealed=sealed)
        else:
            assert active is None
            assert segment == first
            assert first > self.stored_seq
            self._all.append(Segment(first, last, size, ts, sealed))
        self.stored_seq = last

    def move(self, segment: int, *, size: int, cold: bool) -> None:
        """The data of a sealed segment is in the other tier now. One that has gone meanwhile has none to move."""
        at = bisect_right(self._all, segment, key=_first) - 1
        if at >= 0 and self._all[at].first == segment:
            assert self._all[at].sealed
            self._all[at] = msgspec.structs.replace(self._all[at], size=size, cold=cold)

    def moves(self, *, segment: int, first: int, last: int) -> bool:
        """Whether a mark of no records names a segment that was sealed before, or has gone: it moves its data then."""
        active = self.active
        return first == last + 1 <= self.stored_seq + 1 and (active is None or active.first != segment)

    def resize(self, segment: int, size: int) -> None:
        """The data of the one that begins with this seq has another size."""
        at = bisect_right(self._all, segment, key=_first) - 1
        assert self._all[at].first == segment
        self._all[at] = msgspec.structs.replace(self._all[at], size=size)

    def holds(self, seq: int) -> Segment | None:
        """The segment that covers `seq`."""
        i = bisect_right(self._all, seq, key=_first) - 1
        return self._all[i] if i >= 0 and seq <= self._all[i].last else None

    def drop_below(self, seq: int) -> None:
        """Forget the sealed segments that end below `seq`: no slot is left in them."""
        if self._all and self._all[0].last < seq:
            self._all = [segment for segment in self._all if segment.last >= seq or not segment.sealed]


def _first(segment: Segment) -> int:
    return segment.first
