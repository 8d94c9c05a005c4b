"""Frames read from the cold tier, held against the index, which is in the data directory (storage 6).

A frame says its topic and its seq, and that it is whole. In a cold directory that two copies of a store have changed,
that is true of the other one's records, too. The index knows when each of our own was written, where it lies and how
long it is. So what is whole and not in the index so is another's, and is made to fail its checksum: whoever reads it
finds damage, at that seq and no other.
"""

from __future__ import annotations

from itertools import compress
from typing import Final

from topics.codec.segments.segidx import ENDS, ENTRY, ENTRY_SIZE, IdxColumns
from topics.codec.segments.segment import LIVE, DataColumns, walk
from topics.host.directory.layout import segment_path
from topics.host.directory.size_limits import read_part
from topics.host.segments.segment_seals import seal_of
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId
from topics.log.segments import Segment

_MISSING_END: Final = bytes((LIVE,))  # an extent ends with its last frame
_WRONG: Final = 0xFF
_Entry = tuple[int, int, int, int]  # offset, length, ts, flags of the frame


def without_foreign(disk: Disk, segment: SegmentId, found: Segment, offset: int, data: bytes) -> bytes:
    """The bytes at `offset` of a segment's data, with the checksum of each frame broken that the index does not have.

    Without an index that can be read they stay as they are: the next start makes it anew, or tells.

    Raises:
        OSError: the data directory failed.
    """
    frames = _frames_in(segment, found, data)
    if not len(frames):
        return data
    said = [
        (at + offset, length, ts, flags & ~ENDS)
        for at, length, ts, flags in zip(frames.offsets, frames.lengths, frames.ts, frames.flags, strict=True)
    ]
    numbers = [seq - found.first for seq in frames.seqs]
    if said == _entries(disk, segment, numbers):
        return data
    idx = _whole_idx(disk, segment, found)
    if idx is None:
        return data
    strange = [_entry(idx, number) != one for number, one in zip(numbers, said, strict=True)]
    poisoned = bytearray(data)
    for at, length in compress(zip(frames.offsets, frames.lengths, strict=True), strange):
        poisoned[at + length - 1] ^= _WRONG
    return bytes(poisoned)


def _frames_in(segment: SegmentId, found: Segment, data: bytes) -> DataColumns:
    return walk(
        data + _MISSING_END,
        0,
        len(data) + 1,
        topic_id=segment.topic_id,
        first_seq=found.first,
        seq_stop=found.last + 1,
    )


def _entries(disk: Disk, segment: SegmentId, numbers: list[int]) -> list[_Entry]:
    """What the index says of these records, unverified; fewer if it is too short. `numbers` ascend."""
    first, size = numbers[0], (numbers[-1] - numbers[0] + 1) * ENTRY_SIZE
    try:
        data = disk.read(segment_path(*segment, "idx"), first * ENTRY_SIZE, size)
    except FileNotFoundError:
        return []
    if len(data) < size:
        return []
    entries = (ENTRY.unpack_from(data, (number - first) * ENTRY_SIZE) for number in numbers)
    return [(offset, length, ts, flags & ~ENDS) for offset, length, ts, flags in entries]


def _whole_idx(disk: Disk, segment: SegmentId, found: Segment) -> IdxColumns | None:
    """The index of a segment; None if it cannot be read, or is not about all of its records. Raises OSError."""
    try:
        idx = seal_of(disk, *segment).idx(read_part(disk, segment.topic_id, found, "idx") or b"")
    except Corrupt:
        return None
    return idx if len(idx) == found.count else None


def _entry(idx: IdxColumns, number: int) -> _Entry:
    return idx.offsets[number], idx.lengths[number], idx.ts[number], idx.flags[number] & ~ENDS
