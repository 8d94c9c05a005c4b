"""What a read makes of bytes that are not what its plan says (storage 5).

A plan holds for its moment. A checkpoint removes files, a rewrite puts another file in the place of one, and either
may come between the plan and the fetch. So a record that is not there is planned again; it is damaged only if it is
not there either where the next plan has it, which is the same place of the same file.

Damage ends a page before its first damaged record, so that everything before is served, tombstones too. A page that
begins with one fails, and says from which seq on a reader can go on: nothing is skipped that the reader did not decide
to skip. Nothing wrong is served either way, because every frame is verified against checksum, topic and seq.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Sequence

import attrs

from topics.host.layout import path_of
from topics.host.medium import MEDIUM_ERRNOS
from topics.host.reading import Unread
from topics.kernel.errors import Corrupt
from topics.kernel.limits import REPLANS_MAX
from topics.log.diff import DiffPlan, DiffQuery, Extent
from topics.log.regions import Source

_Located = tuple[int, Source, int, int]  # seq, and where a plan has its record: source, offset, length


class Attempts:
    """The attempts at one page. `query` is what to plan next."""

    __slots__ = ("_left", "_suspect", "query")

    def __init__(self, query: DiffQuery) -> None:
        self.query = query
        self._suspect: _Located | None = None
        self._left = REPLANS_MAX

    def failed(self, plan: DiffPlan, error: Corrupt | Unread) -> None:
        """The plan's records were not to be had: plan `query`, which may have become shorter.

        Raises:
            Corrupt: the page begins with a damaged record, or cannot be read now; the detail says how to go on.
        """
        at = _position(plan, error)
        located = _locate(plan, at)
        if located != self._suspect:
            if self._left == 0:
                raise _unreadable(plan, "its files change faster than they are read; try again") from error
            self._left -= 1
            self._suspect = located
            return
        if isinstance(error, Unread):
            at = self._narrowed(plan, error)
        # A loss before the damage is told first, on a page without records.
        if at > 0 or plan.gap is not None:
            assert at < len(plan.seqs)
            self.query = attrs.evolve(self.query, limit=at)
            return
        raise _damaged(plan, error) from error

    def shorten(self, count: int) -> None:
        """The page is over its budget once it is unfolded: so many records of it fit."""
        assert 0 < count < self.query.limit
        self.query = attrs.evolve(self.query, limit=count)

    def _narrowed(self, plan: DiffPlan, error: Unread) -> int:
        """How many records may be readable if the others are left out; 0 for a page that begins where it fails.

        What an extent's medium cannot give is found by halves: nothing tells which of its bytes that is.
        """
        extent = error.extent
        if error.errno == errno.ENOENT:
            return extent.first
        if error.errno not in MEDIUM_ERRNOS:  # it may be over the next time
            raise _unreadable(plan, f"{error.strerror}; try again") from error
        return extent.first + extent.count // 2


def _position(plan: DiffPlan, error: Corrupt | Unread) -> int:
    """Which of the planned records was not there."""
    if isinstance(error, Unread):
        return error.extent.first
    seq = error.detail["seq"]
    assert isinstance(seq, int)
    at = bisect_left(plan.seqs, seq)
    assert plan.seqs[at] == seq
    return at


def _locate(plan: DiffPlan, at: int) -> _Located:
    return plan.seqs[at], _extent_of(plan, at).source, plan.offsets[at], plan.lengths[at]


def _extent_of(plan: DiffPlan, at: int) -> Extent:
    return plan.extents[bisect_left(plan.extents, at + 1, key=_stop)]


def _stop(extent: Extent) -> int:
    return extent.first + extent.count


def _damaged(plan: DiffPlan, error: Corrupt | Unread) -> Corrupt:
    """What a reader is told of a page that begins with damage: everything that is damaged there, and what is behind."""
    source = plan.extents[0].source
    files = _files(plan.extents[:1])
    if isinstance(error, Unread):
        why, last = str(error.strerror), plan.seqs[error.extent.count - 1]
        if error.errno == errno.ENOENT:
            last = max(plan.seqs[_stop(extent) - 1] for extent in plan.extents if extent.source == source)
    else:
        why, found = str(error.detail["reason"]), error.detail.get("last_seq", plan.seqs[0])
        assert isinstance(found, int)
        last = found
    seq = plan.seqs[0]
    what = f"seq {seq} is" if seq == last else f"seqs {seq}-{last} are"
    return Corrupt(
        f"topic {plan.topic!r}: {what} damaged in {', '.join(files)} ({why}); "
        f"to read what is behind, go on with from_seq={last}",
        topic=plan.topic,
        seq=seq,
        last_seq=last,
        files=files,
        next_from_seq=last,
    )


def _unreadable(plan: DiffPlan, why: str) -> Corrupt:
    """Nothing says that a record is damaged, so nothing is said of going on behind it."""
    files = _files(plan.extents)
    return Corrupt(
        f"topic {plan.topic!r} seqs {plan.seqs[0]}-{plan.seqs[-1]} cannot be read from {', '.join(files)}: {why}",
        topic=plan.topic,
        seq=plan.seqs[0],
        files=files,
    )


def _files(extents: Sequence[Extent]) -> list[str]:
    return sorted({"memory" if isinstance(e.source, bytes) else path_of(e.source) for e in extents})
