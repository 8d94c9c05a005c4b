"""`fsck --repair`: a directory that holds what its read-only view shows, and opens for writing again (storage 4).

Whoever repairs owns the directory. Nothing is deleted: what is taken out of use goes to `repaired-<time>/`. The order:

    1  what nobody counts, and would be in the way, is put aside
    2  from damaged segments and from the log every intact record goes into new segments, synced; those of names that
       are in use keep temporary ones. If the disk fails, they are removed again
    3  FORMAT names a generation of the log that has not begun
    4  a snapshot of the view, with what is gone as `corrupt` lost ranges, is renamed into place: the commit
    5  new files take the names that were in use; the old log, snapshots and segments are put aside
    6  LOCK is put aside, so that the next start takes the machine as restarted and reuses no seq that was seen
    7  a cold segment that was damaged is hot now: its old data is copied aside, then it goes from the cold tier, if
       that is ours. Last, for a tier that is read-only keeps it, and the rest is done

A crash before 4 leaves the damaged directory as it was to all who read it; behind it, a repaired one. Run it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import attrs
import msgspec

from topics.audit.checks.coldtier import check_cold
from topics.audit.fsck import Options, examine
from topics.audit.recovery import RecoveredDirectory, read, segment_tasks, wal_tasks
from topics.audit.repair.free_space import REPLACED, check_room
from topics.audit.repair.kept_state import changed_image, moved_on, new_losses
from topics.audit.repair.missing_frames import Hole, find_holes, seqs_missing, topics_in_doubt
from topics.audit.repair.quarantine import Aside
from topics.audit.repair.salvage import Salvaged, of_log, of_segment, put_in_place, write_segments
from topics.audit.repair.two_tiers import TwoTiers
from topics.audit.scan.rows import SegmentRow, Severity, Violation, WalRow
from topics.audit.scan.scan import scan_all
from topics.engine.image import LogPlace, Snapshot, StateImage, catalog_of, image_of
from topics.engine.recovery.recover import ShardKey
from topics.host.checkpoint.snapshots import META_DIR, find_snapshots, snapshot_path, write_snapshot
from topics.host.cold.cold_disk import ColdBehind
from topics.host.cold.cold_messages import told_foreign
from topics.host.cold.ownership import NOTE_FILE, Whose, is_foreign, note_of, whose
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import (
    FORMAT_FILE,
    Format,
    Identity,
    find_shards,
    segment_path,
    write_format,
)
from topics.host.directory.missing_logs import begun_shards
from topics.host.directory.owner import LOCK_NAME, owner_on
from topics.host.directory.raising import new_format
from topics.host.segments.segment_files import data_size, load_slots
from topics.host.system.entropy import SystemEntropy
from topics.host.system.readonly import WithCold
from topics.kernel.config import Durability
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk, Entropy
from topics.log.image import TopicImage
from topics.log.segments import Segment
from topics.log.topic import Topic

PARTS: Final = (*REPLACED, "del")
_REMADE: Final = frozenset(
    {"segment.record", "segment.flag", "segment.idx", "segment.col", "segment.del", "segment.deletes"}
)
_ORPHANS: Final = frozenset({"leftover", "segment.overlap"})


@attrs.frozen(kw_only=True)
class Repair:
    """What was done. `aside`: the directory with what was taken out of use, "" if nothing had to be done.

    `lost`: by topic the ranges of seqs, both ends included, that were promised and cannot be had. Of `missing` of them,
    behind the topic's last record, it is known only that no more were given out. `holes`: damage in the log of which
    nothing says what was there, deletes maybe, of the topics `in_doubt`. `dropped`: the seqs of damaged records that
    had been deleted or had expired, so that nobody misses them. `left`: what a repair cannot make good.
    """

    found: Sequence[Violation]
    aside: str
    lost: Mapping[str, Sequence[tuple[int, int]]]
    segments: int
    left: Sequence[Violation]
    dropped: Mapping[str, Sequence[int]] = attrs.field(factory=dict)
    missing: Mapping[str, int] = attrs.field(factory=dict)
    holes: Sequence[Hole] = ()
    in_doubt: Sequence[str] = ()


def repair(
    disk: Disk, *, where: str, same_boot: bool, stamp: str, cold: SegmentStore | None = None,
    entropy: Entropy | None = None,
) -> Repair:  # fmt: skip
    """Repair a directory that the caller owns, and that nobody has open. `stamp` names where old files go. `cold`: its
    cold tier, whose damaged segments become hot ones of what is intact of them. `entropy`: the system's by default.

    Raises:
        CannotOpen: no data directory, a newer one, one that no snapshot tells the topics of, or whose cold tier is
            not named, or is another's and has not what it should have.
        OSError: the disk or the cold tier failed; run it again.
    """
    _check_named(disk, cold, where)
    state, rows, found = _look(disk, where, same_boot=same_boot, cold=cold)
    aside = Aside(disk, f"repaired-{stamp}")
    if not any(one.severity is Severity.ERROR for one in found):  # the rest every start makes good by itself
        moved = _put_orphans_aside(found, aside)
        rest = [one for one in found if one.check not in _ORPHANS]
        return Repair(found=found, aside=aside.directory if moved else "", lost={}, segments=0, left=rest)
    _check_known(found, where)
    _check_telling(state, where)
    _check_ours(disk, state, rows, where)
    wanted = _remade(state, rows, found)
    entropy = entropy or SystemEntropy()
    tiers = TwoTiers(disk, cold, entropy)
    check_room(disk, tiers.seen, state, wanted, where)
    _put_orphans_aside(found, aside)
    ts = state.read.recovered.catalog.high_ts
    holes = find_holes(disk, state)
    missing = seqs_missing(state, holes)
    shards, known = find_shards(disk), _known_shards(disk, state)
    older = find_snapshots(disk)
    with _given_back(disk, snapshot_path(state.read.restored.number)):
        renewed = [
            _renewed(tiers, topic, wanted.get(topic.topic_id, ()), ts, missing=missing.get(topic.topic_id, 0))
            for topic in _topics(state)
        ]
        snapshot = _snapshot_of(state, [one.image for one in renewed], known, ts, holes)
        _check_readable(ColdBehind(disk, cold), snapshot)
        aside.copy(FORMAT_FILE)
        write_format(disk, _next_format(state.form, state.identity, known, entropy))
        write_snapshot(disk, state.read.restored.number, snapshot)
    for one in renewed:
        one.finish(disk, aside)
    aside.take_logs(shards)
    for number in older:
        aside.take(snapshot_path(number))
    aside.take(LOCK_NAME)
    aside.sync()
    for one in renewed:
        one.leave_cold(tiers, aside)
    tiers.end_changes()
    left = _look(disk, where, same_boot=False, cold=cold)[2]
    return Repair(
        found=found,
        aside=aside.directory,
        lost=_losses(state, [one.image for one in renewed]),
        segments=sum(len(one.salvaged.segments) for one in renewed),
        left=left,
        dropped={one.topic.name: one.salvaged.dropped for one in renewed if one.salvaged.dropped},
        missing={state.name_of(topic_id): count for topic_id, count in missing.items()},
        holes=[hole for hole in holes if not hole.seq],
        in_doubt=topics_in_doubt(state, holes),
    )


@contextmanager
def _given_back(disk: Disk, commit: str) -> Iterator[None]:
    """What is written up to the commit is copies of what is there: if the disk fails before that, they are removed."""
    before = dict.fromkeys(_segment_files(disk))
    try:
        yield
    except OSError:
        if disk.size(commit) is None:
            with suppress(OSError):  # the first error is the one to tell
                for path in _segment_files(disk):
                    if path not in before:
                        disk.unlink(path)
        raise


def _segment_files(disk: Disk) -> list[str]:
    folders = [f"topics/{name}" for name in disk.names("topics")]
    return [f"{folder}/{name}" for folder in folders for name in disk.names(folder)]


def _look(
    disk: Disk, where: str, *, same_boot: bool, cold: SegmentStore | None
) -> tuple[RecoveredDirectory, Sequence[SegmentRow], Sequence[Violation]]:
    """The read-only view, what its files hold, and what is wrong with them."""
    state = read(disk, where, same_boot=same_boot, cold=cold)
    seen = disk if cold is None else WithCold(disk, cold)
    wal_rows = [row for row in scan_all(seen, wal_tasks(disk)) if isinstance(row, WalRow)]
    rows = [row for row in scan_all(seen, segment_tasks(state, wal_rows)) if isinstance(row, SegmentRow)]
    found = examine(seen, state, [*wal_rows, *rows], Options(settled=True))
    return state, rows, [*found, *check_cold(disk, state, rows)]


def _check_named(disk: Disk, cold: SegmentStore | None, where: str) -> None:
    """The cold tier must be named, and not be another store's: that has topics and seqs of the same numbers."""
    if cold is None and disk.size(NOTE_FILE) is not None:
        why = f"{where} has segments in a cold tier: name it (cold_dir) for a repair"
        raise CannotOpen(Unusable.MISSING, why, path=where)
    if cold is not None and is_foreign(note_of(disk), cold.read_owner()):
        raise CannotOpen(Unusable.FOREIGN, f"{where}: {told_foreign(cold.where)}", path=where)


def _check_known(found: Sequence[Violation], where: str) -> None:
    """What a newer version wrote is not damaged, and a repair by this one would drop it."""
    newer = next((one for one in found if one.check == "newer"), None)
    if newer is not None:
        why = f"{where}: {newer.file}, offset {newer.offset}: {newer.detail}. Repair it with that one"
        raise CannotOpen(Unusable.NEWER_FORMAT, why, path=where)


def _check_telling(state: RecoveredDirectory, where: str) -> None:
    """Without a snapshot only the whole log tells which topics there are: the rest would be put aside unnamed."""
    restored, recovered = state.read.restored, state.read.recovered
    if restored.kept or not recovered.damages or not (restored.wrong or not recovered.catalog.topics):
        return
    why = f"no snapshot is whole ({restored.wrong[0]})" if restored.wrong else "there is no snapshot"
    raise CannotOpen(
        Unusable.FOREIGN,
        f"{where}: {why}, and the log does not reach back to the beginning. A repair would keep little; restore the "
        "directory from a backup",
        path=where,
    )


def _check_ours(disk: Disk, state: RecoveredDirectory, rows: Sequence[SegmentRow], where: str) -> None:
    """What is not in a cold tier that is another's is not lost, and nothing that another store has there is taken over,
    though a copy has no note that tells.
    """
    if state.cold is None:
        return
    found, why = whose(disk, state.cold), ""
    missing = next(check_cold(disk, state, rows), None)
    if missing is not None and not found.complete:
        why = f"topic {missing.topic!r}: {missing.detail}"
    elif found is not Whose.OURS and (stranger := next(filter(_is_of_another, rows), None)) is not None:
        why = (
            f"{stranger.task.file} in {state.cold.where} does not hold what {stranger.task.part('idx')} says. It may "
            "be the cold tier of another store: name the right place"
        )
    if why:
        raise CannotOpen(
            Unusable.FOREIGN, f"{where}: {why}. Nothing is taken for lost before that", path=where
        )  # fmt: skip


def _is_of_another(row: SegmentRow) -> bool:
    """Whether whole records lie in cold data that the idx here does not know."""
    return row.task.cold and any(flaw.check == "segment.idx" and flaw.seq is not None for flaw in row.flaws)


def _topics(state: RecoveredDirectory) -> list[Topic]:
    return [topic for _, topic in sorted(state.topics.items())]


# New segments.


def _remade(
    state: RecoveredDirectory, rows: Sequence[SegmentRow], found: Sequence[Violation]
) -> dict[int, list[Segment]]:  # fmt: skip
    """The segments, by topic id, that are to be made anew."""
    wrong = {one.file.rpartition(".")[0] for one in found if one.check in _REMADE}
    scanned = {(row.task.topic_id, row.task.first) for row in rows}
    remade: dict[int, list[Segment]] = {}
    for topic in _topics(state):
        for segment in topic.segments:
            stem = segment_path(topic.topic_id, segment.first, "data").rpartition(".")[0]
            unseen = segment.cold and state.cold is None
            if not unseen and (stem in wrong or (topic.topic_id, segment.first) not in scanned):
                remade.setdefault(topic.topic_id, []).append(segment)
    return remade


@attrs.frozen
class _Renewed:
    """A topic whose records are all in whole segments. `remade`: its old segments that were not."""

    topic: Topic
    remade: Sequence[Segment]
    salvaged: Salvaged
    image: TopicImage

    def finish(self, disk: Disk, aside: Aside) -> None:
        """Behind the commit: new files take the places of old ones, of which copies are put aside."""
        new = {segment.first for segment in self.salvaged.segments}
        for segment in self.remade:
            stem = segment_path(self.topic.topic_id, segment.first, "data").removesuffix("data")
            for part in PARTS:
                if part in REPLACED and segment.first in new:
                    aside.copy(stem + part)
                else:
                    aside.take(stem + part)
            if segment.first in new:
                put_in_place(disk, self.topic.topic_id, segment.first)

    def leave_cold(self, tiers: TwoTiers, aside: Aside) -> None:
        """Nothing needs what was damaged in the cold tier any more."""
        for segment in self.remade:
            if segment.cold:
                tiers.take_cold(self.topic.topic_id, segment.first, aside)


def _renewed(tiers: TwoTiers, topic: Topic, remade: Sequence[Segment], ts: int, *, missing: int) -> _Renewed:
    if topic.config.durability is Durability.EPHEMERAL:
        return _Renewed(topic, (), Salvaged((), ()), moved_on(topic, missing))
    firsts = frozenset(segment.first for segment in remade)
    in_use = {segment.first: data_size(tiers.seen, topic.topic_id, segment) for segment in remade}
    segments: list[Segment] = []
    lost: list[int] = []
    dropped: list[int] = []
    for slots in (
        *(of_segment(tiers.seen, topic, segment) for segment in remade),
        of_log(tiers.hot, topic, topic.segments.stored_seq + 1),
    ):
        made = write_segments(tiers.hot, topic, slots, in_use=in_use, ts=ts)
        segments += made.segments
        lost += made.lost
        dropped += made.dropped
    kept = [
        msgspec.structs.replace(segment, sealed=True)
        for segment in topic.segments
        if segment.first not in firsts
    ]
    salvaged = Salvaged(segments, lost, dropped)
    return _Renewed(topic, remade, salvaged, changed_image(topic, kept, salvaged, ts, missing=missing))


# The new state.


def _known_shards(disk: Disk, state: RecoveredDirectory) -> list[ShardKey]:
    """All that there ever were, also those of which only LOCK or a snapshot still says so."""
    begun = begun_shards(owner_on(disk))
    return sorted(dict.fromkeys((*find_shards(disk), *state.read.restored.places, *begun)))


def _next_format(form: Format, identity: Identity, shards: Sequence[ShardKey], entropy: Entropy) -> Format:
    """As many shards, in a generation of which nothing was ever written. A store that has no id yet, or has lost it,
    gets one; its segments' files get their seals when it is opened.
    """
    generation = max(form.generation, *(generation for generation, _ in shards), 0) + 1
    if identity.store is None:
        new = new_format(entropy, form.shards)
        return attrs.evolve(new, generation=generation, raising=True)
    store = identity.store.hex()
    return Format(form.shards, generation, store=store, raising=identity.raising)


def _losses(state: RecoveredDirectory, images: Sequence[TopicImage]) -> dict[str, list[tuple[int, int]]]:
    """By topic what is lost by damage, and that the newest snapshot does not know."""
    snapshots = dict(state.snapshots)
    kept = state.read.restored.kept
    newest = snapshots.get(kept[0].number) if kept else None
    before = {} if newest is None else {image.topic_id: image for image in newest.state.topics}
    losses = {image.name: new_losses(image, before.get(image.topic_id)) for image in images}
    return {name: ranges for name, ranges in losses.items() if ranges}


def _snapshot_of(
    state: RecoveredDirectory,
    topics: Sequence[TopicImage],
    shards: Sequence[ShardKey],
    ts: int,
    holes: Sequence[Hole],
) -> Snapshot:
    """`holes`: topics may have been made there, and segments of them may lie in a cold tier: no id is used again."""
    catalog = state.read.recovered.catalog
    image = StateImage(
        ts=ts, high_ts=catalog.high_ts,
        next_topic_id=catalog.next_topic_id + sum(hole.frames for hole in holes if not hole.seq),
        epochs=sorted(catalog.epochs.items()),
        topics=list(topics), routers=image_of(catalog.routers.values()),
    )  # fmt: skip
    return Snapshot(image, [LogPlace(*key, 0, 0, 0, U64_MAX) for key in shards])


def _check_readable(disk: Disk, snapshot: Snapshot) -> None:
    """A start must be able to take the snapshot and its segments before it counts. Raises `Corrupt`."""
    stored = [
        [
            load_slots(disk, image.topic_id, segment, image.base_seq, of_queue=image.of_queue).slots
            for segment in image.segments
            if segment.last >= image.base_seq
        ]
        for image in snapshot.state.topics
    ]
    catalog_of(snapshot.state, stored)


# What nobody counts.


def _put_orphans_aside(found: Sequence[Violation], aside: Aside) -> int:
    """Files in the directories of topics and snapshots that nobody counts; how many. A stranger's elsewhere stays, and
    so does what is no file.
    """
    files = [one.file for one in found if one.check in _ORPHANS]
    moved = [aside.take(file) for file in files if file.startswith(("topics/", f"{META_DIR}/"))]
    aside.sync()
    return sum(moved)
