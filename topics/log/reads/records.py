"""A read by seqs: those that are there, in ascending order, whatever lies between them.

What a claim hands out, and what moves to another topic, is named by its seqs. A record that is damaged is named and
stands in nobody's way: nobody reads on behind it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from topics.kernel.grouped import grouped, values_at
from topics.kernel.limits import U32_MAX
from topics.log.reads.frames import FramesPlan, extents_at
from topics.log.topic import Topic


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one instance of a topic. `seqs` ascend, each is there once. `limit`, `bytes_max` (of data and meta as
    they are stored): of one page, which has one record at least. `damaged`: left out, for they were found so.
    """

    topic_id: int
    seqs: Sequence[int]
    limit: int = U32_MAX
    bytes_max: int = 1 << 20
    damaged: tuple[int, ...] = ()

    def without(self, damaged: Sequence[int]) -> RecordsQuery:
        """The same, but for these."""
        left = set(damaged)
        kept = [seq for seq in self.seqs if seq not in left]
        return msgspec.structs.replace(self, seqs=kept, damaged=(*self.damaged, *damaged))

    def after(self, plan: RecordsPlan) -> RecordsQuery | None:
        """The next page; None if there is none."""
        return msgspec.structs.replace(self, seqs=plan.left, damaged=()) if plan.left else None

    def limited(self, limit: int) -> RecordsQuery:
        return msgspec.structs.replace(self, limit=limit)


class RecordsPlan(FramesPlan, frozen=True, kw_only=True):
    """Which frames to fetch. `gone`: asked for, and not live. `left`: for the next page. `damaged`: as the query has
    them, which is how a page names those that it found.
    """

    gone: Sequence[int]
    left: Sequence[int]
    damaged: tuple[int, ...]


def plan(topic: Topic, query: RecordsQuery) -> RecordsPlan:
    """The plan of one page. Own TTL counts when a frame says so, as for whatever names seqs."""
    index, asked = topic.index, query.seqs
    places = index.find_all(asked)
    seqs, left = array("Q", asked), list[int]()
    gone = list[int]()
    if -1 in places:
        gone = [seq for seq, at in zip(asked, places, strict=True) if at < 0]
        seqs = array("Q", [seq for seq, at in zip(asked, places, strict=True) if at >= 0])
        places = [at for at in places if at >= 0]
    places = grouped(places)
    lengths, sizes = array("I", values_at(index.lengths, places)), values_at(index.sizes, places)
    if len(places) > query.limit or (sum(sizes) > query.bytes_max and len(places) > 1):
        fitting = min(max(bisect_right(list(accumulate(sizes)), query.bytes_max), 1), query.limit)
        first_left = seqs[fitting]
        left = list(asked[bisect_left(asked, first_left) :])
        gone = gone[: bisect_left(gone, first_left)]
        places = places[:fitting]
        del seqs[fitting:], lengths[fitting:]
    offsets = array("I", values_at(index.offsets, places))
    return RecordsPlan(
        topic=topic.name, topic_id=topic.topic_id, seqs=seqs, offsets=offsets, lengths=lengths,
        extents=extents_at(topic, seqs, offsets, lengths), gone=gone, left=left, damaged=query.damaged,
    )  # fmt: skip
