"""A topic as a value that can be kept: what a snapshot holds of it, and the topic made of that again (storage 5).

Slots up to `stored_seq` are in segments, so of them an image has only which are dead; the ones above it come whole, as
columns. An ephemeral topic's records are in no file: its image is that of a topic whose records are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from topics.kernel.config import Durability, TopicType, stored_config
from topics.kernel.errors import Corrupt
from topics.kernel.whole_numbers import Count, Generation, ShardNumber
from topics.log.facts import OF_RECORDS, STANDING, taken
from topics.log.index import LIVE, Index
from topics.log.jobs.image import JobsImage
from topics.log.kinds import kind_of
from topics.log.lost import LostRange
from topics.log.past import LOST, DeathCause, Gone, Slotless
from topics.log.regions import SegmentId, Source, WalFileId
from topics.log.segments import Segment, Segments
from topics.log.slots import Slots, append_slots, slots_between
from topics.log.topic import Topic

_SHORT: Final = 64  # seqs of a dead range; below it, what a call costs is more than what its seqs do
_TOGETHER: Final = 1 << 16  # seqs of one call, which holds each as an object
_Id = Annotated[int, msgspec.Meta(ge=1)]


class TopicImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Everything of a topic but the slots of its segments. `dead`: (first, last, end) among those.

    The order is that of the bytes. What goes into a field and comes out of it is told in `log.facts`.
    """

    topic_id: _Id
    name: str
    epoch: _Id
    config: dict[str, Any]
    head_seq: Count
    base_seq: Count
    evict_floor: Count
    lost_ts: Count
    reasons: dict[str, Count]
    lost: list[tuple[Count, Count, str, Count]]
    past: list[tuple[Count, Count, int]]
    delete_below: Count
    ceiling: Count
    retired_ms: Count
    watermark_ms: Count
    last_write_ts: Count
    results: list[tuple[bytes, Count, Count, Count, Count, list[tuple[Count, Count]]]]
    dedup_ids: list[tuple[bytes, Count, Count]]
    stored_seq: Count
    segments: list[Segment]
    dead: list[tuple[Count, Count, int]]
    slots: list[Slots]
    # Of `slots`: first seq, then the WAL file from there on.
    regions: list[tuple[Count, Generation, ShardNumber, Count]]
    jobs: JobsImage | None = None
    # Ids of records that were moved here, by seq; and of those that are on their way to another topic: seq, its name,
    # why, how often delivered, since when.
    moved_ids: list[tuple[bytes, Count]] = []
    moves: list[tuple[Count, str, bytes, Count, Count]] = []
    # By name: the last seq that the consumer has read, and since when it stands there.
    consumers: list[tuple[str, Count, Count]] = []
    # What a SCHEDULE frame said of one that stands, since when, and the latest instant that it has fired.
    schedules: list[tuple[bytes, Count, Count]] = []
    # Of each router into it: its id, the last seq of its source that it has dealt with, how many copies it has made.
    inbound: list[tuple[_Id, Count, Count]] = []

    @property
    def of_queue(self) -> bool:
        """Whether jobs and keys are to be known of its records."""
        return self.config.get("type") == TopicType.QUEUE.value


def take_image(topic: Topic) -> TopicImage:
    """The image of a topic as it is now."""
    index = topic.index
    fields = taken(topic, (*STANDING, *kind_of(topic).facts))
    if topic.config.durability is Durability.EPHEMERAL:
        fields["base_seq"] = index.head_seq + 1
        fields |= {name: [] for name in ("dead", "slots", "regions", *(fact.name for fact in OF_RECORDS))}
    else:
        behind = index.position(topic.segments.stored_seq + 1)
        fields |= taken(topic, OF_RECORDS)
        fields["dead"], fields["slots"] = index.ended(index.start, behind), _slots(index, behind)
        fields["regions"] = _wal_regions(topic, topic.segments.stored_seq + 1)
    return TopicImage(topic_id=topic.topic_id, **fields)


def topic_of(image: TopicImage, stored: Iterable[Slots]) -> Topic:
    """The topic of an image. `stored`: the slots of its segments, ascending, as their files say they are.

    Raises:
        Corrupt: image and slots do not fit together.
    """
    topic = Topic(image.topic_id, image.name, image.epoch, stored_config(image.config))
    topic.segments = Segments(list(image.segments), image.stored_seq)
    for fact in (*STANDING, *OF_RECORDS, *kind_of(topic).facts):
        if fact.give is not None:
            fact.give(topic, getattr(image, fact.name))
    _restore_index(topic, image, stored)
    if topic.jobs is not None:
        topic.jobs.restore(image.jobs)
    return topic


def _restore_index(topic: Topic, image: TopicImage, stored: Iterable[Slots]) -> None:
    index = topic.index
    index.base_seq, index.head_seq = image.base_seq, image.head_seq
    for lost in image.lost:
        index.lost.add(LostRange(*lost))
    between = (lost for lost in index.lost if lost.first >= index.base_seq)
    index.slotless = Slotless(Gone(lost.first, lost.last, LOST) for lost in between)
    for first, last, end in image.past:
        index.past.add(first, last, DeathCause(end))
    for slots in stored:
        append_slots(index, slots)
    if image.base_seq <= image.stored_seq:
        _check_count(topic, image.stored_seq + 1)
        _move_to_segments(topic, image)
    _kill(index, image.dead)
    for slots in image.slots:
        append_slots(index, slots)
    for first, generation, shard, first_frame in image.regions:
        topic.regions.extend(first, WalFileId(generation, shard, first_frame))
    _check_count(topic, index.head_seq + 1)
    _note_deadlines(topic)
    topic.let_go()


def _check_count(topic: Topic, stop: int) -> None:
    """Raises `Corrupt` unless each seq below `stop` that is not lost has its record."""
    index = topic.index
    expected = stop - index.base_seq - index.lost.count_below(stop) + index.lost.count_below(index.base_seq)
    found = len(index.flags)
    if found != expected:
        raise Corrupt(
            f"topic {topic.name!r}: {found} records are there, of {expected} that its snapshot counts",
            topic=topic.name,
        )


def _kill(index: Index, dead: Iterable[tuple[int, int, int]]) -> None:
    """These ranges are dead: the long ones one by one, the short ones together, for there may be very many of them."""
    short: dict[int, list[int]] = {}
    for first, last, end in dead:
        if last - first < _SHORT:
            seqs = short.setdefault(end, [])
            seqs += range(first, last + 1)
            if len(seqs) >= _TOGETHER:
                index.kill_seqs(seqs, DeathCause(end))
                seqs.clear()
        else:
            index.kill_range(index.position(first), index.position(last + 1), DeathCause(end))
    for end, seqs in short.items():
        index.kill_seqs(seqs, DeathCause(end))


def _wal_regions(topic: Topic, first: int) -> list[tuple[int, int, int, int]]:
    """Where in the WAL the records from `first` on are. A run of nothing but lost seqs is nowhere: it keeps no file."""
    index = topic.index
    return [
        (max(seq, first), *source)
        for seq, stop, source in topic.regions.spans(topic.head_seq + 1)
        if isinstance(source, WalFileId)
        and index.position(max(seq, first)) < index.position(max(stop, first))
    ]


def _move_to_segments(topic: Topic, image: TopicImage) -> None:
    for segment in image.segments:
        if segment.last >= image.base_seq:
            source: Source = SegmentId(topic.topic_id, segment.first)
            topic.regions.extend(max(segment.first, image.base_seq), source)


def _note_deadlines(topic: Topic) -> None:
    index = topic.index
    if index.expires is None:
        return
    for at in range(index.start, index.stop):
        if index.flags[at] & LIVE and index.expires[at]:
            topic.deadlines.add(index.expires[at], index.seq_at(at))


def _slots(index: Index, start: int) -> list[Slots]:
    """The slots from `start` on, in pieces in which the seqs follow one another."""
    spans = index.spans(start, index.stop)
    return [slots_between(index, index.position(first), index.position(behind)) for first, behind in spans]
