"""Appending the pieces of a checkpoint to segments (storage 5).

Every call blocks. A piece is written behind what the last mark counts, at offsets that the plan names, and synced
before its own mark is proposed. So what a crash leaves behind the marked bytes is overwritten by the next piece, and
nobody reads it before.

The pieces of one plan share what they can: all are written before the first is synced, so that the file system has
one thing to do for many, and a directory that several new ones lie in is synced once.

If any of them fails, what was written of all is given back: a full disk has as much room as before, and the next
attempt writes every byte and every name again. So none of it rests on pages that a failed sync has left clean.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from operator import add
from typing import Final

from topics.codec.layout import FRAME_LEN_SIZE
from topics.codec.segcolumns import blocks_within, encode_block
from topics.codec.segidx import ENTRY_SIZE, TRAILER_SIZE, encode_entries, encode_trailer
from topics.codec.segment import append_frames
from topics.engine.checkpoint import Piece
from topics.host.layout import path_of, segment_path, topic_dir
from topics.host.segments import ENDS_OF, load_idx
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.index import LIVE
from topics.log.segments import Segment
from topics.log.slots import Slots

_FLAGS_AT: Final = FRAME_LEN_SIZE + 1
_COLUMNS_HEAD: Final = 256  # more than a block has beside its columns,
_NAME_HEAD: Final = 5  # and a name beside its bytes
_DEAD: Final = bytes(0 if flags & LIVE else 1 for flags in range(256))


def append_pieces(disk: Disk, pieces: Sequence[Piece]) -> None:
    """Copy the records of some pieces, each verified, and sync them.

    Raises:
        Corrupt: a record in the WAL is not whole, or a segment's idx and data are damaged; no mark may follow.
        OSError: the disk failed, or is full; what is behind the marked bytes is undefined.
    """
    pieces = [piece for piece in pieces if piece.slots is not None]
    _make_dirs(disk, [topic_dir(piece.topic_id) for piece in pieces if piece.before == 0])
    begun: list[Piece] = []
    files: list[str] = []
    directories: list[str] = []
    try:
        for piece in pieces:
            begun.append(piece)
            paths, named = _write_piece(disk, piece)
            files += paths
            if named:
                directories.append(topic_dir(piece.topic_id))
        disk.sync_many(files, directories)
    except (OSError, Corrupt):
        for piece in begun:
            _give_back(disk, piece)
        raise


def space_of(piece: Piece) -> int:
    """Bytes that it adds to files at most; the file system's blocks come on top of it."""
    slots = piece.slots
    if slots is None:
        return 0
    columns = (slots.sizes, slots.tag_numbers, slots.node_numbers, slots.expires)
    names = sum(len(name) + _NAME_HEAD for name in (*slots.tags, *slots.nodes))
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


def _write_piece(disk: Disk, piece: Piece) -> tuple[list[str], bool]:
    """Write a piece. Returns the files to be synced, and whether one of them is new."""
    slots, mark = piece.slots, piece.mark
    assert slots is not None
    data, frame_flags = _read_frames(disk, piece, slots)
    assert len(data) == piece.size
    paths = [segment_path(piece.topic_id, mark.segment, part) for part in ("data", "idx", "col")]
    data_path, idx_path, col_path = paths
    new = piece.before == 0
    if new:
        disk.unlink(col_path)
        for path in (data_path, idx_path):
            disk.create(path, 0)
    disk.write(data_path, piece.at, [data])
    entries = _entries(slots, piece.at, frame_flags)
    before = _entries_before(disk, piece)
    if disk.read(idx_path, 0, len(before)) != before:
        disk.write(idx_path, 0, [before])
    disk.write(idx_path, len(before), [entries, encode_trailer(before + entries)])
    _cut(disk, data_path, mark.size)
    _cut(disk, idx_path, len(before) + len(entries) + TRAILER_SIZE)
    added = _append_columns(disk, col_path, slots, mark.segment)
    return [data_path, idx_path, *added], new or bool(added)


def _read_frames(disk: Disk, piece: Piece, slots: Slots) -> tuple[bytes, bytes]:
    """The bytes of data that the piece appends, and the flags of each frame."""
    offsets, lengths = array("I", slots.offsets), array("I", slots.lengths)
    dead = slots.flags.translate(_DEAD)
    texts: list[bytes] = []
    flags = bytearray()
    for extent in piece.extents:
        buffer = disk.read(path_of(extent.source), extent.offset, extent.size)
        span = slice(extent.first, extent.first + extent.count)
        local = list(map((-extent.offset).__add__, offsets[span]))
        seq = slots.first_seq + extent.first
        texts.append(
            append_frames(
                buffer,
                local,
                lengths[span],
                topic_id=piece.topic_id,
                seqs=range(seq, seq + extent.count),
                dead=dead[span],
            )
        )
        flags += bytes(map(buffer.__getitem__, map(_FLAGS_AT.__add__, local)))
    assert len(flags) == len(slots)
    return b"".join(texts), bytes(flags)


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


def _append_columns(disk: Disk, path: str, slots: Slots, first: int) -> list[str]:
    """Append what the index needs beside the idx, if anything; the files to be synced. `first`: of the segment."""
    block = encode_block(
        slots.first_seq,
        array("I", slots.lengths),
        sizes=array("I", slots.sizes),
        tags=slots.tag_of_each or None,
        nodes=slots.node_of_each or None,
        expires=array("Q", slots.expires) or None,
    )
    if not block:
        return []
    size = disk.size(path)
    if size is None:
        disk.create(path, 0)
        size = 0
    _, end = blocks_within(disk.read(path, 0, size), first, slots.first_seq)
    _cut(disk, path, end)
    disk.write(path, end, [block])
    return [path]


def _cut(disk: Disk, path: str, size: int) -> None:
    """What an append that was broken off has left behind `size` goes."""
    if (disk.size(path) or 0) > size:
        disk.truncate(path, size)


def _give_back(disk: Disk, piece: Piece) -> None:
    """What was written of a piece goes, as far as the disk lets it: nobody reads it, and the space is wanted."""
    paths = [segment_path(piece.topic_id, piece.mark.segment, part) for part in ("data", "idx", "col")]
    if piece.before == 0:
        for path in paths:
            with suppress(OSError):
                disk.unlink(path)
        return
    data_path, idx_path, col_path = paths
    with suppress(OSError, Corrupt):
        _cut(disk, data_path, piece.at)
        columns = disk.read(col_path, 0, disk.size(col_path) or 0) if disk.size(col_path) else b""
        _cut(disk, col_path, blocks_within(columns, piece.mark.segment, piece.mark.first)[1])
        before = _entries_before(disk, piece)
        idx = before + encode_trailer(before)
        if disk.read(idx_path, 0, len(idx)) != idx:
            disk.write(idx_path, 0, [idx])
        _cut(disk, idx_path, len(idx))
