"""The frames of a plan: where they lie, and the records cut out of what was fetched, each of them verified."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import msgspec

from topics.codec.log.frame import FrameView, decode_payloads, decode_texts
from topics.kernel.errors import Corrupt
from topics.kernel.limits import EXTENT_GAP_MAX
from topics.log.regions import Source
from topics.log.topic import Topic


class Extent(msgspec.Struct, frozen=True):
    """Bytes [offset, offset + size) of `source` hold the frames of records [first, first + count) of the plan."""

    source: Source
    offset: int
    size: int
    first: int
    count: int


class FramesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which frames to fetch, of records in ascending order."""

    topic: str
    topic_id: int
    seqs: array[int]
    offsets: array[int]
    lengths: array[int]
    extents: tuple[Extent, ...]


def assemble_texts(
    plan: FramesPlan, buffers: Sequence[bytes], other: Callable[[FrameView], bytes | None]
) -> list[bytes] | None:
    """`assemble` and the JSON of each record in one pass; None if `other` will not make that of one.

    Raises:
        Corrupt: as `assemble`.
    """
    assert len(buffers) == len(plan.extents)
    texts: list[bytes] = []
    for extent, buffer in zip(plan.extents, buffers, strict=True):
        stop = extent.first + extent.count
        offsets = [offset - extent.offset for offset in plan.offsets[extent.first : stop]]
        seqs = plan.seqs[extent.first : stop]
        lengths = plan.lengths[extent.first : stop]
        try:
            some = decode_texts(buffer, offsets, lengths, topic_id=plan.topic_id, seqs=seqs, other=other)
        except Corrupt as damage:
            raise _whole_run(plan, buffers, damage) from damage
        if some is None:
            return None
        texts += some
    return texts


def assemble(plan: FramesPlan, buffers: Sequence[bytes]) -> list[FrameView]:
    """The planned records, cut out of one buffer an extent and verified.

    Raises:
        Corrupt: a frame fails its checksum, or is not the record the index says. Detail: `seq` of the first such,
            `last_seq` of those right behind it, `reason`.
    """
    assert len(buffers) == len(plan.extents)
    records: list[FrameView] = []
    for extent, buffer in zip(plan.extents, buffers, strict=True):
        stop = extent.first + extent.count
        offsets = [offset - extent.offset for offset in plan.offsets[extent.first : stop]]
        lengths = plan.lengths[extent.first : stop]
        seqs = plan.seqs[extent.first : stop]
        try:
            records += decode_payloads(buffer, offsets, lengths, topic_id=plan.topic_id, seqs=seqs)
        except Corrupt as damage:
            raise _whole_run(plan, buffers, damage) from damage
    return records


def _whole_run(plan: FramesPlan, buffers: Sequence[bytes], damage: Corrupt) -> Corrupt:
    """The damage of one planned record, with `last_seq` of all that are damaged right behind it."""
    seq = damage.detail["seq"]
    assert isinstance(seq, int)
    at = bisect_left(plan.seqs, seq)
    assert plan.seqs[at] == seq
    last = at
    while last + 1 < len(plan.seqs) and not _is_there(plan, buffers, last + 1):
        last += 1
    return Corrupt(damage.message, **damage.detail, last_seq=plan.seqs[last])


def _is_there(plan: FramesPlan, buffers: Sequence[bytes], at: int) -> bool:
    number = bisect_right(plan.extents, at, key=_first) - 1
    place = [plan.offsets[at] - plan.extents[number].offset]
    try:
        decode_payloads(
            buffers[number], place, [plan.lengths[at]], topic_id=plan.topic_id, seqs=[plan.seqs[at]]
        )
    except Corrupt:
        return False
    return True


def _first(extent: Extent) -> int:
    return extent.first


def extent_of(topic: Topic, seq: int) -> Extent | None:
    """Where the frame of a live record lies; None if there is none."""
    index, at = topic.index, topic.index.find(seq)
    if at < 0:
        return None
    return Extent(topic.regions.source_until(seq)[0], index.offsets[at], index.lengths[at], 0, 1)


def extents_of(topic: Topic, start: int, stop: int) -> tuple[Extent, ...]:
    """The extents of the frames of all slots at positions [start, stop), dead ones too."""
    index = topic.index
    return extents_at(topic, index.seqs(start, stop), index.offsets[start:stop], index.lengths[start:stop])


def extents_at(
    topic: Topic, seqs: array[int], offsets: array[int], lengths: array[int]
) -> tuple[Extent, ...]:
    """The fewest reads that cover the frames: one source each, small gaps read through."""
    if len(seqs) == 1:
        source, _ = topic.regions.source_until(seqs[0])
        return (Extent(source, offsets[0], lengths[0], 0, 1),)
    extents: list[Extent] = []
    i = 0
    while i < len(seqs):
        source, elsewhere = topic.regions.source_until(seqs[i])
        stop = bisect_left(seqs, elsewhere, i) if elsewhere else len(seqs)
        span = offsets[stop - 1] + lengths[stop - 1] - offsets[i]
        whole = not topic.index.has_absent  # else what has no bytes has no place either
        if (
            whole and 0 <= span - sum(lengths[i:stop]) <= EXTENT_GAP_MAX
        ):  # a dense page, without a look at each
            extents.append(Extent(source, offsets[i], span, i, stop - i))
            i = stop
            continue
        first, begin, end = i, offsets[i], offsets[i] + lengths[i]
        i += 1
        while i < len(seqs) and (not elsewhere or seqs[i] < elsewhere):
            if offsets[i] < end or offsets[i] - end > EXTENT_GAP_MAX:
                break
            end = offsets[i] + lengths[i]
            i += 1
        extents.append(Extent(source, begin, end - begin, first, i - first))
    return tuple(extents)
