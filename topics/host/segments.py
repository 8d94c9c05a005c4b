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


def whole_idx(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """The idx file of exactly the entries that count; made anew from the data if it is damaged."""
    idx, _ = _load_idx(disk, topic_id, segment)
    entries = encode_entries(idx.offsets, idx.lengths, idx.ts, idx.flags)
    return entries + encode_trailer(entries)


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
