"""How large a file of each kind can be, so that whoever reads one whole reads no more (I-18).

The size of a file says nothing of what is in it: a hole of a tebibyte takes no room, and bytes may have been put behind
what topics wrote. So a file is read up to the most that topics would have written, as far as it is known what that is.
"""

from __future__ import annotations

from typing import Final

from topics.codec.segments.segdel import DEL_OVERHEAD, DEL_RUN
from topics.codec.segments.segidx import ENTRY_SIZE, TRAILER_SIZE
from topics.host.directory.layout import segment_path
from topics.kernel.limits import (
    KIB,
    MANIFEST_BYTES_MAX,
    MIB,
    NOTE_BYTES_MAX,
    PENDING_BYTES_MAX,
    PIECE_RECORDS_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENT_RECORDS_MAX,
    SNAPSHOT_BYTES_MAX,
    WAL_BYTES_MAX,
    WAL_FILE_MAX,
)
from topics.kernel.ports import Disk
from topics.log.segments import Segment

_PIECE: Final = 8 * MIB
_ZEROS_KEPT: Final = 64 * KIB  # a frame may end in a few
# Columns and names of one record. Names of the limits' default length take 384 bytes.
LABELS_PER_RECORD: Final = 2 * KIB


def read_part(disk: Disk, topic_id: int, segment: Segment, part: str) -> bytes | None:
    """What is there of one file of a segment, up to `part_bytes_max`; None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    size = part_bytes(disk, topic_id, segment, part)
    try:
        return None if size is None else disk.read(segment_path(topic_id, segment.first, part), 0, size)
    except FileNotFoundError:
        return None


def part_bytes(disk: Disk, topic_id: int, segment: Segment, part: str) -> int | None:
    """How much of one file of a segment counts; None if it is not there."""
    size = disk.size(segment_path(topic_id, segment.first, part))
    most = part_bytes_max(part, count=segment.count, size=segment.size, sealed=segment.sealed)
    return None if size is None else min(size, most)


def part_bytes_max(part: str, *, count: int, size: int, sealed: bool) -> int:
    """Of a segment of so many records, with so many bytes of data, by all that is known of it; an append may have left
    more. One that is not sealed may have grown since.
    """
    most = count + PIECE_RECORDS_MAX if sealed else max(SEGMENT_RECORDS_MAX, count)
    if part == "idx":
        return most * ENTRY_SIZE + TRAILER_SIZE
    if part == "del":
        return most * DEL_RUN.size + DEL_OVERHEAD
    if part == "col":
        return (count + PIECE_RECORDS_MAX) * LABELS_PER_RECORD + size
    return size if sealed else max(SEGMENT_BYTES_MAX, size)


def read_log(disk: Disk, path: str) -> bytes:
    """What is there of a file of the log; of many zeros behind it only the first.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it cannot be read.
    """
    return read_most(disk, path, WAL_BYTES_MAX)


def read_most(disk: Disk, path: str, most: int) -> bytes:
    """The first `most` bytes of a file. Of many zeros at the end of them only the first: a hole takes no memory.

    Raises:
        FileNotFoundError: it is not there.
        OSError: it cannot be read.
    """
    size = min(disk.size(path) or 0, most)
    if size <= WAL_FILE_MAX:
        return disk.read(path, 0, size)
    pieces: list[bytes] = []
    zeros, nothing = 0, bytes(_PIECE)
    for at in range(0, size, _PIECE):
        piece = disk.read(path, at, min(_PIECE, size - at))
        if piece == nothing[: len(piece)]:
            zeros += len(piece)
            continue
        stripped = piece.rstrip(b"\0")
        pieces += (bytes(zeros), stripped)
        zeros = len(piece) - len(stripped)
    pieces.append(bytes(min(zeros, _ZEROS_KEPT)))
    return b"".join(pieces)


def log_bytes(disk: Disk, path: str) -> int:
    """How much of a file of the log counts; 0 if it is not there."""
    return min(disk.size(path) or 0, WAL_BYTES_MAX)


def bytes_max(name: str) -> int:
    """Of a file of this name, whatever it is about."""
    kind = name.removesuffix(".tmp").rpartition(".")[2]
    return _BYTES_MAX.get(kind, NOTE_BYTES_MAX)  # LOCK, FORMAT and CURRENT are no larger than a note


_BYTES_MAX: Final = {
    "log": WAL_BYTES_MAX,
    "next": WAL_BYTES_MAX,
    "bin": SNAPSHOT_BYTES_MAX,
    "snapshot": SNAPSHOT_BYTES_MAX,
    "data": SEGMENT_BYTES_MAX + PENDING_BYTES_MAX,
    "idx": SEGMENT_RECORDS_MAX * ENTRY_SIZE + TRAILER_SIZE,
    "del": SEGMENT_RECORDS_MAX * DEL_RUN.size + DEL_OVERHEAD,
    "col": 1024 * MIB,
    "json": MANIFEST_BYTES_MAX,
    "RESTORED": SNAPSHOT_BYTES_MAX,  # it says less of each topic
}
