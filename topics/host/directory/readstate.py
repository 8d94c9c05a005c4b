"""What a directory holds, read and judged without a change to it: what a start goes on from, and what fsck and a
read-only view ask.

The newest snapshot, the segments that it counts, then every file of the log behind it: torn tail or damage is decided
here, for all of them alike (storage 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from topics.engine.image import LogPlace
from topics.engine.recovery.judge import Verdict, examine_log_file, judge
from topics.engine.recovery.recover import Recovered, ShardKey, recover
from topics.host.cold.cold_disk import ColdBehind
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import Format, find_shards, find_wal_files, read_hint, wal_path
from topics.host.directory.loading import LoadedState, Settled, load_newest_snapshot, settle_rewritten
from topics.host.directory.missing_logs import absent_logs
from topics.host.directory.owner import owner_on
from topics.host.directory.size_limits import log_bytes, read_log
from topics.host.wal.uncheckpointed import unabsorbed_damages
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

JUDGED: Final = 0.5  # of the progress, when everything is read and judged
FOLDED: Final = 0.45  # of the progress, for folding it; the rest is repair


@attrs.frozen
class ReadState:
    """What a directory holds, and how it was put together."""

    restored: LoadedState
    verdicts: Mapping[ShardKey, Verdict]
    settled: Settled
    recovered: Recovered


def read_state(
    disk: Disk,
    form: Format,
    *,
    same_boot: bool,
    progress: Callable[[float], None] | None = None,
    cold: SegmentStore | None = None,
) -> ReadState:
    """Snapshot, segments and log, without a change on the disk.

    Raises:
        Corrupt: an intact snapshot that contradicts its segments.
        OSError: the disk failed.
    """
    tell = progress or tell_nobody
    behind = ColdBehind(disk, cold)
    owner = owner_on(disk)  # first: whoever looks at a store in use misses nothing that began meanwhile
    restored = load_newest_snapshot(behind)
    verdicts = _judge(disk, restored.places, same_boot=same_boot, progress=tell)
    recovered = recover(verdicts, restored.catalog, progress=lambda share: tell(JUDGED + share * FOLDED))
    settled = settle_rewritten(behind, recovered.catalog, restored.unsure)
    absent = absent_logs(form, owner, restored.places if restored.kept else None, verdicts)
    unabsorbed = unabsorbed_damages(disk, recovered.catalog, restored.places)
    damages = [*settled.damages, *absent, *unabsorbed, *recovered.damages]
    return ReadState(restored, verdicts, settled, attrs.evolve(recovered, damages=damages))


def tell_nobody(progress: float) -> None:
    assert 0 <= progress <= 1


def _judge(
    disk: Disk, places: Mapping[ShardKey, LogPlace], *, same_boot: bool, progress: Callable[[float], None]
) -> Mapping[ShardKey, Verdict]:
    """Every shard of every generation, file by file, from where a snapshot has it. One that a snapshot has and that is
    not there is judged, too: all of its log is gone.
    """
    known = dict.fromkeys((*find_shards(disk), *places))
    files = {
        key: [file for file in find_wal_files(disk, *key) if file.first_frame >= _place_in(places, key).file]
        for key in sorted(known)
        if key not in places or places[key].file
    }
    sizes = {file: log_bytes(disk, wal_path(file)) for found in files.values() for file in found}
    total, done = max(1, sum(sizes.values())), 0
    verdicts = {}
    for (generation, shard), found in files.items():
        place = _place_in(places, (generation, shard))
        looks = []
        for file in found:
            progress(JUDGED * done / total)
            since = (place.offset, place.next_frame) if file.first_frame == place.file else None
            looks.append(examine_log_file(file, read_log(disk, wal_path(file)), since, size=sizes[file]))
            done += sizes[file]
        verdicts[generation, shard] = judge(
            looks,
            same_boot=same_boot,
            named=read_hint(disk, generation, shard),
            since=WalFileId(generation, shard, place.file) if place.file else None,
        )
    return verdicts


def _place_in(places: Mapping[ShardKey, LogPlace], key: ShardKey) -> LogPlace:
    """Where a snapshot has the shard's log; its beginning if it knows nothing of it."""
    return places.get(key) or LogPlace(*key, 0, 0, 0, 0)
