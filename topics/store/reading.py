"""Reading a page: plan, fetch, plan again (architecture 3.5, storage 5).

`page_steps` is the one loop. It yields what a driver is to do next: plan a query where the engine may be asked, fetch
the extents of a plan, or unfold payloads; the driver answers with what came of it, or throws the error in. `read_page`
carries that out on the calling thread.

A plan holds for its moment. A checkpoint removes files, a rewrite puts another file in the place of one, and either
may come between the plan and the fetch. So a record that is not there is planned again; it is damaged only if it is
not there either where the next plan has it, which is the same place of the same file.

Damage ends a page before its first damaged record, so that everything before is served, tombstones too. A page that
begins with one fails, and says from which seq on a reader can go on: nothing is skipped that the reader did not decide
to skip. Who reads by seqs has named the records himself: then a page that begins with damage names it, and gives what
is behind. Nothing wrong is served either way, because every frame is verified against checksum, topic and seq.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from topics.codec.log.frame import FrameView
from topics.host.directory.layout import path_of
from topics.host.segments.reading import Unread
from topics.host.system.compress import decompress_fitting
from topics.host.system.medium import MEDIUM_ERRNOS
from topics.kernel.errors import Corrupt
from topics.kernel.limits import REPLANS_MAX
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.frames import Extent, FramesPlan, assemble, assemble_texts
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.log.regions import Source

Q = TypeVar("Q", DiffQuery, RecordsQuery)
_IS_COMPRESSED: Final = attrgetter("compressed")
P = TypeVar("P", DiffPlan, RecordsPlan)
Unfold: TypeAlias = Callable[[], Sequence[FrameView]]
Found: TypeAlias = tuple[DiffPlan | RecordsPlan, Sequence[FrameView], Sequence[bytes] | None]
ReadSteps: TypeAlias = Generator[
    DiffQuery | RecordsQuery | DiffPlan | RecordsPlan | Unfold | Found, Any, None
]
_Located: TypeAlias = tuple[
    int, Source, int, int
]  # seq, and where a plan has its record: source, offset, length


def page_steps(
    query: DiffQuery | RecordsQuery,
    record: Callable[[FrameView], bytes | None] | None = None,
    *,
    unfold: bool = True,
) -> ReadSteps:
    """One page: its plan and its records, decompressed if `unfold`. With `record`, which makes the text of one or None,
    a page on which it makes all of them is its texts instead.

    A query is to be planned: answer with the plan. A plan is to be fetched: answer with a buffer an extent. What can
    be called is to be called, where it holds nobody up. The tuple is the page, and the end. Throw in `Corrupt` and
    `Unread` of a step; any other error of it ends the read.

    Raises:
        Corrupt: the page would begin with a damaged record, or cannot be read.
    """
    bytes_max, suspect, replans = query.bytes_max, None, 0
    while True:
        plan: DiffPlan | RecordsPlan = yield query
        try:
            buffers: Sequence[bytes] = yield plan
            if record is not None and (texts := assemble_texts(plan, buffers, record)) is not None:
                yield plan, (), texts
                return
            views: Sequence[FrameView] = assemble(plan, buffers)
            if not unfold or not any(map(_IS_COMPRESSED, views)):
                yield plan, views, None
                return
            plain = yield partial(decompress_fitting, views, topic=plan.topic, bytes_max=bytes_max)
        except (Corrupt, Unread) as error:
            found = _locate(plan, _position(plan, error))
            if found == suspect:
                query, replans = _past_damage(query, plan, error), 0  # it asks for less each time
            elif replans == REPLANS_MAX:
                raise _unreadable(plan, "its files change faster than they are read; try again") from error
            else:
                suspect, replans = found, replans + 1
            continue
        if len(plain) == len(views):
            yield plan, plain, None
            return
        # Unfolded it is over its budget: so many records of it fit.
        assert 0 < len(plain) < len(views)
        query = query.limited(len(plain))


def read_page(
    query: Q, plan: Callable[[Q], P], read: Callable[[Extent], bytes]
) -> tuple[P, Sequence[FrameView]]:
    """`page_steps` on this thread. Raises Corrupt, and what `plan` and `read` raise other than `Unread`."""
    steps = page_steps(query)
    step: Any = next(steps)
    while not isinstance(step, tuple):
        answer: object
        try:
            if isinstance(step, FramesPlan):
                answer = [read(extent) for extent in step.extents]
            else:
                answer = step() if callable(step) else plan(step)
        except (Corrupt, Unread) as error:
            step = steps.throw(error)
        else:
            step = steps.send(answer)
    found, views, _ = step
    return found, views


def at_hand(plan: FramesPlan, nowait: Callable[[Extent], bytes | None]) -> list[bytes] | None:
    """A buffer an extent, if all of it is in memory."""
    buffers = [found for extent in plan.extents if (found := nowait(extent)) is not None]
    return buffers if len(buffers) == len(plan.extents) else None


def _past_damage(
    query: DiffQuery | RecordsQuery, plan: FramesPlan, error: Corrupt | Unread
) -> DiffQuery | RecordsQuery:
    """What to ask for instead: the page ends before the damaged record, or does without those that it begins with.

    Raises:
        Corrupt: the page begins with it, or it cannot be read now; the detail says how to go on.
    """
    count = _count_before(plan, error)
    is_told_first = isinstance(plan, DiffPlan) and plan.gap is not None  # a loss before the damage
    if count or is_told_first:
        return query.limited(count)
    if isinstance(query, RecordsQuery):
        return query.without(_damaged_seqs(plan, error))
    raise _damaged(plan, error) from error


def _count_before(plan: FramesPlan, error: Corrupt | Unread) -> int:
    """How many of the records may be readable if the others are left out; 0 for a page that begins with damage.

    Raises:
        Corrupt: nothing says that one is damaged.
    """
    at = _position(plan, error) if isinstance(error, Corrupt) else _narrowed(plan, error)
    assert at < len(plan.seqs)
    return at


def _narrowed(plan: FramesPlan, error: Unread) -> int:
    """How many records may be readable if the others are left out; 0 for a page that begins where it fails.

    What an extent's medium cannot give is found by halves: nothing tells which of its bytes that is.
    """
    extent = error.extent
    if error.errno == errno.ENOENT:
        return extent.first
    if error.errno not in MEDIUM_ERRNOS:  # it may be over the next time
        raise _unreadable(plan, f"{error.strerror}; try again") from error
    return extent.first + extent.count // 2


def _position(plan: FramesPlan, error: Corrupt | Unread) -> int:
    """Which of the planned records was not there."""
    if isinstance(error, Unread):
        return error.extent.first
    seq = error.detail["seq"]
    assert isinstance(seq, int)
    at = bisect_left(plan.seqs, seq)
    assert plan.seqs[at] == seq
    return at


def _locate(plan: FramesPlan, at: int) -> _Located:
    return plan.seqs[at], _extent_of(plan, at).source, plan.offsets[at], plan.lengths[at]


def _extent_of(plan: FramesPlan, at: int) -> Extent:
    return plan.extents[bisect_left(plan.extents, at + 1, key=_stop)]


def _stop(extent: Extent) -> int:
    return extent.first + extent.count


def _damaged_seqs(plan: FramesPlan, error: Corrupt | Unread) -> Sequence[int]:
    """The damaged records that a page begins with."""
    if isinstance(error, Corrupt):
        last = error.detail.get("last_seq", plan.seqs[0])
        assert isinstance(last, int)
        return [seq for seq in plan.seqs if seq <= last]
    if error.errno != errno.ENOENT:
        return plan.seqs[: error.extent.count]
    gone = [extent for extent in plan.extents if extent.source == plan.extents[0].source]
    return [seq for extent in gone for seq in plan.seqs[extent.first : _stop(extent)]]


def _damaged(plan: FramesPlan, error: Corrupt | Unread) -> Corrupt:
    """What a reader is told of a page that begins with damage: everything that is damaged there, and what is behind."""
    files = _files(plan.extents[:1])
    why = str(error.strerror) if isinstance(error, Unread) else str(error.detail["reason"])
    seq, last = plan.seqs[0], _damaged_seqs(plan, error)[-1]
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


def _unreadable(plan: FramesPlan, why: str) -> Corrupt:
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
