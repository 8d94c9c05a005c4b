"""What of a log is not there at all, so that no frame of it can tell (storage 4).

Theory. A log that has begun is one of three: there, with its first file at least; in a snapshot, which knows all that
was in the logs of its own generation and of those before; or lost. So LOCK, which says what has begun, and the newest
generation of the snapshot that was read decide. What a snapshot knows of its own generation's files, `judge` asks for.

What LOCK does not say (one of an earlier version, one that was put aside or did not come along) the logs tell in part:
frames in one shard of the present generation show that all of them had begun.
"""

from __future__ import annotations

from collections.abc import Mapping

from topics.engine.image import LogPlace
from topics.engine.recovery.judge import Verdict
from topics.engine.recovery.recover import DamageReport, ShardKey
from topics.host.directory.layout import Format
from topics.host.directory.owner import OwnerRecord
from topics.log.regions import WalFileId


def absent_logs(
    form: Format,
    owner: OwnerRecord | None,
    places: Mapping[ShardKey, LogPlace] | None,
    verdicts: Mapping[ShardKey, Verdict],
) -> list[DamageReport]:
    """Each log that is missed. `places`: those of the snapshot that was read, None without one."""
    known = max((generation for generation, _ in places or ()), default=-1)
    begun = begun_shards(owner)
    missed = [key for key in begun if key[0] > known and not _has_begun(verdicts.get(key))]
    told = [_absent(key, "LOCK says that it had begun") for key in missed]
    if not begun and places is None and not any(map(_has_anything, verdicts.values())):
        return _absent_store(form, owner)
    others = [key for key in _without_a_file(form, verdicts) if key not in missed]
    return told + [_absent(key, "another one has") for key in others]


def begun_shards(owner: OwnerRecord | None) -> list[ShardKey]:
    """Every log that LOCK names, ascending."""
    begun = () if owner is None else owner.begun
    return sorted((generation, shard) for generation, shards in begun for shard in range(shards))


def _has_begun(verdict: Verdict | None) -> bool:
    """False too for files of zeros: a first file has its header before LOCK says anything of it. If one is missing or
    wrong, `judge` has said so.
    """
    return verdict is not None and (bool(verdict.damages) or any(seen.begun for seen in verdict.looks))


def _has_anything(verdict: Verdict) -> bool:
    return bool(verdict.looks or verdict.damages)


def _absent(key: ShardKey, why: str) -> DamageReport:
    generation, shard = key
    return DamageReport(
        file=WalFileId(generation, shard, 1),
        offset=0,
        why=f"shard {shard} of generation {generation} has no log, and {why}",
    )


def _without_a_file(form: Format, verdicts: Mapping[ShardKey, Verdict]) -> list[ShardKey]:
    """Every shard of a generation gets its first file before any gets a frame, so one without a file has lost it."""
    keys = [(form.generation, shard) for shard in range(form.shards)]
    if not any(seen.intact for key in keys if key in verdicts for seen in verdicts[key].looks):
        return []
    return [key for key in keys if key not in verdicts or not verdicts[key].looks]


def _absent_store(form: Format, owner: OwnerRecord | None) -> list[DamageReport]:
    """Every recovery that was completed has left each shard a file, or a snapshot of what was in it."""
    if owner is None or owner.boot_id is None:
        return []
    why = "there is no log and no whole snapshot, and LOCK says that the store was in use"
    return [DamageReport(file=WalFileId(form.generation, 0, 1), offset=0, why=why)]
