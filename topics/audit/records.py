"""The live records of a topic, as a reader would get them: for checks that must see data, not only that it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topics.codec.frame import FrameView
from topics.host.compress import decompress
from topics.host.reading import Reader
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.diff import DiffQuery, assemble, plan
from topics.log.regions import SegmentId
from topics.log.topic import Topic

PAGE_RECORDS: Final = 1000
PAGE_BYTES: Final = 8 * MIB


def read_records(
    disk: Disk, topic: Topic, from_seq: int = 0, to_seq: int | None = None
) -> Iterator[FrameView]:
    """The live records above `from_seq`, up to `to_seq`; the data of each as it was given.

    Raises:
        Corrupt: a record is damaged; its seq is in the detail.
        OSError: a file is not there (any more).
    """
    reader = Reader(disk)
    stop = topic.head_seq if to_seq is None else min(to_seq, topic.head_seq)
    while from_seq < stop:
        query = DiffQuery(topic=topic.name, from_seq=from_seq, limit=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        page = plan(topic, query, now_ms=0, durable_seq=topic.head_seq)
        for view in assemble(page, [reader.read(extent) for extent in page.extents]):
            if view.seq > stop:
                return
            if view.compressed:
                yield view.with_data(decompress(view.data))
            else:
                yield view
        from_seq = page.next_from_seq


def is_at_hand(topic: Topic) -> bool:
    """False if some of its records are in the cold tier, which is not asked."""
    cold = {segment.first for segment in topic.segments if segment.cold}
    spans = topic.regions.spans(topic.head_seq + 1)
    return not any(isinstance(source, SegmentId) and source.first_seq in cold for _, _, source in spans)
