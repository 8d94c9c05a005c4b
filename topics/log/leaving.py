"""Long runs of dead slots leave the index: what 200 000 finished jobs behind one that is held would take (storage 5).

When, no reader can tell: such a seq is dead before and after, and every answer says the same of it. So a look is taken
when it is paid for. Each slot that dies, and each that may leave from now on if it is dead, pays for a look at a few.

What must never leave is a slot whose place somebody needs. Until a segment has a record, the next mark counts it.
"""

from __future__ import annotations

from typing import Final

from topics.log.index import DEAD_RUN, ENDS, Index
from topics.log.past import DeathCause, Gone

RUN_MIN: Final = 1024  # slots of a run: 45 bytes each, and the run takes 150
PAID_FOR: Final = 2  # slots that each change pays for


def let_go(index: Index, stop_seq: int) -> list[Gone]:
    """Long runs of dead slots below `stop_seq` leave, if a look is paid for. Returns their seqs.

    The slots before the last of them, which are few if old ones are held, move up to what is behind it.
    """
    slots = index.stop - index.start
    if slots - index.live_count < RUN_MIN or index.changes * PAID_FOR < slots:
        return []
    index.changes = 0
    runs = _runs(index, index.position(stop_seq))
    if not runs:
        return []
    gone = [
        Gone(first, behind - 1, ENDS[index.flags[start]])
        for start, behind in runs
        for first, behind in index.spans(start, behind)
    ]
    end = runs[-1][1]
    kept = list(zip([index.start, *(behind for _, behind in runs[:-1])], [start for start, _ in runs], strict=True))
    start = end - sum(behind - first for first, behind in kept)
    for column in index.columns():
        moved = column[:0]
        for first, behind in kept:
            moved += column[first:behind]  # type: ignore[operator]  # of one type
        column[start:end] = moved  # type: ignore[assignment]
    index.slotless = index.slotless.with_runs(gone)
    index.skip_to(start)
    return gone


def _runs(index: Index, stop: int) -> list[tuple[int, int]]:
    """The positions [start, behind) of each run of slots that died alike, if it is long."""
    ends = index.flags[index.start : stop].translate(ENDS)
    found: list[tuple[int, int]] = []
    for end in DeathCause:
        wanted = bytes((end,)) * RUN_MIN
        at = ends.find(wanted)
        while at >= 0:
            run = DEAD_RUN.match(ends, at)
            assert run is not None
            found.append((run.start() + index.start, run.end() + index.start))
            at = ends.find(wanted, run.end())
    return sorted(found)
