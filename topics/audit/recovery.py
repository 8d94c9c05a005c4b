"""What a start would make of the directory, without a change to it: the state that rows are checked against.

Everything is asked of the code that a start runs (`host.directory.readstate`, `engine.recovery.judge`), so that fsck
and recovery cannot disagree on what is a torn tail, what is damage and what a reader would be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from topics.audit.scan.rows import SegmentRow, SegmentTask, Severity, Violation, WalRow, WalTask
from topics.engine.image import Snapshot
from topics.host.checkpoint.snapshots import find_snapshots, read_snapshot, snapshot_path
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import (
    Format,
    Identity,
    find_shards,
    find_wal_files,
    read_format,
    read_identity,
    wal_path,
)
from topics.host.directory.readstate import ReadState, read_state
from topics.host.segments.segment_seals import seal_by
from topics.kernel.errors import CannotOpen, Corrupt, Unusable
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId
from topics.log.segments import Segment
from topics.log.topic import Topic


@attrs.frozen(kw_only=True)
class RecoveredDirectory:
    """What was read. `wrong`: what is the matter with FORMAT, None if nothing. `snapshots`: the intact ones, the newest
    first; `damaged_snapshots`: of the others, what is the matter, by path.
    """

    form: Format
    identity: Identity
    wrong: str | None
    same_boot: bool
    cold: SegmentStore | None
    read: ReadState
    snapshots: Sequence[tuple[int, Snapshot]]
    damaged_snapshots: Mapping[str, str]

    @property
    def topics(self) -> Mapping[int, Topic]:
        return self.read.recovered.catalog.topics

    def name_of(self, topic_id: int) -> str:
        topic = self.topics.get(topic_id)
        return f"#{topic_id}" if topic is None else topic.name

    def violation(
        self, topic_id: int, file: str, check: str, seq: int | None, offset: int | None, detail: str
    ) -> Violation:
        """An error of this topic; 0 for one that is nobody's."""
        name = self.name_of(topic_id) if topic_id else ""
        return Violation(name, file, check, Severity.ERROR, seq, offset, detail)


def read(disk: Disk, where: str, *, same_boot: bool, cold: SegmentStore | None = None) -> RecoveredDirectory:
    """The state as a start would have it.

    Raises:
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed, or a file went away.
    """
    form, wrong = read_format_or_guess(disk, where)
    snapshots, damaged = [], {}
    for number in reversed(find_snapshots(disk)):
        try:
            snapshots.append((number, read_snapshot(disk, number)))
        except Corrupt as damage:
            damaged[snapshot_path(number)] = damage.message
    state = read_state(disk, form, same_boot=same_boot, cold=cold)
    return RecoveredDirectory(
        form=form,
        identity=read_identity(disk),
        wrong=wrong,
        same_boot=same_boot,
        cold=cold,
        read=state,
        snapshots=snapshots,
        damaged_snapshots=damaged,
    )


def read_format_or_guess(disk: Disk, where: str) -> tuple[Format, str | None]:
    """FORMAT; if it is damaged, what the log's directories say it must be, and what is wrong with it."""
    try:
        form = read_format(disk, where)
    except CannotOpen as error:
        shards = find_shards(disk)
        if error.reason is not Unusable.FOREIGN or not shards:
            raise
        generation = shards[-1][0]
        return Format(sum(found == generation for found, _ in shards), generation), error.message
    if form is None:
        raise CannotOpen(
            Unusable.MISSING, f"{where} holds no data directory of topics: it has no FORMAT", path=where
        )
    return form, None


def wal_tasks(disk: Disk) -> list[WalTask]:
    """Every file of the log, in the order of recovery."""
    return [
        WalTask(
            generation=file.generation, shard=file.shard, first_frame=file.first_frame, file=wal_path(file)
        )
        for key in find_shards(disk)
        for file in find_wal_files(disk, *key)
    ]


def segment_tasks(state: RecoveredDirectory, wal_rows: Sequence[WalRow] = ()) -> list[SegmentTask]:
    """Every segment that the state counts, and those that only a kept snapshot still needs."""
    catalog = state.read.recovered.catalog
    compare_from: dict[int, int] = {}
    for row in wal_rows:
        for span in row.spans:
            compare_from[span.topic_id] = min(span.first, compare_from.get(span.topic_id, span.first))
    return [
        SegmentTask(
            topic_id=topic_id,
            first=segment.first,
            last=segment.last,
            size=segment.size,
            sealed=segment.sealed,
            cold=segment.cold,
            stale=catalog.find_segment(SegmentId(topic_id, segment.first)) is None,
            compare_from=compare_from.get(topic_id),
            seal=seal_by(state.identity, topic_id, segment.first),
        )
        for (topic_id, _), segment in sorted(_segments(state).items())
    ]


def _segments(state: RecoveredDirectory) -> dict[tuple[int, int], Segment]:
    """By topic id and first seq; the state's own account of one goes before a snapshot's."""
    found: dict[tuple[int, int], Segment] = {}
    kept = dict.fromkeys(one.number for one in state.read.restored.kept)
    images = (
        image for number, snapshot in state.snapshots if number in kept for image in snapshot.state.topics
    )
    for topic in state.topics.values():
        found.update({(topic.topic_id, segment.first): segment for segment in topic.segments})
    for image in images:
        for segment in image.segments:
            found.setdefault((image.topic_id, segment.first), segment)
    return found


def current(
    state: RecoveredDirectory, rows: Sequence[SegmentRow]
) -> Iterator[tuple[Topic, list[SegmentRow]]]:
    """Each topic with the rows of the segments that it counts now, ascending."""
    by_topic: dict[int, dict[int, SegmentRow]] = {}
    for row in rows:
        by_topic.setdefault(row.task.topic_id, {})[row.task.first] = row
    for topic_id, topic in sorted(state.topics.items()):
        own = by_topic.get(topic_id, {})
        yield topic, [own[segment.first] for segment in topic.segments if segment.first in own]
