"""The files of a data directory that hold no records: what of them is damaged, and which nobody needs.

Most of it is of no harm: a start takes a bad LOCK for a restart, a bad CURRENT for none, a damaged snapshot is stood in
for by the one before. It is told all the same, for bytes that changed by themselves are news about the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from topics.audit.recovery import RecoveredDirectory, segment_tasks
from topics.audit.scan.rows import Severity, Violation
from topics.codec.manifest import MANIFEST_FILE
from topics.engine.recovery.recover import Recovered
from topics.engine.verify import canonical
from topics.host.checkpoint.snapshots import KEPT_MAX, META_DIR, find_snapshots, number_of, snapshot_path
from topics.host.cold.ownership import NOTE_FILE
from topics.host.directory.layout import (
    CURRENT_FILE,
    CURRENT_SIZE,
    FORMAT_FILE,
    GENERATION_NAME,
    NEXT_FILE,
    OF_A_NEW_DISK,
    SEGMENT_NAME,
    SHARD_NAME,
    TOPIC_NAME,
    WAL_NAME,
    find_shards,
    find_wal_files,
    read_hint,
    shard_dir,
    wal_path,
)
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, RECORD_SIZE_BEFORE, OwnerRecord
from topics.host.directory.readstate import read_state
from topics.host.directory.restored import RESTORED_FILE, read_restored
from topics.host.system.readonly import Hiding
from topics.host.wal.archive import ARCHIVE_DIR
from topics.kernel.config import Durability
from topics.kernel.limits import WAL_BYTES_MAX
from topics.kernel.ports import Disk
from topics.log.topic import Topic

_PIECE: Final = 1 << 20
_SEGMENT: Final = re.compile(SEGMENT_NAME, re.ASCII)
_TOPIC: Final = re.compile(TOPIC_NAME, re.ASCII)
_WAL: Final = re.compile(WAL_NAME, re.ASCII)
_GENERATION: Final = re.compile(GENERATION_NAME, re.ASCII)
_SHARD: Final = re.compile(SHARD_NAME, re.ASCII)
_ROOT: Final = frozenset(
    {"wal", "topics", META_DIR, ARCHIVE_DIR, FORMAT_FILE, LOCK_NAME, MANIFEST_FILE, NOTE_FILE, RESTORED_FILE}
)
_REPAIRED: Final = re.compile(r"repaired-[0-9TZ-]+", re.ASCII)


def check_metafiles(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """FORMAT, LOCK, RESTORED, CURRENT, reserved files, snapshots, and files that nobody needs."""
    if state.wrong is not None:
        yield _told("format", FORMAT_FILE, Severity.ERROR, state.wrong)
    yield from _check_lock(disk)
    if disk.size(RESTORED_FILE) is not None and read_restored(disk) is None:
        detail = "it is damaged, so topics why does not know that this directory was restored; remove it"
        yield _told("restored", RESTORED_FILE, Severity.NOTE, detail)
    for generation, shard in find_shards(disk):
        yield from _check_shard(disk, generation, shard)
        yield from _check_log_sizes(disk, generation, shard)
    yield from _check_snapshots(state)
    for one in _check_leftovers(disk, state):
        if one.file.rpartition("/")[2] not in OF_A_NEW_DISK:
            yield one


def _told(check: str, file: str, severity: Severity, detail: str, offset: int | None = None) -> Violation:
    return Violation("", file, check, severity, None, offset, detail)


def _check_lock(disk: Disk) -> Iterator[Violation]:
    size = disk.size(LOCK_NAME)
    if size is None:
        return
    if (
        size in (RECORD_SIZE, RECORD_SIZE_BEFORE)
        and OwnerRecord.decode(disk.read(LOCK_NAME, 0, size)) is not None
    ):
        return
    detail = "it is no owner's line, so the next start takes the machine as restarted"
    yield _told("lock", LOCK_NAME, Severity.NOTE, detail)


def _check_shard(disk: Disk, generation: int, shard: int) -> Iterator[Violation]:
    hint = f"{shard_dir(generation, shard)}/{CURRENT_FILE}"
    size = disk.size(hint)
    said = b"" if size is None else disk.read(hint, 0, min(size, CURRENT_SIZE + 1))
    if any(said) and read_hint(disk, generation, shard) is None:
        yield _told("hint", hint, Severity.NOTE, "it names no file; nobody needs it while the log is whole")
    reserve = f"{shard_dir(generation, shard)}/{NEXT_FILE}"
    size = disk.size(reserve) or 0
    if size > WAL_BYTES_MAX:
        detail = f"it has {size} bytes, and none is larger than {WAL_BYTES_MAX}; the next start makes it anew"
        yield _told("reserve", reserve, Severity.NOTE, detail)
        return
    for at in range(0, size, _PIECE):
        piece = disk.read(reserve, at, _PIECE)
        if piece.count(0) != len(piece):
            offset = at + len(piece) - len(piece.lstrip(b"\0"))
            detail = "bytes that are not zero, where nothing was written yet; the next start makes it anew"
            yield _told("reserve", reserve, Severity.NOTE, detail, offset)
            return


def _check_log_sizes(disk: Disk, generation: int, shard: int) -> Iterator[Violation]:
    """What lies behind the most that a file of the log has is read by nobody."""
    for file in find_wal_files(disk, generation, shard):
        size = disk.size(wal_path(file)) or 0
        if size > WAL_BYTES_MAX:
            detail = f"it has {size} bytes, and none is larger than {WAL_BYTES_MAX}: what is behind them is not read"
            yield _told("wal.damage", wal_path(file), Severity.ERROR, detail, WAL_BYTES_MAX)


def _check_snapshots(state: RecoveredDirectory) -> Iterator[Violation]:
    """Each by itself, for a start looks no further than it must."""
    for path, why in state.damaged_snapshots.items():
        yield _told("snapshot", path, Severity.ERROR, why)
    for wrong in state.read.restored.wrong:
        path, _, why = wrong.partition(": ")
        if path not in state.damaged_snapshots:
            yield _told("snapshot", path, Severity.ERROR, why)


def check_agreement(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """What the older snapshot and all of the log behind it give is what the newest one gives (I-20)."""
    kept = state.read.restored.kept
    if len(kept) < KEPT_MAX or state.read.recovered.damages:
        return
    newest, older = kept[0], kept[1]
    hidden = frozenset(snapshot_path(number) for number in find_snapshots(disk) if number > older.number)
    other = read_state(Hiding(disk, hidden), state.form, same_boot=state.same_boot, cold=state.cold).recovered
    own, theirs = _facts(state.read.recovered), _facts(other)
    if own == theirs and not other.damages:
        return
    if _facts(read_state(disk, state.form, same_boot=state.same_boot, cold=state.cold).recovered) != own:
        return  # somebody writes: the two were not read of one moment
    file = snapshot_path(newest.number)
    for damage in other.damages:
        detail = f"without it: {damage}"
        yield Violation(
            damage.topic or "", file, "snapshot.agree", Severity.ERROR, damage.first_seq, None, detail
        )
    if other.damages:
        return
    for name in sorted(own.keys() | theirs.keys()):
        if own.get(name) != theirs.get(name):
            detail = f"{snapshot_path(older.number)} and the log say otherwise of its {_differences(own, theirs, name)}"
            yield Violation(name, file, "snapshot.agree", Severity.ERROR, None, None, detail)


def _facts(recovered: Recovered) -> dict[str, dict[str, object]]:
    """By topic name, of those whose every change is in the log; sizes of files are no facts."""
    found = {}
    for topic in msgspec.msgpack.decode(canonical(recovered.catalog))["topics"]:
        if topic["config"]["durability"] != Durability.EPHEMERAL.value:
            found[topic["name"]] = {key: value for key, value in topic.items() if key != "segments"}
    return found


def _differences(
    own: dict[str, dict[str, object]], theirs: dict[str, dict[str, object]], name: str
) -> str:  # fmt: skip
    a, b = own.get(name), theirs.get(name)
    if a is None or b is None:
        return "existence"
    return ", ".join(key for key in sorted(a) if a[key] != b.get(key))


# What nobody needs.


def _check_leftovers(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    for name in disk.names(""):
        if name not in _ROOT and not _REPAIRED.fullmatch(name):
            yield _leftover(name)
    for name in disk.names(META_DIR):
        if number_of(name) is None:
            yield _leftover(f"{META_DIR}/{name}")
    for generation in disk.names("wal"):
        if not _GENERATION.fullmatch(generation):
            yield _leftover(f"wal/{generation}")
            continue
        for shard in disk.names(f"wal/{generation}"):
            directory = f"wal/{generation}/{shard}"
            if not _SHARD.fullmatch(shard):
                yield _leftover(directory)
                continue
            for name in disk.names(directory):
                if not _WAL.fullmatch(name) and name not in (CURRENT_FILE, NEXT_FILE):
                    yield _leftover(f"{directory}/{name}")
    yield from _check_orphans(disk, state)


def _leftover(path: str) -> Violation:
    return _told("leftover", path, Severity.NOTE, "topics needs no file of this name here")


def _check_orphans(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """Files in the directories of topics that belong to no segment that the state or a kept snapshot counts."""
    counted = {(task.topic_id, task.first) for task in segment_tasks(state)}
    for directory in disk.names("topics"):
        if not _TOPIC.fullmatch(directory):
            yield _leftover(f"topics/{directory}")
            continue
        topic_id = int(directory, 16)
        for name in disk.names(f"topics/{directory}"):
            found = _SEGMENT.fullmatch(name)
            first = 0 if found is None else int(found["first_seq"])
            if found is None or not ((topic_id, first) in counted or _awaits_removal(state, topic_id, first)):
                yield _orphan(state, topic_id, f"topics/{directory}/{name}", first)


def _awaits_removal(state: RecoveredDirectory, topic_id: int, first: int) -> bool:
    """Nothing is removed before two snapshots are kept: then a segment below the floor may stay for a while."""
    catalog = state.read.recovered.catalog
    if len(state.read.restored.kept) >= KEPT_MAX or topic_id >= catalog.next_topic_id:
        return False
    topic = catalog.topics.get(topic_id)
    return topic is None or (first < topic.earliest_seq and topic.segments.holds(first) is None)


def _orphan(state: RecoveredDirectory, topic_id: int, path: str, first: int) -> Violation:
    """A segment that nobody counts: what a crash left of an append, of a removal, or of one whose mark it took."""
    topic = state.topics.get(topic_id)
    holder = None if topic is None else topic.segments.holds(first)
    if topic is not None and holder is not None:
        detail = f"it begins inside the segment of seqs {holder.first} to {holder.last}: a crash took a mark"
        return Violation(topic.name, path, "segment.overlap", Severity.NOTE, first, None, detail)
    if topic is not None and holder is None and _lies_below(topic, first):
        detail = f"all of it lies below earliest_seq {topic.earliest_seq}, in both snapshots: the round that should "
        detail += "have removed it was broken off, or did not; the next one does"
        return Violation(topic.name, path, "segment.floor", Severity.UNDECIDABLE, first, None, detail)
    detail = "it belongs to no segment that the state or a kept snapshot counts"
    return Violation(state.name_of(topic_id), path, "leftover", Severity.NOTE, None, None, detail)


def _lies_below(topic: Topic, first: int) -> bool:
    """Whether a segment that begins so ends below the floor: it ends where the first one that counts begins."""
    begin = next((one.first for one in topic.segments), topic.segments.stored_seq + 1)
    return 1 <= first < begin <= topic.earliest_seq
