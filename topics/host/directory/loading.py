"""What a start takes from snapshots and segments before it replays the log, and what of them it mends (storage 4)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter

import attrs
import msgspec

from topics.codec.log.frame import FrameView, decode_frame
from topics.codec.log.layout import FRAME_OVERHEAD, Defect
from topics.codec.segments.segidx import ENTRY_SIZE
from topics.codec.segments.segment import END_SIZE, walk
from topics.engine.apply import Catalog
from topics.engine.image import LogPlace, Snapshot, catalog_of
from topics.engine.recovery.recover import DamageReport
from topics.host.checkpoint.snapshots import KEPT_MAX, Kept, find_snapshots, read_snapshot, snapshot_path
from topics.host.cold.cold_disk import ColdBehind
from topics.host.directory.layout import segment_path, wal_path
from topics.host.segments.blocks import read_data
from topics.host.segments.segment_files import (
    LoadedSegment,
    data_end,
    load_idx,
    load_slots,
    mend_columns,
    mend_idx,
    size_here,
)
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.kernel.errors import Corrupt
from topics.kernel.limits import UNSEEN_RECORDS_MAX
from topics.kernel.ports import Disk
from topics.log.image import TopicImage
from topics.log.index import LIVE
from topics.log.placing.places import absent, drop_places, places_end
from topics.log.regions import SegmentId, WalFileId
from topics.log.segments import Segment
from topics.log.slots import Slots
from topics.log.topic import Topic


@attrs.frozen(kw_only=True)
class LoadedState:
    """The state at the newest intact snapshot's cut, or an empty one. `places`: where each shard's log is, by
    (generation, shard). `unsure`: segments whose idx did not fit its data, or in which records have no bytes; with the
    seqs of those of which it is not known what labels they have. `labelled`: segments whose columns were found to be
    whole and their own, and up to which seq.
    `wrong`: what is the matter with other snapshots. `number`: above all that were ever there.
    """

    catalog: Catalog
    places: Mapping[tuple[int, int], LogPlace]
    kept: Sequence[Kept]
    unsure: Mapping[SegmentId, Sequence[int]]
    labelled: Mapping[SegmentId, int]
    wrong: Sequence[str]
    number: int


@attrs.frozen(kw_only=True)
class Settled:
    """`damages`: records that are not dead and have no bytes. `unfit`: those whose idx is to be made anew."""

    damages: Sequence[DamageReport]
    unfit: Sequence[tuple[int, Segment]]


def load_newest_snapshot(disk: Disk) -> LoadedState:
    """Read the newest snapshot that is intact and fits its segments; what is wrong with newer ones is told.

    Without one recovery begins at the log's first frame, and says so if that is not there any more.

    Raises:
        OSError: the disk failed.
    """
    kept: list[Kept] = []
    wrong: list[str] = []
    state = SnapshotState(catalog=Catalog())
    numbers = find_snapshots(disk)
    for number in reversed(numbers):
        try:
            snapshot = read_snapshot(disk, number)
            if not kept:
                state = snapshot_state(disk, snapshot)
        except Corrupt as damage:
            wrong.append(f"{snapshot_path(number)}: {damage.message}")
            continue
        kept.append(Kept.of(number, snapshot))
        if len(kept) == KEPT_MAX:
            break
    return LoadedState(
        catalog=state.catalog,
        places={(place.generation, place.shard): place for place in kept[0].places} if kept else {},
        kept=kept,
        unsure=state.unsure,
        labelled=state.labelled,
        wrong=wrong,
        number=max(numbers, default=0) + 1,
    )


def settle_rewritten(
    disk: ColdBehind, catalog: Catalog, unsure: Mapping[SegmentId, Sequence[int]]
) -> Settled:
    """Behind the log: where the records of each rewritten segment lie now, and which records are not there at all.

    A rewrite is in no log, so what the marks say of its segment's size and places is stale. It takes only what is dead
    in the state that the log gives, whichever snapshot that began with: a record that is not dead and has no bytes is
    damage. Costs a look at each file's size; nothing is changed on the disk.

    Data that is not here is in the cold tier if the log says so, or if it is there: a repair may have taken the mark.
    """
    damages: list[DamageReport] = []
    unfit: list[tuple[int, Segment]] = []
    for topic in catalog.topics.values():
        for counted in list(topic.segments):
            named = SegmentId(topic.topic_id, counted.first)
            here = size_here(disk, topic.topic_id, counted)
            segment = _moved(disk, topic, counted) if here is None else counted
            size = here or 0
            if segment.cold:
                stale = places_end(topic.index, segment.first, segment.last) != segment.size
            else:
                stale = size < segment.size or (segment.sealed and size != segment.size)
            if stale or named in unsure:
                rebuilt = _place(disk, topic, segment, segment.size if segment.cold else size)
                drop_places(topic.index, unsure.get(named, ()))
                if gone := absent(topic.index, segment.first, segment.last):
                    topic.note_damage(segment)
                    topic.segments.resize(segment.first, segment.size)  # so that the next start asks again
                    damages.append(_absent(disk, topic, segment, gone))
                elif rebuilt:
                    unfit.append((topic.topic_id, segment))
    return Settled(damages=damages, unfit=unfit)


def _moved(disk: ColdBehind, topic: Topic, segment: Segment) -> Segment:
    """A segment of which no data is here, not even an empty file: it counts as cold if the cold tier has all of it."""
    named = SegmentId(topic.topic_id, segment.first)
    if segment.cold or not segment.sealed or not disk.has(named, segment.size):
        return segment
    topic.segments.move(segment.first, size=segment.size, cold=True)
    return msgspec.structs.replace(segment, cold=True)


def mend(
    disk: Disk,
    catalog: Catalog,
    unfit: Sequence[tuple[int, Segment]],
    labelled: Mapping[SegmentId, int],
) -> None:
    """Make good what a crash or damage left of each idx and `.col`, before anything is appended to it or depends on it.

    A segment that lacks records is left as it is: its idx may know more of them than its data.
    """
    for topic in catalog.topics.values():
        for segment in topic.segments:
            if segment.first in topic.segments.damaged:
                continue
            held = labelled.get(SegmentId(topic.topic_id, segment.first)) == segment.last
            if not segment.sealed:
                mend_idx(disk, topic.topic_id, segment)
            if not held:
                mend_columns(disk, topic.topic_id, segment, of_queue=topic.index.of_queue)
    for topic_id, segment in unfit:
        mend_idx(disk, topic_id, segment)


@attrs.frozen
class SnapshotState:
    """The state at a snapshot's cut; `unsure` and `labelled` as in `LoadedState`."""

    catalog: Catalog
    unsure: dict[SegmentId, Sequence[int]] = attrs.field(factory=dict)
    labelled: dict[SegmentId, int] = attrs.field(factory=dict)


def snapshot_state(disk: Disk, snapshot: Snapshot) -> SnapshotState:
    """Raises `Corrupt` if the segments do not fit it."""
    _check_counts(disk, snapshot)
    unsure, labelled = dict[SegmentId, Sequence[int]](), dict[SegmentId, int]()
    stored = [_stored(disk, image, unsure, labelled) for image in snapshot.state.topics]
    for image in snapshot.state.topics:
        if image.of_queue:
            _tell_jobs(disk, image)
    return SnapshotState(catalog_of(snapshot.state, stored), unsure, labelled)


def _check_counts(disk: Disk, snapshot: Snapshot) -> None:
    """Raises `Corrupt` if it counts far more records in segments than their files can hold: each takes memory (I-18).

    What is lost of a segment is told record by record, so many may be missing: as many as are there, and a million.
    """
    seen = unseen = 0
    for image in snapshot.state.topics:
        for segment in image.segments:
            there = min(_records_shown(disk, image.topic_id, segment), segment.count)
            seen += there
            unseen += segment.count - there
    if unseen > UNSEEN_RECORDS_MAX + seen:
        raise Corrupt(
            f"snapshot: {unseen} of the {seen + unseen} records that it counts in segments are in no file of "
            f"topics/: if the files are gone, put them back from a backup",
            field="segments",
        )


def _records_shown(disk: Disk, topic_id: int, segment: Segment) -> int:
    """How many records the files of a segment can hold, by their sizes."""
    entries = (disk.size(segment_path(topic_id, segment.first, "idx")) or 0) // ENTRY_SIZE
    if entries >= segment.count:
        return entries
    return max(entries, (size_here(disk, topic_id, segment) or 0) // (FRAME_OVERHEAD + END_SIZE))


def _stored(
    disk: Disk, image: TopicImage, unsure: dict[SegmentId, Sequence[int]], labelled: dict[SegmentId, int]
) -> list[Slots]:
    """The slots of a topic's segments."""
    found: list[LoadedSegment] = []
    for segment in image.segments:
        if segment.last < image.base_seq:
            continue
        named = SegmentId(image.topic_id, segment.first)
        loaded = load_slots(disk, image.topic_id, segment, image.base_seq, of_queue=image.of_queue)
        found.append(loaded)
        if loaded.labelled:
            labelled[named] = segment.last
        if loaded.rebuilt or loaded.holes or loaded.unlabelled:
            unsure[named] = [seq for seq, _ in loaded.unlabelled]
    if any(loaded.undated for loaded in found):
        _date(found, image)
    return [loaded.slots for loaded in found]


def _tell_jobs(disk: Disk, image: TopicImage) -> None:
    """What a snapshot of an earlier build does not say of a queue's jobs, which no segment has: their frames do."""
    for slots in image.slots:
        if slots.of_queue:
            continue
        jobs, keys = [0] * len(slots), [b""] * len(slots)
        places = zip(array("I", slots.offsets), array("I", slots.lengths), slots.flags, strict=True)
        for at, (offset, length, flags) in enumerate(places):
            view = _frame_in_log(disk, image, slots.first_seq + at, offset, length) if flags & LIVE else None
            if view is not None:
                jobs[at], keys[at] = view.job, view.key
        slots.tell_jobs(jobs, keys)


def _frame_in_log(disk: Disk, image: TopicImage, seq: int, offset: int, length: int) -> FrameView | None:
    """The record, None if it is not to be had: whoever is to read it will say so."""
    number = bisect_right(image.regions, seq, key=itemgetter(0)) - 1
    if number < 0:
        return None
    path = wal_path(WalFileId(*image.regions[number][1:]))
    try:
        with unreadable_on_error():
            view = decode_frame(disk.read(path, offset, length), 0)
    except (Corrupt, FileNotFoundError, Unreadable):
        return None
    return view if (view.topic_id, view.seq) == (image.topic_id, seq) else None


def _date(found: Sequence[LoadedSegment], image: TopicImage) -> None:
    """A lost record whose time is lost too is as young as the one behind it: times ascend, and it ends not too soon."""
    behind = next((array("Q", slots.ts)[0] for slots in image.slots), image.last_write_ts)
    for loaded in reversed(found):
        times, lengths = array("Q", loaded.slots.ts), array("I", loaded.slots.lengths)
        for at in range(len(times) - 1, -1, -1):
            if loaded.undated and not lengths[at]:
                times[at] = behind
            behind = times[at]
        loaded.slots.ts = times.tobytes()


def _place(disk: Disk, topic: Topic, segment: Segment, size: int) -> bool:
    """Take the places of a segment's records from its files. True if its idx had to be made anew."""
    idx, rebuilt = load_idx(disk, topic.topic_id, segment)
    if segment.sealed and data_end(idx) != size:  # there is more behind it, of an append that was broken off
        size = min(size, segment.size)
    topic.place_segment(segment, idx.offsets, idx.lengths, size=size if segment.sealed else segment.size)
    return rebuilt


def _absent(disk: Disk, topic: Topic, segment: Segment, seqs: Sequence[int]) -> DamageReport:
    path = segment_path(topic.topic_id, segment.first, "data")
    data = read_data(disk, topic.topic_id, segment)
    found = walk(data, 0, len(data), topic_id=topic.topic_id, first_seq=segment.first)
    return DamageReport(
        file=SegmentId(topic.topic_id, segment.first),
        offset=0,
        why=f"{len(seqs)} of {segment.count} records are not in {path}",
        topic=topic.name,
        first_seq=seqs[0],
        last_seq=seqs[-1],
        newer=any(damage.defect is Defect.UNKNOWN for damage in found.damages),
    )
