"""Whether a backup is whole: its manifest, every file, and what a recovery of it would find (storage 7).

Nothing is changed. A finding is a value: what of the backup is wrong, in one line.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs
import xxhash

from topics.codec.manifest import (
    MANIFEST_FILE,
    FileEntry,
    Manifest,
    decode_manifest,
    too_large,
)
from topics.host.backup.contents import PIECE_SIZE
from topics.host.checkpoint.snapshots import META_DIR, SNAPSHOT_NAME
from topics.host.cold.ownership import NOTE_FILE
from topics.host.directory.layout import (
    CURRENT_FILE,
    FORMAT_FILE,
    GENERATION_NAME,
    SEGMENT_NAME,
    SHARD_NAME,
    TOPIC_NAME,
    WAL_NAME,
    read_format,
)
from topics.host.directory.readstate import ReadState, read_state
from topics.kernel.errors import CannotOpen, Corrupt
from topics.kernel.limits import MANIFEST_BYTES_MAX
from topics.kernel.ports import Disk

_LOGS_AND_DATA: Final = ("meta", "wal", "topics")
_PATH: Final = re.compile(
    rf"{FORMAT_FILE}|{NOTE_FILE}|{META_DIR}/{SNAPSHOT_NAME}|wal/{GENERATION_NAME}/{SHARD_NAME}/({CURRENT_FILE}|{WAL_NAME})"
    rf"|topics/{TOPIC_NAME}/{SEGMENT_NAME}",
    re.ASCII,
)


@attrs.frozen
class BackupFinding:
    """What is wrong, and of which file; `""`: of no single one."""

    file: str
    what: str


@attrs.frozen(kw_only=True)
class Verified:
    """`manifest`: None if it is not there or damaged."""

    manifest: Manifest | None
    findings: Sequence[BackupFinding]


def is_of_a_backup(path: str) -> bool:
    """Whether a backup has files of this name. No other name that a manifest or an archive gives becomes a path."""
    return _PATH.fullmatch(path) is not None


def manifest_of(data: bytes) -> Manifest:
    """The manifest that a file's bytes are.

    Raises:
        Corrupt: it is none, damaged, or names a file that no backup has.
    """
    manifest = decode_manifest(data)
    for file in manifest.files:
        if not is_of_a_backup(file.path):
            raise Corrupt(
                f"{MANIFEST_FILE}: it names the file {file.path!r:.100}, which no backup has: it was forged, take "
                "another backup",
                field="files",
            )
    return manifest


def read_manifest(disk: Disk) -> Manifest:
    """The manifest of a backup.

    Raises:
        Corrupt: there is none, so it is no whole backup; or it is damaged, or names a file that no backup has.
    """
    size = disk.size(MANIFEST_FILE)
    if size is None:
        raise Corrupt(
            f"{MANIFEST_FILE} is not there: this is no backup, or one that was broken off", field="manifest"
        )
    if size > MANIFEST_BYTES_MAX:
        raise too_large(size)
    return manifest_of(disk.read(MANIFEST_FILE, 0, size))


def refuse_links(disk: Disk, manifest: Manifest) -> None:
    """Raises `Corrupt` if a directory above one of its files is a link: what lies behind it is no part of a backup."""
    parents = (file.path[:at] for file in manifest.files for at, c in enumerate(file.path) if c == "/")
    for path in dict.fromkeys(parents):
        if what := _said_of_a_link(disk, path):
            raise Corrupt(f"{path} of the backup: {what}")


def verify_backup(
    disk: Disk, where: str, *, damages: bool = True, tell: Callable[[int, int], None] | None = None
) -> Verified:
    """Read all of it. `tell` is told how many bytes were compared, and of how many. `where`: its name in messages.

    `damages`: tell too what recovery finds damaged; false for who runs fsck, which says more of it.

    Raises:
        CannotOpen: it is of a newer version.
        OSError: the disk failed.
    """
    try:
        manifest = read_manifest(disk)
    except Corrupt as damage:
        return Verified(manifest=None, findings=[BackupFinding(MANIFEST_FILE, damage.message)])
    findings: list[BackupFinding] = []
    done = 0
    for file in manifest.files:
        wrong = _compared(disk, file)
        if wrong:
            findings.append(BackupFinding(file.path, wrong))
        done += file.size
        if tell is not None:
            tell(done, manifest.size)
    known = {file.path for file in manifest.files}
    findings += [
        BackupFinding(path, _said_of_a_link(disk, path) or "is not of this backup")
        for path in _names_of(disk)
        if path not in known
    ]
    try:
        form = read_format(disk, where)
    except CannotOpen:
        if all(finding.file != FORMAT_FILE for finding in findings):
            raise
        form = None
    if form is None:  # the findings say so: FORMAT is missing, or not as it was written
        return Verified(manifest=manifest, findings=findings)
    try:
        read = read_state(disk, form, same_boot=False)
        findings += [
            BackupFinding("", what) for what in (*(_damages(read) if damages else ()), *_ends(manifest, read))
        ]
    except Corrupt as damage:
        findings.append(BackupFinding("", damage.message))
    return Verified(manifest=manifest, findings=findings)


def _compared(disk: Disk, file: FileEntry) -> str:
    """What is wrong with a file; nothing if nothing is."""
    size = disk.size(file.path)
    if size is None:
        return "is not there"
    if size != file.size:
        return f"has {size} bytes instead of {file.size}"
    digest = xxhash.xxh3_64()
    for at in range(0, size, PIECE_SIZE):
        digest.update(disk.read(file.path, at, min(PIECE_SIZE, size - at)))
    return "" if f"{digest.intdigest():016x}" == file.xxh3 else "is not as it was written (checksum)"


def _names_of(disk: Disk) -> Iterator[str]:
    """Every file and every link below the directories that a backup has. A link is not followed: it may lead round."""
    pending = list(_LOGS_AND_DATA)
    while pending:
        directory = pending.pop()
        if _said_of_a_link(disk, directory):
            yield directory
            continue
        for name in disk.names(directory):
            path = f"{directory}/{name}"
            if disk.size(path) is None:
                pending.append(path)
            else:
                yield path


def _said_of_a_link(disk: Disk, path: str) -> str:
    """What is said of a name if it is a link, else nothing."""
    try:
        disk.read(path, 0, 0)
    except OSError as error:
        return (error.strerror or "a link") if error.errno == errno.ELOOP else ""
    return ""


def _damages(read: ReadState) -> Iterator[str]:
    yield from map(str, read.recovered.damages)
    yield from map(str, read.recovered.cuts)
    yield from read.restored.wrong


def _ends(manifest: Manifest, read: ReadState) -> Iterator[str]:
    """Where what recovery ends with is not what the manifest says."""
    for position in manifest.vector:
        verdict = read.verdicts.get((position.generation, position.shard))
        tail = None if verdict is None else verdict.tail
        found = (
            None if tail is None else (tail.file.first_frame, tail.end, tail.file.first_frame + tail.frames)
        )
        if found != (position.file, position.offset, position.next_frame):
            yield (
                f"shard {position.shard} of generation {position.generation}: its log does not end at offset "
                f"{position.offset} of wal file {position.file}, where the backup was cut"
            )
    heads = {topic.name: topic.head_seq for topic in read.recovered.catalog.topics.values()}
    for entry in manifest.topics:
        head = heads.pop(entry.name, None)
        if head != entry.head_seq:
            yield f"topic {entry.name!r}: head {head} instead of {entry.head_seq}"
    for name in heads:
        yield f"topic {name!r}: not of this backup"
