"""What of a log is not there at all, so that no frame of it can tell (storage 4)."""

from __future__ import annotations

from collections.abc import Mapping

from topics.engine.judge import Verdict
from topics.engine.recover import DamageReport, ShardKey
from topics.host.layout import Format
from topics.host.lock import LOCK_NAME, OwnerRecord
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId


def absent_shards(form: Format, verdicts: Mapping[ShardKey, Verdict]) -> list[DamageReport]:
    """Every shard of a generation gets its first file before any gets a frame, so one without a file has lost it."""
    shards = [verdicts.get((form.generation, shard)) for shard in range(form.shards)]
    if not any(seen.intact for verdict in shards if verdict is not None for seen in verdict.looks):
        return []
    return [
        DamageReport(
            file=WalFileId(form.generation, shard, 1),
            offset=0,
            why=f"shard {shard} of generation {form.generation} has no log, and another one has",
        )
        for shard, verdict in enumerate(shards)
        if verdict is None or not verdict.looks
    ]


def absent_log(disk: Disk, form: Format) -> list[DamageReport]:
    """Every recovery that was completed has left each shard a file, or a snapshot of what was in it."""
    size = disk.size(LOCK_NAME)
    owner = None if size is None else OwnerRecord.decode(disk.read(LOCK_NAME, 0, size))
    if owner is None or owner.boot_id is None:
        return []
    why = "there is no log and no whole snapshot, and LOCK says that the store was in use"
    return [DamageReport(file=WalFileId(form.generation, 0, 1), offset=0, why=why)]
