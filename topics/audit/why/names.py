"""Which topic and which router has a name, by snapshots and log, and why a topic may not be there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from topics.audit.why.kept_log import KeptLog
from topics.audit.why.starts import no_start
from topics.codec.log.control import Control, TopicCreate, TopicDelete
from topics.codec.log.routers import RouterCreate, decode_router
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.image import Snapshot
from topics.host.directory.layout import find_shards, find_wal_files, wal_path
from topics.host.directory.restored import read_restored
from topics.host.directory.size_limits import read_log
from topics.host.system.clock import moment
from topics.kernel.errors import Code, Rejected
from topics.kernel.ports import Disk


def topic_named(
    disk: Disk, where: str, name: str, snapshots: Sequence[Snapshot], damaged: Sequence[str]
) -> int:
    """The topic that has the name now, by the newest snapshot and the log behind it, which shard 0 keeps of all."""
    found = {image.name: image.topic_id for image in snapshots[0].state.topics} if snapshots else {}
    ended: int | None = None
    for key in find_shards(disk):
        for file in find_wal_files(disk, *key) if key[1] == 0 else ():
            buffer = read_log(disk, wal_path(file))
            for item in scan(buffer, min(HEADER_SIZE, len(buffer)), len(buffer)).items:
                if not isinstance(item, Control):
                    continue
                if isinstance(item.payload, TopicCreate) and item.payload.name == name:
                    found[name], ended = item.topic_id, None
                elif isinstance(item.payload, TopicDelete) and found.get(name) == item.topic_id:
                    del found[name]
                    ended = item.ts
    if name in found:
        return found[name]
    if damaged and not snapshots:
        raise no_start(name, damaged)
    raise not_found(disk, where, name, ended)


def not_found(disk: Disk, where: str, name: str, deleted_ts: int | None) -> Rejected:
    """`deleted_ts`: of the last topic of that name, if the log has it; else a restore may have left it out."""
    said = f"there is no topic {name!r}" + (f" in {where}" if where else "")
    if deleted_ts is not None:
        said += f"; it was deleted at {moment(deleted_ts)}, with all its records"
        return Rejected(Code.TOPIC_NOT_FOUND, said, topic=name, deleted_ts=deleted_ts)
    restored = None
    with suppress(OSError):  # that it is not there is known without it
        restored = read_restored(disk)
    if restored is not None:
        said += (
            f"; the directory was restored at {moment(restored.ts)} to how it was at {moment(restored.as_of)}, so a"
            " topic that was created in between is gone"
        )
    return Rejected(Code.TOPIC_NOT_FOUND, said, topic=name)


def router_names(log: KeptLog, snapshots: Sequence[Snapshot]) -> dict[int, str]:
    """By id, which no topic has."""
    found = [decode_router(told) for snapshot in snapshots for told in snapshot.state.routers]
    for at, _ in log.walk():
        if isinstance(at.item, Control) and isinstance(at.item.payload, RouterCreate):
            found.append(at.item.payload)
    return {router.id: router.name for router in found}
