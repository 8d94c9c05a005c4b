"""What a start takes from snapshots and segments before it replays the log, and what of them it mends (storage 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from topics.engine.apply import Catalog
from topics.engine.image import Place, Snapshot, catalog_of
from topics.engine.recover import DamageReport
from topics.host.layout import segment_path
from topics.host.segments import load_slots, mend_idx
from topics.host.snapshots import KEPT_MAX, Kept, find_snapshots, read_snapshot, snapshot_path
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.image import TopicImage
from topics.log.regions import SegmentId
from topics.log.segments import Segment
from topics.log.slots import Slots


@attrs.frozen(kw_only=True)
class Restored:
    """The state at the newest intact snapshot's cut, or an empty one. `places`: where each shard's log is, by
    (generation, shard). `wrong`: what is the matter with other snapshots. `number`: above all that were ever there.
    """

    catalog: Catalog
    places: Mapping[tuple[int, int], Place]
    kept: Sequence[Kept]
    damages: Sequence[DamageReport]
    wrong: Sequence[str]
    number: int


def restore(disk: Disk) -> Restored:
    """Read the newest snapshot that is intact and fits its segments; what is wrong with newer ones is told.

    Without one recovery begins at the log's first frame, and says so if that is not there any more.

    Raises:
        OSError: the disk failed.
    """
    kept: list[Kept] = []
    wrong: list[str] = []
    catalog, damages = Catalog(), list[DamageReport]()
    numbers = find_snapshots(disk)
    for number in reversed(numbers):
        try:
            snapshot = read_snapshot(disk, number)
            if not kept:
                catalog, damages = _state_of(disk, snapshot)
        except Corrupt as damage:
            wrong.append(f"{snapshot_path(number)}: {damage.message}")
            continue
        kept.append(Kept.of(number, snapshot))
        if len(kept) == KEPT_MAX:
            break
    return Restored(
        catalog=catalog,
        places={(place.generation, place.shard): place for place in kept[0].places} if kept else {},
        kept=kept,
        damages=damages,
        wrong=wrong,
        number=max(numbers, default=0) + 1,
    )


def short_segments(disk: Disk, catalog: Catalog) -> list[DamageReport]:
    """Segments with less data than the marks count: a look at each file's size, for their records are not read."""
    return [
        DamageReport(
            file=SegmentId(topic.topic_id, segment.first),
            offset=size,
            why=f"{segment.size - size} of {segment.size} bytes are not there",
            topic=topic.name,
            first_seq=segment.first,
            last_seq=segment.last,
        )
        for topic in catalog.topics.values()
        for segment in topic.segments
        if (size := disk.size(segment_path(topic.topic_id, segment.first, "data")) or 0) < segment.size
    ]


def mend(disk: Disk, catalog: Catalog) -> None:
    """Make good what a crash or damage left of each idx, before anything is appended to it."""
    for topic in catalog.topics.values():
        for segment in topic.segments:
            if not segment.sealed:
                mend_idx(disk, topic.topic_id, segment)


def _state_of(disk: Disk, snapshot: Snapshot) -> tuple[Catalog, list[DamageReport]]:
    """The state at a snapshot's cut, and what of its segments is damaged. Raises `Corrupt` if they do not fit it."""
    damages: list[DamageReport] = []
    stored = [_stored(disk, image, damages) for image in snapshot.state.topics]
    return catalog_of(snapshot.state, stored), damages


def _stored(disk: Disk, image: TopicImage, damages: list[DamageReport]) -> list[Slots]:
    """The slots of a topic's segments."""
    found = []
    for segment in image.segments:
        if segment.last < image.base_seq:
            continue
        slots, wrong = load_slots(disk, image.topic_id, segment, image.base_seq)
        found.append(slots)
        if wrong:
            damages.append(_report(image, segment, wrong))
    return found


def _report(image: TopicImage, segment: Segment, why: str) -> DamageReport:
    return DamageReport(
        file=SegmentId(image.topic_id, segment.first),
        offset=0,
        why=why,
        topic=image.name,
        first_seq=segment.first,
        last_seq=segment.last,
    )
