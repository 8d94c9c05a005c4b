"""What a fold of one topic can begin with: its creation, or a snapshot that the log which is there goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import msgspec

from topics.audit.why.kept_log import FIRST_FRAME, Budget, KeptLog
from topics.codec.log.control import TopicCreate
from topics.engine.apply import Catalog
from topics.engine.image import LogPlace, Snapshot
from topics.engine.recovery.recover import ShardKey
from topics.host.checkpoint.snapshots import find_snapshots, read_snapshot, snapshot_path
from topics.host.directory.loading import snapshot_state
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId


@attrs.frozen(kw_only=True)
class FoldStart:
    """`catalog`: with this topic alone, or empty. `places`: from where each shard's log is folded; the beginning, if it
    is not there. `since_ts`: of the snapshot's cut, or of the creation.
    """

    kind: str
    since_ts: int
    catalog: Catalog
    places: Mapping[ShardKey, LogPlace]
    unsure: Mapping[SegmentId, Sequence[int]]


def read_snapshots(disk: Disk, budget: Budget) -> tuple[list[Snapshot], list[str]]:
    """The intact ones, the newest first, as far as the budget goes; and the paths of those that are not."""
    found: list[Snapshot] = []
    damaged: list[str] = []
    for number in reversed(find_snapshots(disk)):
        if not budget.takes(disk.size(snapshot_path(number)) or 0):
            break
        try:
            found.append(read_snapshot(disk, number))
        except Corrupt:  # a start passes it over, too; fsck tells of it
            damaged.insert(0, snapshot_path(number))
    return found, damaged


def starts(disk: Disk, log: KeptLog, snapshots: Sequence[Snapshot], topic_id: int) -> Iterator[FoldStart]:
    """Each from which this topic can be folded, the earliest first."""
    created = _created(log, topic_id)
    if created is not None:
        yield FoldStart(kind="creation", since_ts=created, catalog=Catalog(), places={}, unsure={})
    for snapshot in reversed(snapshots):
        places = {(place.generation, place.shard): place for place in snapshot.places}
        images = [image for image in snapshot.state.topics if image.topic_id == topic_id]
        if not all(_reaches(log, key, place) for key, place in places.items()):
            continue
        if not images and snapshot.state.next_topic_id > topic_id:
            continue  # it was deleted before
        # Of a router the other end would not be there.
        state = msgspec.structs.replace(snapshot.state, topics=images, routers=[])
        try:
            loaded = snapshot_state(disk, msgspec.structs.replace(snapshot, state=state))
        except Corrupt:
            continue
        yield FoldStart(
            kind="snapshot", since_ts=snapshot.state.ts, catalog=loaded.catalog, places=places,
            unsure=loaded.unsure,
        )  # fmt: skip


def no_start(name: str, damaged: Sequence[str]) -> Corrupt:
    """That nothing is there to fold from. `damaged`: the snapshots that cannot be read."""
    which = f"{' and '.join(damaged)} cannot be read" if damaged else "none of those in meta/ has it"
    return Corrupt(
        f"topic {name!r}: no snapshot tells how it stood ({which}), and the log in wal/ does not reach back to its"
        f" creation: run topics fsck to see what is damaged, or topics why over a backup that is restored (topics"
        f" restore)",
        topic=name,
        files=list(damaged) or ["meta"],
    )


def _created(log: KeptLog, topic_id: int) -> int | None:
    """When it was created, if the log has all since then."""
    for key in sorted(log.shards):
        for item, file in log.shards[key].verdict.items():
            if item.topic_id == topic_id and isinstance(getattr(item, "payload", None), TopicCreate):
                behind = [other for other in log.shards if other != key and other[0] >= file.generation]
                is_whole = all(log.shards[other].first_frame == FIRST_FRAME for other in behind)
                return item.ts if is_whole else None
    return None


def _reaches(log: KeptLog, key: ShardKey, place: LogPlace) -> bool:
    """Whether the files that follow each other begin where the snapshot's log goes on, or before."""
    shard = log.shards.get(key)
    return place.file == 0 or (shard is not None and shard.first_frame <= place.file)
