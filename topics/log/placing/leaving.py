"""Long runs of dead slots leave the index: what 200 000 finished jobs behind one that is held would take (storage 5).

When, no reader can tell: such a seq is dead before and after, and every answer says the same of it. So a look is taken
when it is paid for. Each slot that dies, and each that may leave from now on if it is dead, pays for a look at a few.

What must never leave is a slot whose place somebody needs. Until a segment has a record, the next mark counts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

from topics.log.index import ENDS, Index
from topics.log.past import DeathCause, Gone

RUN_MIN: Final = 1024  # slots of a run: 45 bytes each, and a run that has left takes 150
PAID_FOR: Final = 8  # slots that each change pays for
_TOGETHER: Final = 64  # runs that leave at one look: more would take more than a millisecond
_SAME: Final = {end: re.compile(re.escape(bytes((end,))) + b"+", re.DOTALL) for end in DeathCause}


def let_go(index: Index, stop_seq: int) -> list[Gone]:
    """Long runs of dead slots below `stop_seq` leave, if a look is paid for. Returns their seqs.

    What stands before them moves up, or what stands behind them moves down, whichever is less. Mostly that is the few
    old ones for which the others could not be popped.
    """
    slots = index.stop - index.start
    if slots - index.live_count < RUN_MIN or index.changes * PAID_FOR < slots:
        return []
    runs = _runs(index, index.position(stop_seq))
    if len(runs) <= _TOGETHER:
        index.changes = 0
    if not runs:
        return []
    del runs[_TOGETHER:]
    gone = [
        Gone(first, behind - 1, ENDS[index.flags[start]])
        for start, stop in runs
        for first, behind in index.spans(start, stop)
    ]
    start, stop = runs[0][0], runs[-1][1]
    moves_up = start - index.start <= index.stop - stop
    kept = [(behind, following) for (_, behind), (following, _) in pairwise(runs)]
    if moves_up:
        kept = [(index.start, start), *kept]
        start = stop - sum(following - behind for behind, following in kept)
    for column in index.columns():
        moved = column[:0]
        for behind, following in kept:
            moved += column[behind:following]  # type: ignore[operator]  # of one type
        column[start:stop] = moved  # type: ignore[assignment]  # of one type
    index.slotless = index.slotless.with_runs(gone)
    if moves_up:
        index.skip_to(start)
    return gone


def _runs(index: Index, stop: int) -> list[tuple[int, int]]:
    """The positions [start, behind) of long runs of slots that died alike: the first ones, and one more if there is."""
    ends = index.flags[index.start : stop].translate(ENDS)
    found = [run for end in DeathCause for run in islice(_runs_of(ends, end), _TOGETHER + 1)]
    return sorted((index.start + first, index.start + behind) for first, behind in found)


def _runs_of(ends: bytes | bytearray, end: DeathCause) -> Iterator[tuple[int, int]]:
    wanted, same = bytes((end,)) * RUN_MIN, _SAME[end]
    at = ends.find(wanted)
    while at >= 0:
        run = same.match(ends, at)
        assert run is not None
        yield run.span()
        at = ends.find(wanted, run.end())
