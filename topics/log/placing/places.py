"""Where the frames of an index's slots lie in their file, when that changes: as a mark or a segment's files say."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import add

from topics.log.index import LIVE, Index


def place(index: Index, first: int, last: int, data_end: int) -> None:
    """The frames of [first, last] lie one behind the other now, a delete byte behind each, up to `data_end`.

    Counted from the end, for the first of them may be gone already.
    """
    assert last <= index.head_seq
    start, stop = index.position(first), index.position(last + 1)
    if start == stop:
        return
    lengths = index.lengths[start:stop]
    begin = data_end - sum(lengths) - len(lengths)
    assert begin >= 0
    index.offsets[start:stop] = array(
        "I", map(add, accumulate(lengths[:-1], initial=begin), range(len(lengths)))
    )


def put_places(index: Index, first: int, last: int, offsets: array[int], lengths: array[int]) -> None:
    """The slots of [first, last] lie there now; those that are gone already are passed over."""
    assert len(offsets) == len(lengths) == last - first + 1
    at = index.position(first)
    for seq, behind in index.spans(at, index.position(last + 1)):
        count, begin = behind - seq, seq - first
        index.offsets[at : at + count] = offsets[begin : begin + count]
        index.lengths[at : at + count] = lengths[begin : begin + count]
        at += count


def places_end(index: Index, first: int, last: int) -> int:
    """Where the delete byte of the last frame of [first, last] ends; 0 if none of them has bytes."""
    start = index.position(first)
    for at in range(index.position(last + 1) - 1, start - 1, -1):
        if index.lengths[at]:
            return index.offsets[at] + index.lengths[at] + 1
    return 0


def drop_places(index: Index, seqs: Sequence[int]) -> None:
    """These have no bytes that anybody could use."""
    for seq in seqs:
        if (at := index.find(seq)) >= 0:
            index.lengths[at] = 0


def absent(index: Index, first: int, last: int) -> list[int]:
    """The live seqs of [first, last] that have no bytes."""
    start, stop = index.position(first), index.position(last + 1)
    return [index.seq_at(at) for at in range(start, stop) if not index.lengths[at] and index.flags[at] & LIVE]
