"""The ends of records in the files of segments: how a reader without the state knows what is dead (storage 5 and 6).

    hot segment     a delete byte in `.data` and a bit in `.idx`, set in place (`flag_ends`)
    cold segment    a `.del` beside its `.idx`, replaced as a whole (`note_ends`), for its data is not edited

They are hints. Which records are dead is said by the snapshots and the log; a start never asks these files. They are
for who reads a segment without either: a repair, or a tool. So a flag that a crash takes is no loss, and one is only
set for an end that is durable already. A bit that turns over in a delete byte changes nothing
(`codec.segments.segment`).

A file that something outside shares, as a backup does by a second name, is copied before its first flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topics.codec.segments.segdel import EndedRecords, encode_del
from topics.codec.segments.segidx import DELETED, ENDS, ENTRY_FLAGS_AT, ENTRY_SIZE, EXPIRED, IdxColumns
from topics.codec.segments.segment import DEAD
from topics.host.directory.layout import segment_path, topic_dir
from topics.host.segments.segment_files import ENDS_OF
from topics.host.segments.segment_seals import seal_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.past import DeathCause
from topics.log.regions import SegmentId
from topics.log.segments import Segment

_GAP_MAX: Final = 4096  # flips closer than this are one write
_SPAN_MAX: Final = MIB
_BIT_OF: Final = {DeathCause.DELETED: DELETED, DeathCause.EXPIRED: EXPIRED}
_Flip = tuple[int, int]  # where, and what is there then


def flag_ends(
    disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, ends: bytes, *, free_min: int = 0
) -> bool:
    """Flag what has ended and is not flagged yet in a hot segment, durably. `ends`: the bits of `DeathCause` of each
    slot.

    `free_min`: bytes of the disk that others need more. False if there is no room for the copy of a shared file: then
    flags are missing. Raises OSError; Unreadable: the medium does not give what is to be flagged.
    """
    assert len(ends) == len(idx) == segment.count
    new = [at for at, end in enumerate(ends) if end and idx.lengths[at] and not idx.flags[at] & ENDS]
    if not new:
        return True
    data = [(idx.offsets[at] + idx.lengths[at], DEAD) for at in new]
    entries = [(at * ENTRY_SIZE + ENTRY_FLAGS_AT, idx.flags[at] | _bit(ends[at])) for at in new]
    for part, flips in (("data", data), ("idx", entries)):  # in this order: an entry that says so is believed
        path = segment_path(topic_id, segment.first, part)
        shared = disk.links(path) > 1
        if shared and disk.free_bytes(topic_dir(topic_id)) < free_min + (disk.size(path) or 0):
            return False
        target = _copied(disk, path) if shared else path
        _flip(disk, target, flips)
        disk.sync_data(target)
        if shared:
            disk.rename(target, path)
            disk.sync_dir(topic_dir(topic_id))
    return True


def note_ends(disk: Disk, topic_id: int, segment: Segment, ends: bytes) -> None:
    """Keep what has ended in a cold segment in its `.del`, durably. `ends`: the bits of `DeathCause` of each slot.

    Raises OSError.
    """
    assert len(ends) == segment.count
    if not any(ends):
        return
    of = SegmentId(topic_id, segment.first)
    path, data = (
        segment_path(*of, "del"),
        encode_del(EndedRecords(*of, ends.translate(ENDS_OF)), seal_of(disk, *of).seed),
    )
    if _has(disk, path, data):
        return
    write_temporary(disk, path, data)
    disk.rename(path + TEMPORARY, path)
    disk.sync_dir(topic_dir(topic_id))


def _has(disk: Disk, path: str, data: bytes) -> bool:
    """Whether these are the bytes of the file. One that cannot be read is replaced."""
    size = disk.size(path)
    try:
        with unreadable_on_error():
            return size == len(data) and disk.read(path, 0, size) == data
    except Unreadable:
        return False


def _bit(end: int) -> int:
    return _BIT_OF[DeathCause.DELETED if end & DeathCause.DELETED else DeathCause.EXPIRED]


def _flip(disk: Disk, path: str, flips: Sequence[_Flip]) -> None:
    """Set bytes, those near each other by one write: what lies between them is written as it was."""
    start = 0
    for stop in range(1, len(flips) + 1):
        if stop < len(flips):
            near = flips[stop][0] - flips[stop - 1][0] <= _GAP_MAX
            if near and flips[stop][0] - flips[start][0] < _SPAN_MAX:
                continue
        _flip_span(disk, path, flips[start:stop])
        start = stop


def _flip_span(disk: Disk, path: str, flips: Sequence[_Flip]) -> None:
    first, last = flips[0][0], flips[-1][0]
    with unreadable_on_error():
        span = bytearray(disk.read(path, first, last + 1 - first))
    for at, value in flips:
        if at - first < len(span):  # a file that was cut short is for a read to tell
            span[at - first] = value
    disk.write(path, first, [bytes(span)])


def _copied(disk: Disk, path: str) -> str:
    """A file of the same bytes under a temporary name."""
    target = path + TEMPORARY
    disk.create(target, 0)
    at, size = 0, disk.size(path) or 0
    while at < size:
        with unreadable_on_error():
            chunk = disk.read(path, at, min(_SPAN_MAX, size - at))
        disk.write(target, at, [chunk])
        at += len(chunk)
    return target
