"""Reading a page: plan, fetch, plan again (architecture 3.5, storage 5).

`page_steps` is the one loop. It yields what a driver is to do next: plan a query where the engine may be asked, fetch
the extents of a plan, or unfold payloads; the driver answers with what came of it, or throws the error in. `read_page`
carries that out on the calling thread.

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
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from topics.codec.log.frame import FrameView
from topics.host.directory.layout import path_of
from topics.host.segments.reading import Unread
from topics.host.system.compress import decompress_fitting
from topics.host.system.medium import MEDIUM_ERRNOS
from topics.kernel.errors import Corrupt
from topics.kernel.limits import REPLANS_MAX
from topics.log.reads.diff import DiffPlan, DiffQuery, Extent, assemble, assemble_texts
from topics.log.regions import Source

Unfold: TypeAlias = Callable[[], Sequence[FrameView]]
Found: TypeAlias = tuple[DiffPlan, Sequence[FrameView], Sequence[bytes] | None]
ReadSteps: TypeAlias = Generator[DiffQuery | DiffPlan | Unfold | Found, Any, None]
_Located: TypeAlias = tuple[
    int, Source, int, int
]  # seq, and where a plan has its record: source, offset, length


def page_steps(query: DiffQuery, record: Callable[[FrameView], bytes | None] | None = None) -> ReadSteps:
    """One page: its plan and its records, decompressed. With `record`, which makes the text of one or None, a page on
    which it makes all of them is its texts instead.

    A query is to be planned: answer with the plan. A plan is to be fetched: answer with a buffer an extent. What can
    be called is to be called, where it holds nobody up. The tuple is the page, and the end. Throw in `Corrupt` and
    `Unread` of a step; any other error of it ends the read.

    Raises:
        Corrupt: the page would begin with a damaged record, or cannot be read.
    """
    bytes_max, suspect, replans = query.bytes_max, None, 0
    while True:
        plan: DiffPlan = yield query
        try:
            buffers: Sequence[bytes] = yield plan
            if record is not None and (texts := assemble_texts(plan, buffers, record)) is not None:
                yield plan, (), texts
                return
            views: Sequence[FrameView] = assemble(plan, buffers)
            for view in views:
                if view.compressed:
                    break
            else:
                yield plan, views, None
                return
            plain = yield partial(decompress_fitting, views, topic=plan.topic, bytes_max=bytes_max)
        except (Corrupt, Unread) as error:
            found = _locate(plan, _position(plan, error))
            if found == suspect:
                query = attrs.evolve(query, limit=_count_before(plan, error))
            elif replans == REPLANS_MAX:
                raise _unreadable(plan, "its files change faster than they are read; try again") from error
            else:
                suspect, replans = found, replans + 1
            continue
        if len(plain) == len(views):
            yield plan, plain, None
            return
        # Unfolded it is over its budget: so many records of it fit.
        assert 0 < len(plain) < query.limit
        query = attrs.evolve(query, limit=len(plain))


def read_page(
    query: DiffQuery, plan: Callable[[DiffQuery], DiffPlan], read: Callable[[Extent], bytes]
) -> tuple[DiffPlan, Sequence[FrameView]]:
    """`page_steps` on this thread. Raises Corrupt, and what `plan` and `read` raise other than `Unread`."""
    steps = page_steps(query)
    step = next(steps)
    while not isinstance(step, tuple):
        answer: object
        try:
            if isinstance(step, DiffPlan):
                answer = [read(extent) for extent in step.extents]
            else:
                answer = plan(step) if isinstance(step, DiffQuery) else step()
        except (Corrupt, Unread) as error:
            step = steps.throw(error)
        else:
            step = steps.send(answer)
    found, views, _ = step
    return found, views


def _count_before(plan: DiffPlan, error: Corrupt | Unread) -> int:
    """How many records to ask for, so that the page ends before the damaged one.

    Raises:
        Corrupt: the page begins with it, or it cannot be read now; the detail says how to go on.
    """
    at = _position(plan, error) if isinstance(error, Corrupt) else _narrowed(plan, error)
    # A loss before the damage is told first, on a page without records.
    if at == 0 and plan.gap is None:
        raise _damaged(plan, error) from error
    assert at < len(plan.seqs)
    return at


def _narrowed(plan: DiffPlan, error: Unread) -> int:
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
