"""The state that a repair keeps: the read-only view, in which what cannot be had any more is lost (storage 4).

A topic's image is taken and changed as a value; nothing else of the state is touched. What was lost gets a `corrupt`
lost range, so a reader is told; if it stood at the front, `earliest_seq` moves behind it, and the dead slots it leaves
in front are remembered as what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from topics.audit.repair.salvage import Salvaged
from topics.kernel.config import Durability
from topics.log.floors import Reason
from topics.log.image import TopicImage, take_image
from topics.log.index import LIVE, Index
from topics.log.segments import Segment
from topics.log.topic import Topic


def changed_image(
    topic: Topic, kept: Sequence[Segment], salvaged: Salvaged, ts: int, *, missing: int
) -> TopicImage:
    """The image of a topic all of whose records are in segments: those `kept` as they are, and what was salvaged.
    `missing`: how many seqs behind the head may have been given out, and are lost too.
    """
    image = moved_on(topic, missing)
    index = topic.index
    gone = frozenset(salvaged.lost)
    segments = sorted([*kept, *salvaged.segments], key=attrgetter("first"))
    base = _base(index, gone) or image.head_seq + 1
    dead = index.ended(index.start, index.stop)
    behind = [(index.head_seq + 1, image.head_seq)] if missing else []
    image.lost = _merged(image.lost, [*((seq, seq) for seq in sorted(gone)), *behind], ts)
    image.past = [*image.past, *(one for one in _clipped(dead, topic.evict_floor, base - 1))]
    image.dead = _clipped(dead, base, index.head_seq)  # of what is behind there is no slot
    image.base_seq = base
    image.segments = [segment for segment in segments if segment.last >= base]
    image.stored_seq = image.segments[-1].last if image.segments else max(index.head_seq, image.stored_seq)
    image.slots, image.regions = [], []
    return image


def moved_on(topic: Topic, missing: int) -> TopicImage:
    """The image of a topic of which so many more seqs may have been given out: none of them is given out again.

    An ephemeral topic goes to its ceiling with every start, and says that what was below is lost.
    """
    image = take_image(topic)
    if topic.config.durability is Durability.EPHEMERAL:
        image.ceiling = max(image.ceiling, image.head_seq) + missing
    else:
        image.head_seq += missing
    return image


def new_losses(image: TopicImage, before: TopicImage | None) -> list[tuple[int, int]]:
    """The seqs, as ranges, that are lost by damage, and were not in the image `before`."""
    corrupt = Reason.CORRUPT.value
    known = [] if before is None else [(one[0], one[1], 0) for one in before.lost if one[2] == corrupt]
    new: list[tuple[int, int]] = []
    for first, last, reason, _ in image.lost:
        if reason == corrupt:
            at = first
            for a, b, _ in _clipped(known, first, last):
                if at < a:
                    new.append((at, a - 1))
                at = b + 1
            if at <= last:
                new.append((at, last))
    return new


def _base(index: Index, gone: frozenset[int]) -> int:
    """The first seq that is live and not lost; 0 if there is none."""
    for at in range(index.start, index.stop):
        if index.flags[at] & LIVE and (seq := index.seq_at(at)) not in gone:
            return seq
    return 0


def _clipped(ranges: Sequence[tuple[int, int, int]], first: int, last: int) -> list[tuple[int, int, int]]:
    """What of the ranges lies in [first, last]."""
    return [(max(a, first), min(b, last), end) for a, b, end in ranges if a <= last and b >= first]


def _merged(
    lost: Sequence[tuple[int, int, str, int]], gone: Sequence[tuple[int, int]], ts: int
) -> list[tuple[int, int, str, int]]:
    """Lost ranges and those that are new, ascending."""
    corrupt = Reason.CORRUPT.value
    ranges = sorted([*lost, *((first, last, corrupt, ts) for first, last in gone)])
    merged: list[tuple[int, int, str, int]] = []
    for one in ranges:
        if merged and merged[-1][1] + 1 == one[0] and merged[-1][2] == one[2] == corrupt:
            merged[-1] = (merged[-1][0], one[1], corrupt, max(merged[-1][3], one[3]))
        else:
            merged.append(one)
    return merged
