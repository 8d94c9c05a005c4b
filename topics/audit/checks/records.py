"""The live records of a topic, as a reader would get them: for checks that must see data, not only that it is whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from topics.audit.checks.coldtier import HOW
from topics.audit.scan.rows import Ranges
from topics.codec.log.frame import FrameView
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import path_of
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.reads.diff import DiffPlan, DiffQuery, plan
from topics.log.reads.frames import Extent
from topics.log.regions import SegmentId
from topics.log.topic import Topic
from topics.store.reading import read_page

PAGE_RECORDS: Final = 1000
PAGE_BYTES: Final = 8 * MIB


def read_records(
    disk: Disk, topic: Topic, from_seq: int = 0, to_seq: int | None = None
) -> Iterator[FrameView]:
    """The live records above `from_seq`, up to `to_seq`; the data of each as it was given.

    Raises:
        Corrupt: a record is damaged. `seq` in the detail is the first that is, `last_seq` of those right behind it.
        FileNotFoundError: a file is not there (any more).
        OSError: the disk failed.
    """
    stop = topic.head_seq if to_seq is None else min(to_seq, topic.head_seq)

    def plan_page(query: DiffQuery) -> DiffPlan:
        return _up_to(plan(topic, query, now_ms=0, durable_seq=topic.head_seq), stop)

    def read(extent: Extent) -> bytes:
        return disk.read(path_of(extent.source), extent.offset, extent.size)

    while from_seq < stop:
        query = DiffQuery(topic=topic.name, from_seq=from_seq, limit=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        try:
            page, views = read_page(query, plan_page, read)
        except Corrupt as damage:
            reason = damage.__cause__
            assert isinstance(reason, Corrupt)
            raise Corrupt(reason.message, **damage.detail) from reason
        yield from views
        from_seq = page.next_from_seq


def _up_to(page: DiffPlan, stop: int) -> DiffPlan:
    """What of a page has seqs up to `stop`."""
    if page.next_from_seq <= stop:
        return page
    count = bisect_right(page.seqs, stop)
    extents = [extent for extent in page.extents if extent.first < count]
    if extents and extents[-1].first + extents[-1].count > count:
        last = extents[-1]
        end = page.offsets[count - 1] + page.lengths[count - 1]
        extents[-1] = msgspec.structs.replace(last, size=end - last.offset, count=count - last.first)
    return msgspec.structs.replace(page, next_from_seq=stop, seqs=page.seqs[:count], extents=tuple(extents))


def read_intact(
    disk: Disk, topic: Topic, from_seq: int, to_seq: int, told: Callable[[int, int, str], None]
) -> Iterator[FrameView]:
    """`read_records` of all that can be read: `told` is called with the first and last seq of what cannot, and why."""
    while True:
        try:
            yield from read_records(disk, topic, from_seq, to_seq)
            return
        except Corrupt as damage:
            first, last = damage.detail["seq"], damage.detail["last_seq"]
            assert isinstance(first, int)
            assert isinstance(last, int)
            assert from_seq < first <= last <= to_seq
            told(first, last, damage.message)
            from_seq = last


def out_of_reach(topic: Topic, cold: SegmentStore | None) -> Ranges:
    """The seqs of its records in cold segments that nobody can read: there is no store, or it lacks their data."""
    segments = dict.fromkeys(
        segment
        for segment in (SegmentId(topic.topic_id, one.first) for one in topic.segments if one.cold)
        if cold is None or not cold.exists(segment, "data")
    )
    ranges: list[tuple[int, int]] = []
    for start, stop, source in topic.regions.spans(topic.head_seq + 1):
        first, last = max(start, topic.index.base_seq), stop - 1
        if first > last or isinstance(source, bytes) or source not in segments:
            continue
        if ranges and ranges[-1][1] + 1 == first:
            first = ranges.pop()[0]
        ranges.append((first, last))
    return tuple(ranges)


def name_ranges(ranges: Ranges) -> str:
    """As in a sentence: `seq 7`, `seqs 7 to 9`, `12 seqs from 7 to 30`."""
    first, last = ranges[0][0], ranges[-1][1]
    if first == last:
        return f"seq {first}"
    if len(ranges) == 1:
        return f"seqs {first} to {last}"
    return f"{sum(last - first + 1 for first, last in ranges)} seqs from {first} to {last}"


def why_out_of_reach(cold: SegmentStore | None) -> str:
    """What to do about it."""
    return HOW if cold is None else f"their data is not in {cold.where}"
