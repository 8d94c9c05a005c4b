"""Where a read starts, and whether it must be told of a loss first (semantics 4). Pure; changes nothing.

A read carries a tombstone iff it starts below `evict_floor`, at a lost range, or in another epoch (I-06).
"""

from __future__ import annotations

import attrs

from topics.log.floors import Floors, Gap, Reason
from topics.log.index import Index


@attrs.frozen
class ReadStart:
    """The read goes on above `after`; `lost` seqs of this instance between `from_seq` and `after` are the gap's."""

    from_seq: int
    after: int
    gap: Gap | None
    lost: int


def classify(index: Index, floors: Floors, from_seq: int, *, same_epoch: bool) -> ReadStart:
    """The start of a read from the exclusive bound `from_seq`."""
    if same_epoch and from_seq <= index.head_seq:
        return _classify_here(index, floors, from_seq)
    here = _classify_here(index, floors, 0)
    assert here.from_seq == 0
    gap = Gap(
        gap_from=1,
        gap_to=index.head_seq,
        reason=Reason.RECREATED,
        earliest_seq=index.base_seq,
        head_seq=index.head_seq,
    )
    return attrs.evolve(here, gap=gap)


def resolve_ts(index: Index, floors: Floors, from_ts: int) -> int:
    """The exclusive lower bound that stands before everything at or after `from_ts`, losses included.

    What is dead may have left the index, and nobody knows any more when it came: it is passed over.
    """
    if floors.evict_floor > 1 and from_ts <= floors.lost_ts:
        return 0
    seq = index.seq_at(index.live_from(index.position_of_ts(from_ts)))
    for lost in index.lost:
        if lost.ts >= from_ts and lost.first < seq:
            return lost.first - 1
    return seq - 1


def _classify_here(index: Index, floors: Floors, from_seq: int) -> ReadStart:
    first = from_seq + 1
    if first < floors.evict_floor:
        gap_to = index.base_seq - 1
        between = [lost for lost in index.lost if lost.first < index.base_seq]
        reason = floors.reason_above(from_seq, between)
    elif (lost := index.lost.at(first)) is not None:
        gap_to = lost.last
        reason = Reason(lost.reason)
    else:
        return ReadStart(from_seq, from_seq, None, 0)
    gap = Gap(
        gap_from=first, gap_to=gap_to, reason=reason, earliest_seq=index.base_seq, head_seq=index.head_seq
    )  # fmt: skip
    assert gap.gap_from <= gap.gap_to <= index.head_seq
    return ReadStart(from_seq, gap_to, gap, gap.missed_estimate)
