"""What a backup is made of: files with their sizes, known before the first byte of them is read (storage 7).

Sealed segments are taken whole. What is still appended to is taken up to what the cut counts: a WAL file gets zeros
behind it, so that recovery finds a clean end; an idx gets a trailer for exactly the entries that count. Every call that
reads blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs
import msgspec

from topics.codec.log.control import MARK_FRAME
from topics.codec.manifest import (
    MANIFEST_VERSION,
    NO_CHECKSUM,
    ColdEntry,
    FileEntry,
    LogEnd,
    Manifest,
    TopicEntry,
)
from topics.codec.segments.segidx import ENTRY_SIZE, TRAILER_SIZE
from topics.codec.snapshot import encode_snapshot
from topics.engine import image
from topics.engine.image import LogPlace, Snapshot
from topics.host.checkpoint.snapshots import snapshot_path
from topics.host.cold.cold_disk import ColdBehind
from topics.host.cold.ownership import NOTE_FILE, note_for_copy
from topics.host.cold.segment_stores import CHUNK, SegmentStore
from topics.host.directory.layout import (
    CURRENT_FILE,
    FORMAT_FILE,
    Format,
    find_wal_files,
    hint,
    segment_path,
    shard_dir,
    wal_path,
)
from topics.host.directory.size_limits import log_bytes, part_bytes, read_part
from topics.host.segments.segment_files import whole_idx
from topics.host.segments.segment_seals import seal_of
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.image import TopicImage
from topics.log.regions import SegmentId, WalFileId
from topics.log.segments import Segment

PIECE_SIZE: Final = 256 * 1024
_PAGE: Final = 4096
_SNAPSHOT_NUMBER: Final = 1


@attrs.frozen(kw_only=True)
class BackupFile:
    """One file. `pieces`: its bytes, in pieces of up to PIECE_SIZE or as they were made. `linkable`: it is all of the
    file of that name, which is never edited in place while it has a second name.
    """

    path: str
    size: int
    pieces: Callable[[], Iterator[bytes]]
    linkable: bool = False


@attrs.frozen(kw_only=True)
class Contents:
    """All parts of a backup, in the order in which they are written, and what its manifest says but for checksums."""

    parts: deque[BackupFile]
    manifest: Manifest

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def contents_of(
    disk: Disk, snapshot: Snapshot, form: Format, *, cold: SegmentStore | None = None
) -> Contents:
    """What a backup at this cut holds. Whatever of it the disk has is pinned. `cold`: copy what is there too.

    Raises:
        Corrupt: a file of the log is not there.
        OSError: the disk failed.
    """
    topics = snapshot.state.topics
    parts: list[BackupFile] = []
    for place in snapshot.places:
        parts += _log(disk, place)
    for topic in topics:
        for segment in topic.segments:
            parts += _segment(disk, topic, segment, cold)
        if cold is not None:  # all of it is in the backup, so nothing of the backup is cold
            topic.segments = [msgspec.structs.replace(segment, cold=False) for segment in topic.segments]
    state = encode_snapshot(_SNAPSHOT_NUMBER, image.encode(snapshot))
    parts.insert(0, _made(snapshot_path(_SNAPSHOT_NUMBER), state))
    if any(segment.cold for topic in topics for segment in topic.segments):
        note = note_for_copy(disk)
        if note is not None:
            parts.append(_made(NOTE_FILE, note))
    parts.append(_made(FORMAT_FILE, form.encode()))  # last: what is broken off before is no store
    manifest = Manifest(
        backup=MANIFEST_VERSION,
        ts=snapshot.state.ts,
        vector=[
            LogEnd(place.generation, place.shard, place.file, place.offset, place.next_frame)
            for place in snapshot.places
            if place.file
        ],
        topics=[TopicEntry(topic.name, topic.topic_id, topic.epoch, topic.head_seq) for topic in topics],
        files=[FileEntry(part.path, part.size, NO_CHECKSUM) for part in parts],
        cold=[
            ColdEntry(topic.topic_id, segment.first, segment.size)
            for topic in topics
            for segment in topic.segments
            if segment.cold
        ],
    )
    return Contents(parts=deque(parts), manifest=manifest)


def copied_bytes(disk: Disk, path: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file, which has them.

    Raises:
        Corrupt: it is shorter.
    """
    for at in range(0, size, PIECE_SIZE):
        piece = disk.read(path, at, min(PIECE_SIZE, size - at))
        if len(piece) < min(PIECE_SIZE, size - at):
            raise Corrupt(f"{path} ends at {at + len(piece)} bytes, {size} of it are needed", field="size")
        yield piece


def room_behind(offset: int) -> int:
    """Size of a WAL file that ends at `offset`: whole pages, with room for the marks of whoever goes on in it."""
    return -(-(offset + 2 * MARK_FRAME.size) // _PAGE) * _PAGE


def _made(path: str, data: bytes) -> BackupFile:
    return BackupFile(path=path, size=len(data), pieces=lambda: iter((data,)))


def _log_part(disk: Disk, path: str, end: int) -> BackupFile:
    """A WAL file up to `end`, with zeros behind."""
    size = room_behind(end)

    def pieces() -> Iterator[bytes]:
        yield from copied_bytes(disk, path, end)
        yield bytes(size - end)

    return BackupFile(path=path, size=size, pieces=pieces)


def _copy_part(disk: Disk, path: str, size: int, *, linkable: bool = False) -> BackupFile:
    """The first `size` bytes of a file."""
    return BackupFile(path=path, size=size, pieces=partial(copied_bytes, disk, path, size), linkable=linkable)


# The log.


def _log(disk: Disk, place: LogPlace) -> list[BackupFile]:
    """The files of one shard that the snapshot needs, up to its place in them."""
    key = (place.generation, place.shard)
    parts = []
    for file in find_wal_files(disk, *key):
        path = wal_path(file)
        if file.first_frame >= place.needed and (not place.file or file.first_frame < place.file):
            parts.append(_copy_part(disk, path, log_bytes(disk, path)))
    if place.file:
        last = WalFileId(*key, place.file)
        path = wal_path(last)
        if (disk.size(path) or 0) < place.offset:
            raise Corrupt(f"{path} is not there, or shorter than what was written to it", field="size")
        parts.append(_log_part(disk, path, place.offset))
        parts.append(_made(f"{shard_dir(*key)}/{CURRENT_FILE}", hint(last)))
    return parts


# Segments.


def _segment(disk: Disk, topic: TopicImage, segment: Segment, cold: SegmentStore | None) -> list[BackupFile]:
    """The files of a segment. Of one in the cold tier the data stays there, unless that is given."""
    topic_id, first = topic.topic_id, segment.first
    parts = []
    data = segment_path(topic_id, first, "data")
    there = disk.size(data)
    if there is not None:  # if it is not cold either, the damage comes along and `verify` tells
        whole = segment.sealed and there == segment.size
        parts.append(_copy_part(disk, data, min(there, segment.size), linkable=whole))
    elif segment.cold and cold is not None:
        parts.append(
            BackupFile(path=data, size=segment.size, pieces=partial(_cold_bytes, cold, topic_id, segment))
        )
    idx = segment_path(topic_id, first, "idx")
    if there is None and cold is None:  # a damaged one could not be made anew, so it comes along as it is
        if (size := part_bytes(disk, topic_id, segment, "idx")) is not None:
            parts.append(_copy_part(disk, idx, size))
    else:
        size = segment.count * ENTRY_SIZE + TRAILER_SIZE
        behind = ColdBehind(disk, cold)
        parts.append(
            BackupFile(path=idx, size=size, pieces=lambda: iter((whole_idx(behind, topic_id, segment),)))
        )
    col = segment_path(topic_id, first, "col")
    if (end := part_bytes(disk, topic_id, segment, "col")) is not None:
        if not segment.sealed:
            col_bytes = read_part(disk, topic_id, segment, "col") or b""
            _, end = seal_of(disk, topic_id, first).blocks(col_bytes, first, segment.last + 1)
        parts.append(_copy_part(disk, col, end))
    if cold is None and (found := read_part(disk, topic_id, segment, "del")) is not None:
        parts.append(_made(segment_path(topic_id, first, "del"), found))
    return parts


def _cold_bytes(store: SegmentStore, topic_id: int, segment: Segment) -> Iterator[bytes]:
    """The data of a segment in the cold tier. If it is shorter, whoever sums it up will say so."""
    for at in range(0, segment.size, CHUNK):
        yield store.read_range(SegmentId(topic_id, segment.first), "data", at, min(CHUNK, segment.size - at))
