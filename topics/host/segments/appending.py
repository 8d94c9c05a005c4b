"""Appending the pieces of a checkpoint to segments (storage 5).

Every call blocks. A piece is written behind what the last mark counts, at offsets that the plan names, and synced
before its own mark is proposed. So what a crash leaves behind the marked bytes is overwritten by the next piece, and
nobody reads it before.

The pieces of one plan share what they can: all are written before the first is synced, so that the file system has
one thing to do for many, and a directory that several new ones lie in is synced once.

What a piece needs is read and verified before anything of it is written. One for which that is not to be had, because
a record in the log or the segment's own files are damaged, is left out, and the others go on.

If a write or a sync fails, what was written of all is given back: a full disk has as much room as before, and the next
attempt writes every byte and every name again. So none of it rests on pages that a failed sync has left clean.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from operator import add
from typing import Final

import attrs

from topics.codec.log.layout import FRAME_LEN_SIZE
from topics.codec.segments.segcolumns import encode_block
from topics.codec.segments.segidx import ENTRY_SIZE, TRAILER_SIZE, encode_entries, encode_trailer
from topics.codec.segments.segment import append_frames
from topics.engine.checkpoint import Piece
from topics.engine.recovery.recover import DamageReport
from topics.host.directory.layout import path_of, segment_path, topic_dir
from topics.host.directory.size_limits import read_part
from topics.host.segments.segment_files import ENDS_OF, load_idx
from topics.host.segments.segment_seals import Seal, seal_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.index import LIVE
from topics.log.reads.frames import Extent
from topics.log.regions import SegmentId, WalFileId
from topics.log.segments import Segment
from topics.log.slots import Slots

_FLAGS_AT: Final = FRAME_LEN_SIZE + 1
_COLUMNS_HEAD: Final = 256  # more than a block has beside its columns,
_NAME_HEAD: Final = 5  # and a name beside its bytes
_DEAD: Final = bytes(0 if flags & LIVE else 1 for flags in range(256))


@attrs.frozen(kw_only=True)
class _Ready:
    """What a piece adds to its files, verified. `before`: the entries that the idx is to begin with, `has_before`: and
    does. `columns`: of the block that follows `columns_at`, which is None if there is no file for it yet.
    """

    data: bytes
    before: bytes
    has_before: bool
    entries: bytes
    columns: bytes
    columns_at: int | None


class _Damaged(Exception):
    """The piece is to be left out."""

    def __init__(self, report: DamageReport) -> None:
        super().__init__(report)
        self.report = report


def append_pieces(disk: Disk, pieces: Sequence[Piece], left_out: dict[int, DamageReport]) -> None:
    """Copy the records of some pieces, each verified, and sync them.

    `left_out`: gets the topic ids of those of which nothing was copied, and why: a record in the WAL is not whole, or
    the segment's own files are damaged. No mark may follow.

    Raises:
        OSError: the disk failed, or is full; what is behind the marked bytes is undefined. No mark of any may follow.
    """
    pieces = [piece for piece in pieces if piece.slots is not None]
    _make_dirs(disk, [topic_dir(piece.topic_id) for piece in pieces if piece.before == 0])
    begun: list[Piece] = []
    files: list[str] = []
    directories: list[str] = []
    try:
        for piece in pieces:
            try:
                ready = _prepare(disk, piece)
            except _Damaged as damaged:
                left_out[piece.topic_id] = damaged.report
                continue
            begun.append(piece)
            paths, named = _write_piece(disk, piece, ready)
            files += paths
            if named:
                directories.append(topic_dir(piece.topic_id))
        disk.sync_many(files, directories)
    except OSError:
        for piece in begun:
            _give_back(disk, piece)
        raise


def space_of(piece: Piece) -> int:
    """Bytes that it adds to files at most; the file system's blocks come on top of it."""
    slots = piece.slots
    if slots is None:
        return 0
    numbers = (slots.tag_numbers, slots.node_numbers, slots.key_numbers)
    columns = (slots.sizes, slots.expires, slots.jobs, *numbers)
    names = sum(len(name) + _NAME_HEAD for name in (*slots.tags, *slots.nodes, *slots.keys))
    entries = ENTRY_SIZE * len(slots) + TRAILER_SIZE
    return piece.size + entries + sum(map(len, columns)) + names + _COLUMNS_HEAD


def _make_dirs(disk: Disk, directories: Sequence[str]) -> None:
    """The directories of topics, durably. One that is there already was not there for long, perhaps: it is synced."""
    if not directories:
        return
    for directory in directories:
        disk.make_dir(directory)
    disk.sync_dir("topics")
    disk.sync_dir("")


def _prepare(disk: Disk, piece: Piece) -> _Ready:
    """Read all that the piece needs.

    Raises:
        _Damaged: something of it is not to be had, but others may be.
        OSError: the disk failed.
    """
    slots = piece.slots
    assert slots is not None
    data, frame_flags = _read_frames(disk, piece, slots)
    assert len(data) == piece.size
    try:
        with unreadable_on_error():
            before = _entries_before(disk, piece)
            has_before = disk.read(_paths(piece)[1], 0, len(before)) == before if before else True
            columns = _columns(slots, _seal(disk, piece).seed)
            columns_at = _columns_end(disk, piece) if columns else None
    except (Corrupt, Unreadable) as damage:
        raise _Damaged(_report(piece, SegmentId(piece.topic_id, piece.mark.segment), str(damage))) from damage
    entries = _entries(slots, piece.at, frame_flags)
    return _Ready(
        data=data,
        before=before,
        has_before=has_before,
        entries=entries,
        columns=columns,
        columns_at=columns_at,
    )


def _write_piece(disk: Disk, piece: Piece, ready: _Ready) -> tuple[list[str], bool]:
    """Write a piece. Returns the files to be synced, and whether one of them is new."""
    data_path, idx_path, col_path = _paths(piece)
    new = piece.before == 0
    if new:
        disk.unlink(col_path)
        for path in (data_path, idx_path):
            disk.create(path, 0)
    disk.write(data_path, piece.at, [ready.data])
    before, entries = ready.before, ready.entries
    if not ready.has_before:
        disk.write(idx_path, 0, [before])
    disk.write(idx_path, len(before), [entries, encode_trailer(before + entries, _seal(disk, piece).seed)])
    _cut(disk, data_path, piece.mark.size)
    _cut(disk, idx_path, len(before) + len(entries) + TRAILER_SIZE)
    if not ready.columns:
        return [data_path, idx_path], new
    if ready.columns_at is None:
        disk.create(col_path, 0)
    _cut(disk, col_path, ready.columns_at or 0)
    disk.write(col_path, ready.columns_at or 0, [ready.columns])
    return [data_path, idx_path, col_path], True


def _paths(piece: Piece) -> list[str]:
    return [segment_path(piece.topic_id, piece.mark.segment, part) for part in ("data", "idx", "col")]


def _report(piece: Piece, segment: SegmentId, why: str) -> DamageReport:
    """Its segment's files are damaged."""
    last = segment.first_seq + piece.before - 1
    return DamageReport(
        file=segment, offset=0, why=why, topic=piece.topic, first_seq=segment.first_seq, last_seq=last
    )


def _read_frames(disk: Disk, piece: Piece, slots: Slots) -> tuple[bytes, bytes]:
    """The bytes of data that the piece appends, and the flags of each frame."""
    offsets, lengths = array("I", slots.offsets), array("I", slots.lengths)
    dead = slots.flags.translate(_DEAD)
    texts: list[bytes] = []
    flags = bytearray()
    for extent in piece.extents:
        span = slice(extent.first, extent.first + extent.count)
        local = list(map((-extent.offset).__add__, offsets[span]))
        seq = slots.first_seq + extent.first
        buffer = _read_extent(disk, piece, extent, offsets, lengths)
        try:
            text = append_frames(
                buffer,
                local,
                lengths[span],
                topic_id=piece.topic_id,
                seqs=range(seq, seq + extent.count),
                dead=dead[span],
            )
        except Corrupt as damage:
            at = extent.first + _seq_of(damage) - seq
            why = f"is not whole in the log ({damage.detail['reason']})"
            raise _Damaged(_in_log(piece, extent, at, offsets[at], why)) from damage
        texts.append(text)
        flags += bytes(map(buffer.__getitem__, map(_FLAGS_AT.__add__, local)))
    assert len(flags) == len(slots)
    return b"".join(texts), bytes(flags)


def _seq_of(damage: Corrupt) -> int:
    seq = damage.detail["seq"]
    assert isinstance(seq, int)
    return seq


def _read_extent(
    disk: Disk, piece: Piece, extent: Extent, offsets: Sequence[int], lengths: Sequence[int]
) -> bytes:
    """Its bytes. Where the medium does not give all of them, those of its records alone: the rest is of others."""
    path = path_of(extent.source)
    try:
        with unreadable_on_error():
            return disk.read(path, extent.offset, extent.size)
    except Unreadable:
        pass
    buffer = bytearray(extent.size)
    for at in range(extent.first, extent.first + extent.count):
        try:
            with unreadable_on_error():
                frame = disk.read(path, offsets[at], lengths[at])
        except Unreadable as failed:
            why = f"cannot be read in the log ({failed.strerror})"
            raise _Damaged(_in_log(piece, extent, at, offsets[at], why)) from failed
        start = offsets[at] - extent.offset
        buffer[start : start + len(frame)] = frame
    return bytes(buffer)


def _in_log(piece: Piece, extent: Extent, at: int, offset: int, why: str) -> DamageReport:
    """Record `at` of the piece is not to be had."""
    assert isinstance(extent.source, WalFileId)
    assert piece.slots is not None
    seq = piece.slots.first_seq + at
    return DamageReport(
        file=extent.source,
        offset=offset,
        why=f"a record that no segment has yet {why}, and holds up those behind it",
        topic=piece.topic,
        first_seq=seq,
        last_seq=seq,
    )


def _entries(slots: Slots, at: int, frame_flags: bytes) -> bytes:
    lengths = array("I", slots.lengths)
    offsets = array("I", map(add, accumulate(lengths, initial=at), range(len(lengths))))
    ends = slots.flags.translate(ENDS_OF)
    flags = bytes(map(int.__or__, frame_flags, ends)) if any(ends) else frame_flags
    return encode_entries(offsets, lengths, array("Q", slots.ts), flags)


def _entries_before(disk: Disk, piece: Piece) -> bytes:
    """The entries that the idx has, verified: the new trailer is going to vouch for them."""
    if piece.before == 0:
        return b""
    first = piece.mark.segment
    segment = Segment(first, first + piece.before - 1, piece.at, since=0, sealed=False)
    idx, _ = load_idx(disk, piece.topic_id, segment)
    if missing := idx.lengths.count(0):
        path = segment_path(piece.topic_id, first, "data")
        raise Corrupt(f"topic {piece.topic!r}: {missing} records are not in {path}", topic=piece.topic)
    return encode_entries(idx.offsets, idx.lengths, idx.ts, idx.flags)


def _columns(slots: Slots, seed: int) -> bytes:
    """What the index needs beside the idx, if anything."""
    return encode_block(
        slots.first_seq,
        array("I", slots.lengths),
        sizes=array("I", slots.sizes),
        tags=slots.tag_of_each or None,
        nodes=slots.node_of_each or None,
        expires=array("Q", slots.expires) or None,
        jobs=array("Q", slots.jobs) or None,
        keys=slots.key_of_each or None,
        of_queue=slots.of_queue,
        seed=seed,
    )


def _columns_end(disk: Disk, piece: Piece) -> int | None:
    """Where the blocks of records before the piece end; None if there is no file."""
    path = _paths(piece)[2]
    size = disk.size(path) if piece.before else None
    return None if size is None else _blocks_end(disk, piece)


def _blocks_end(disk: Disk, piece: Piece) -> int:
    before = _columns_before(disk, piece)
    return _seal(disk, piece).blocks(before, piece.mark.segment, piece.mark.first)[1]


def _seal(disk: Disk, piece: Piece) -> Seal:
    return seal_of(disk, piece.topic_id, piece.mark.segment)


def _columns_before(disk: Disk, piece: Piece) -> bytes:
    """The blocks of the records before the piece, and what lies behind them."""
    mark = piece.mark
    before = Segment(mark.segment, mark.first - 1, piece.at, 0, sealed=False)
    return read_part(disk, piece.topic_id, before, "col") or b""


def _cut(disk: Disk, path: str, size: int) -> None:
    """What an append that was broken off has left behind `size` goes."""
    if (disk.size(path) or 0) > size:
        disk.truncate(path, size)


def _give_back(disk: Disk, piece: Piece) -> None:
    """What was written of a piece goes, as far as the disk lets it: nobody reads it, and the space is wanted."""
    data_path, idx_path, col_path = _paths(piece)
    if piece.before == 0:
        for path in (data_path, idx_path, col_path):
            with suppress(OSError):
                disk.unlink(path)
        return
    with suppress(OSError, Corrupt):
        _cut(disk, data_path, piece.at)
        _cut(disk, col_path, _blocks_end(disk, piece))
        before = _entries_before(disk, piece)
        idx = before + encode_trailer(before, _seal(disk, piece).seed)
        if disk.read(idx_path, 0, len(idx)) != idx:
            disk.write(idx_path, 0, [idx])
        _cut(disk, idx_path, len(idx))
