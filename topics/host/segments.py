"""Segments on the disk: appending a piece of a checkpoint, and reading what a start needs of them (storage 5).

Every call blocks. A piece is written behind what the last mark counts, at offsets that the plan names, and synced
before its own mark is proposed. So what a crash leaves behind the marked bytes is overwritten by the next piece, and
nobody reads it before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate, compress
from operator import add
from typing import Final

from topics.codec.frame import decode_frame
from topics.codec.layout import EXT, FRAME_LEN_SIZE, META, NODE, TAG
from topics.codec.segcolumns import ColumnsBlock, blocks_before, encode_block, implied_sizes
from topics.codec.segidx import (
    DELETED,
    EXPIRED,
    TRAILER_SIZE,
    IdxColumns,
    decode_idx,
    encode_entries,
    encode_trailer,
)
from topics.codec.segment import append_frames, walk
from topics.engine.checkpoint import Piece
from topics.host.layout import path_of, segment_path, topic_dir
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.index import LIVE, NODED, TAGGED, TIMED
from topics.log.past import End
from topics.log.segments import Segment
from topics.log.slots import Slots

_FLAGS_AT: Final = FRAME_LEN_SIZE + 1
_ENDS: Final = bytes(
    (DELETED if flags & End.DELETED else 0) | (EXPIRED if flags & End.EXPIRED else 0) for flags in range(256)
)
_DEAD: Final = bytes(0 if flags & LIVE else 1 for flags in range(256))
# Size or labels of such a record do not follow from its idx entry.
_NEEDS_BLOCK: Final = bytes(1 if flags & (TAG | NODE | META | EXT) else 0 for flags in range(256))
_IS_ZERO: Final = bytes(1 if value == 0 else 0 for value in range(256))
_SLOT_FLAGS: Final = bytes(
    LIVE | (TAGGED if flags & TAG else 0) | (NODED if flags & NODE else 0) for flags in range(256)
)


def append_piece(disk: Disk, piece: Piece) -> None:
    """Copy the records of a piece, each verified, and sync them.

    Raises:
        Corrupt: a record in the WAL is not whole, or the segment's idx and data are damaged; no mark may follow.
        OSError: the disk failed; what is behind the marked bytes is undefined.
    """
    slots, mark = piece.slots, piece.mark
    if slots is None:
        return
    data, frame_flags = _read_frames(disk, piece, slots)
    assert len(data) == piece.size
    paths = [segment_path(piece.topic_id, mark.segment, part) for part in ("data", "idx", "col")]
    data_path, idx_path, col_path = paths
    new = piece.before == 0
    if new:
        directory = topic_dir(piece.topic_id)
        disk.make_dir(directory)
        disk.sync_dir("topics")
        disk.sync_dir("")
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
    added = _append_columns(disk, col_path, slots)
    for path in (data_path, idx_path, *added):
        disk.sync_data(path)
    if new or added:
        disk.sync_dir(topic_dir(piece.topic_id))


def load_slots(disk: Disk, topic_id: int, segment: Segment, base_seq: int) -> tuple[Slots, str]:
    """The slots of a segment from `base_seq` on, all live, and what is wrong with its files: `""` if nothing is.

    A record that is not there any more gets a slot of length 0: reading it fails, with its seq in the message.
    """
    first = max(segment.first, base_seq)
    assert first <= segment.last
    idx, wrong = _load_idx(disk, topic_id, segment)
    blocks, why = _load_blocks(disk, topic_id, segment, idx)
    skip = first - segment.first
    slots = Slots(
        first_seq=first,
        ts=idx.ts[skip:].tobytes(),
        offsets=idx.offsets[skip:].tobytes(),
        lengths=idx.lengths[skip:].tobytes(),
        sizes=b"",
        flags=bytes(idx.flags[skip:]).translate(_SLOT_FLAGS),
    )
    _add_columns(slots, segment, idx, blocks, skip)
    return slots, wrong or why


def mend_idx(disk: Disk, topic_id: int, segment: Segment) -> bool:
    """Write the idx anew from the data unless it is whole and counts what the marks count. True if it was written."""
    idx = _read_idx(disk, topic_id, segment)
    if idx is not None and len(idx) == segment.count:
        return False
    found, _ = _rebuilt_idx(disk, topic_id, segment)
    path = segment_path(topic_id, segment.first, "idx")
    entries = encode_entries(found.offsets, found.lengths, found.ts, found.flags)
    disk.create(path, 0)
    disk.write(path, 0, [entries, encode_trailer(entries)])
    disk.sync_data(path)
    disk.sync_dir(topic_dir(topic_id))
    return True


# Appending.


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
    ends = slots.flags.translate(_ENDS)
    flags = bytes(map(int.__or__, frame_flags, ends)) if any(ends) else frame_flags
    return encode_entries(offsets, lengths, array("Q", slots.ts), flags)


def _entries_before(disk: Disk, piece: Piece) -> bytes:
    """The entries that the idx has, verified: the new trailer is going to vouch for them."""
    if piece.before == 0:
        return b""
    first = piece.mark.segment
    segment = Segment(first, first + piece.before - 1, piece.at, since=0, sealed=False)
    idx, wrong = _load_idx(disk, piece.topic_id, segment)
    if wrong:
        raise Corrupt(f"topic {piece.topic!r}: {wrong}", topic=piece.topic)
    return encode_entries(idx.offsets, idx.lengths, idx.ts, idx.flags)


def _append_columns(disk: Disk, path: str, slots: Slots) -> list[str]:
    """Append what the index needs beside the idx, if anything; the files to be synced."""
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
    _, end = blocks_before(disk.read(path, 0, size), slots.first_seq)
    _cut(disk, path, end)
    disk.write(path, end, [block])
    return [path]


def _cut(disk: Disk, path: str, size: int) -> None:
    """What an append that was broken off has left behind `size` goes."""
    if (disk.size(path) or 0) > size:
        disk.truncate(path, size)


# Reading at a start.


def _load_idx(disk: Disk, topic_id: int, segment: Segment) -> tuple[IdxColumns, str]:
    idx = _read_idx(disk, topic_id, segment)
    if idx is None or len(idx) < segment.count:
        return _rebuilt_idx(disk, topic_id, segment)
    if len(idx) > segment.count:  # a later mark counts more
        idx = IdxColumns(
            idx.offsets[: segment.count],
            idx.lengths[: segment.count],
            idx.ts[: segment.count],
            idx.flags[: segment.count],
        )
    return idx, ""


def _read_idx(disk: Disk, topic_id: int, segment: Segment) -> IdxColumns | None:
    """The idx file if it is whole."""
    path = segment_path(topic_id, segment.first, "idx")
    try:
        return decode_idx(disk.read(path, 0, disk.size(path) or 0))
    except Corrupt:
        return None
    except FileNotFoundError:
        return None


def _rebuilt_idx(disk: Disk, topic_id: int, segment: Segment) -> tuple[IdxColumns, str]:
    """The idx as the data says it must be."""
    path = segment_path(topic_id, segment.first, "data")
    data = _read_data(disk, topic_id, segment)
    found = walk(data, 0, len(data), topic_id=topic_id, first_seq=segment.first, seq_stop=segment.last + 1)
    missing = segment.count - len(found)
    wrong = f"{missing} of {segment.count} records are not in {path}" if missing else ""
    return found.index_columns(segment.first, segment.last + 1), wrong


def _read_data(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """What is there of a segment's data, up to the bytes that the marks count."""
    try:
        return disk.read(segment_path(topic_id, segment.first, "data"), 0, segment.size)
    except FileNotFoundError:
        return b""


def _load_blocks(
    disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns
) -> tuple[list[ColumnsBlock], str]:
    """The blocks of a segment; made anew from its data if one that must be there is not."""
    path = segment_path(topic_id, segment.first, "col")
    size = disk.size(path)
    blocks = [] if size is None else blocks_before(disk.read(path, 0, size), segment.last + 1)[0]
    covered = bytearray(len(idx))
    for block in blocks:
        start = block.first_seq - segment.first
        covered[start : start + block.count] = b"\x01" * block.count
    needed = idx.flags.translate(_NEEDS_BLOCK)
    if any(compress(needed, covered.translate(_IS_ZERO))):
        return _rebuilt_blocks(disk, topic_id, segment, idx)
    return blocks, ""


def _rebuilt_blocks(
    disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns
) -> tuple[list[ColumnsBlock], str]:
    data = _read_data(disk, topic_id, segment)
    sizes = implied_sizes(idx.lengths)
    tags, nodes, expires = [b""] * len(idx), [b""] * len(idx), array("Q", bytes(len(idx) * 8))
    wrong = ""
    for at, flags in enumerate(idx.flags):
        if not _NEEDS_BLOCK[flags] or not idx.lengths[at]:
            continue
        start, stop = idx.offsets[at], idx.offsets[at] + idx.lengths[at]
        if stop > len(data):
            wrong = wrong or f"seq {segment.first + at}: the data ends before its record"
            continue
        try:
            view = decode_frame(data, start, stop)
        except Corrupt as damage:
            wrong = wrong or f"seq {segment.first + at}: {damage.message}"
            continue
        sizes[at] = len(view.data) + len(view.meta)
        tags[at], nodes[at], expires[at] = view.tag, view.node, view.expires_at or 0
    block = encode_block(segment.first, idx.lengths, sizes=sizes, tags=tags, nodes=nodes, expires=expires)
    return blocks_before(block, segment.last + 1)[0], wrong


def _add_columns(
    slots: Slots, segment: Segment, idx: IdxColumns, blocks: list[ColumnsBlock], skip: int
) -> None:
    """Put the blocks' columns into the slots, whose first is the segment's `skip`-th."""
    sizes = implied_sizes(idx.lengths)
    tags, nodes = list(_names(blocks, "tags")), list(_names(blocks, "nodes"))
    tag_numbers, node_numbers = array("I", bytes(4 * len(idx))), array("I", bytes(4 * len(idx)))
    expires = array("Q", bytes(8 * len(idx)))
    tag_at = {name: number for number, name in enumerate(tags, 1)}
    node_at = {name: number for number, name in enumerate(nodes, 1)}
    for block in blocks:
        start = block.first_seq - segment.first
        span = slice(start, start + block.count)
        if block.sizes is not None:
            sizes[span] = block.sizes
        if block.tag_numbers is not None:
            tag_numbers[span] = _renumbered(block.tag_numbers, block.tags, tag_at)
        if block.node_numbers is not None:
            node_numbers[span] = _renumbered(block.node_numbers, block.nodes, node_at)
        if block.expires is not None:
            expires[span] = block.expires
    slots.sizes = sizes[skip:].tobytes()
    if tags:
        slots.tags, slots.tag_numbers = tags, tag_numbers[skip:].tobytes()
    if nodes:
        slots.nodes, slots.node_numbers = nodes, node_numbers[skip:].tobytes()
    if any(expires[skip:]):
        slots.expires = expires[skip:].tobytes()
        slots.flags = bytes(
            flags | TIMED if due else flags for flags, due in zip(slots.flags, expires[skip:], strict=True)
        )


def _names(blocks: list[ColumnsBlock], field: str) -> Iterator[bytes]:
    return iter(dict.fromkeys(name for block in blocks for name in getattr(block, field)))


def _renumbered(numbers: array[int], names: list[bytes], at: dict[bytes, int]) -> array[int]:
    table = [0, *(at[name] for name in names)]
    return array("I", [table[number] for number in numbers])
