"""Records that are named in an order of their own, as jobs are: as many of the first as so many bytes hold (queues 4).

They are read by seq, and only when a page is unfolded it is known how many of its records fit. What fits by seq need
not be what comes first: then the first are kept, or one that comes first could be left behind again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import takewhile
from typing import TypeAlias, TypeVar

from topics.codec.log.frame import FrameView
from topics.log.reads.records import RecordsPlan, RecordsQuery

T = TypeVar("T")
Found: TypeAlias = tuple[dict[int, T], set[int], set[int]]


def first_records(
    topic_id: int, order: Sequence[int], *, bytes_max: int, page_bytes: int, size: Callable[[T], int]
) -> Generator[RecordsQuery, tuple[RecordsPlan, Sequence[T]], Found[T]]:
    """Answer each query with its page. Ends with (the records by seq, the seqs of those that do not fit, those of
    damaged ones); what has gone is among none of them. One record fits always.
    """
    found, left, damaged = yield from _by_seq(topic_id, order, bytes_max, page_bytes, size)
    if not left:
        return found, left, damaged
    if order[0] in left:
        first, _, more = yield from _by_seq(topic_id, order[:1], bytes_max, page_bytes, size)
        found, damaged = found | first, damaged | more
        left.discard(order[0])
    kept: dict[int, T] = {}
    for seq in takewhile(lambda seq: seq not in left, order):
        if seq in found:
            bytes_max -= size(found[seq])
            if bytes_max < 0 and kept:
                break
            kept[seq] = found[seq]
    return kept, {seq for seq in order if seq not in kept and seq not in damaged}, damaged


def size_of(view: FrameView) -> int:
    """Of the data and meta of a record that is decompressed."""
    return len(view.data) + len(view.meta)


def _by_seq(
    topic_id: int, seqs: Sequence[int], bytes_max: int, page_bytes: int, size: Callable[[T], int]
) -> Generator[RecordsQuery, tuple[RecordsPlan, Sequence[T]], Found[T]]:
    found: dict[int, T] = {}
    damaged: set[int] = set()
    left: Sequence[int] = sorted(seqs)
    while left and bytes_max > 0:
        plan, records = yield RecordsQuery(topic_id=topic_id, seqs=left, bytes_max=min(bytes_max, page_bytes))
        damaged.update(plan.damaged)
        read = sum(map(size, records))
        if found and read > bytes_max:  # a page has one record at least
            break
        found.update(zip(plan.seqs, records, strict=True))
        bytes_max -= read
        left = plan.left
    return found, set(left), damaged
