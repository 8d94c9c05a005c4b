"""What a start and a rewrite read of a segment's files: idx and columns, held against the data (storage 4 and 5).

Every call blocks. `.data` is the truth; `.idx` and `.col` say what is in it, so that a start need not read it. Each
file has its own checksum, which the file of another segment fails (`host.segments.segment_seals`). Still an idx may
not fit the data: a crash can come between the renames of a rewrite, or in an append. So it is taken only if it implies
the data's size; else it is made anew. The data says in every frame whose it is, so of that one record is asked.

A record that should be in the data and is not has a slot without bytes, of length 0. What idx and columns still know of
it is kept (time, size, labels), so that it ends when it would have ended.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

import attrs

from topics.codec.log.layout import FRAME_HEAD, NODE, TAG
from topics.codec.segments.segcolumns import ColumnsBlock, implied_sizes
from topics.codec.segments.segidx import DELETED, EXPIRED, IdxColumns, encode_entries, encode_trailer
from topics.codec.segments.segment import END_SIZE, walk
from topics.host.directory.layout import segment_path, topic_dir
from topics.host.directory.size_limits import read_part
from topics.host.segments.blocks import Unlabelled, load_blocks, read_data
from topics.host.segments.segment_seals import Seal, seal_of
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.index import LIVE, NODED, TAGGED, TIMED
from topics.log.past import DeathCause
from topics.log.segments import Segment
from topics.log.slots import Slots

_SLOT_FLAGS: Final = bytes(
    LIVE | (TAGGED if flags & TAG else 0) | (NODED if flags & NODE else 0) for flags in range(256)
)
_NO_LENGTH: Final = bytes(4)
_NAMED: Final = Struct("<QQ")  # topic id and seq in the head of a frame
_NAMED_AT: Final = 6
assert FRAME_HEAD.unpack(bytes(_NAMED_AT) + _NAMED.pack(7, 5) + bytes(16))[3:5] == (7, 5)
# Of a slot's flags, or its bits of `DeathCause`: what its idx entry says of its end.
ENDS_OF: Final = bytes(
    (DELETED if flags & DeathCause.DELETED else 0) | (EXPIRED if flags & DeathCause.EXPIRED else 0)
    for flags in range(256)
)


@attrs.frozen(kw_only=True)
class LoadedSegment:
    """Slots of a segment. `rebuilt`: its idx was made anew from the data; `undated`: and nothing says when records that
    are not in it were written. `holes`: a slot has no bytes (length 0), as it should be if it is dead. `labelled`: its
    columns were not made anew. `unlabelled`: records of which neither they nor the data say what is to be known of
    them.
    """

    slots: Slots
    rebuilt: bool
    undated: bool
    holes: bool
    labelled: bool
    unlabelled: Unlabelled


def load_slots(
    disk: Disk, topic_id: int, segment: Segment, base_seq: int, *, of_queue: bool
) -> LoadedSegment:
    """The slots of a segment from `base_seq` on, all live. A read of one of length 0 fails, with its seq."""
    first = max(segment.first, base_seq)
    assert first <= segment.last
    found = _load_entries(disk, topic_id, segment, away=True)  # a later mark may say where the data is
    blocks = load_blocks(disk, topic_id, segment, found.idx, of_queue=of_queue)
    slots = _slots_of(segment, found.idx, blocks.blocks, first, of_queue=of_queue)
    # The search for four zero bytes costs a tenth of the one for a zero, and mostly finds none.
    holes = _NO_LENGTH in slots.lengths and 0 in array("I", slots.lengths)
    known = found.known
    if holes:
        _complete(slots, implied_sizes(known.lengths)[first - segment.first :] if known is not None else None)
    return LoadedSegment(
        slots=slots,
        rebuilt=found.rebuilt,
        undated=holes and known is None,
        holes=holes,
        labelled=blocks.anew is None,
        unlabelled=blocks.unlabelled,
    )


def slots_of(
    disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, *, of_queue: bool
) -> tuple[Slots, Unlabelled]:
    """The slots that these entries and the columns say, and of which records they do not say all."""
    blocks = load_blocks(disk, topic_id, segment, idx, of_queue=of_queue)
    return _slots_of(segment, idx, blocks.blocks, segment.first, of_queue=of_queue), blocks.unlabelled


def load_idx(disk: Disk, topic_id: int, segment: Segment) -> tuple[IdxColumns, bool]:
    """The entries that count, and whether they had to be made anew from the data."""
    found = _load_entries(disk, topic_id, segment)
    return found.idx, found.rebuilt


def data_end(idx: IdxColumns) -> int:
    """How many bytes of data the entries imply."""
    for at in range(len(idx) - 1, -1, -1):
        if idx.lengths[at]:
            return idx.offsets[at] + idx.lengths[at] + END_SIZE
    return 0


def data_size(disk: Disk, topic_id: int, segment: Segment) -> int:
    """Bytes of data that are there."""
    return size_here(disk, topic_id, segment) or 0


def size_here(disk: Disk, topic_id: int, segment: Segment) -> int | None:
    """Bytes of data that are here, None if there is no file."""
    return disk.size(segment_path(topic_id, segment.first, "data"))


def whole_idx(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """The idx file of exactly the entries that count; made anew from the data if it is damaged."""
    idx, _ = load_idx(disk, topic_id, segment)
    return encode_idx(idx, seal_of(disk, topic_id, segment.first).seed)


def encode_idx(idx: IdxColumns, seed: int) -> bytes:
    entries = encode_entries(idx.offsets, idx.lengths, idx.ts, idx.flags)
    return entries + encode_trailer(entries, seed)


def mend_idx(disk: Disk, topic_id: int, segment: Segment) -> bool:
    """Write the idx anew from the data unless it is whole and counts what the marks count. True if it was written."""
    seal = seal_of(disk, topic_id, segment.first)
    idx = _read_idx(disk, topic_id, segment, seal)
    size = data_size(disk, topic_id, segment)
    if idx is not None and len(idx) == segment.count and _fits(disk, topic_id, segment, idx, size):
        return False
    path = segment_path(topic_id, segment.first, "idx")
    write_temporary(disk, path, encode_idx(_rebuilt_idx(disk, topic_id, segment, idx), seal.seed))
    disk.rename(path + TEMPORARY, path)
    disk.sync_dir(topic_dir(topic_id))
    return True


def mend_columns(disk: Disk, topic_id: int, segment: Segment, *, of_queue: bool) -> None:
    """Write the columns anew from the data unless they are whole and the segment's own, and say what they should."""
    path = segment_path(topic_id, segment.first, "col")
    idx, _ = load_idx(disk, topic_id, segment)
    blocks = load_blocks(disk, topic_id, segment, idx, of_queue=of_queue)
    if blocks.anew is None or blocks.unlabelled or blocks.guessed:
        return
    if blocks.anew:
        write_temporary(disk, path, blocks.anew)
        disk.rename(path + TEMPORARY, path)
    else:
        disk.unlink(path)
    disk.sync_dir(topic_dir(topic_id))


# Below.


@attrs.frozen(kw_only=True)
class _Entries:
    """`idx`: the entries that count. `known`: what the file says of them, None if there is none that is whole."""

    idx: IdxColumns
    rebuilt: bool
    known: IdxColumns | None


def _load_entries(disk: Disk, topic_id: int, segment: Segment, *, away: bool = False) -> _Entries:
    """`away`: the data may be in another tier."""
    idx = _read_idx(disk, topic_id, segment, seal_of(disk, topic_id, segment.first))
    here = size_here(disk, topic_id, segment)  # behind the idx: whoever writes meanwhile has the data first
    known = _counted(idx, segment)  # a later mark may count more
    if idx is None or not _fits(disk, topic_id, segment, idx, here if away else here or 0):
        return _Entries(idx=_rebuilt_idx(disk, topic_id, segment, idx), rebuilt=True, known=known)
    assert known is not None
    return _Entries(idx=known, rebuilt=False, known=known)


def _fits(disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, size: int | None) -> bool:
    """Whether an intact idx speaks of the data that is there, as appends or a rewrite have left it.

    An append that was broken off leaves more data than marks count; data that is in the cold tier has no size here.
    """
    if len(idx) < segment.count:
        return False
    if segment.cold or size is None:
        return True
    end = data_end(idx)
    if end != size and not (len(idx) == segment.count and end == segment.size <= size):
        return False
    return not _is_anothers(disk, topic_id, segment, idx)


def _is_anothers(disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns) -> bool:
    """Whether the data is of another segment: the last record is not there, and none of them is. What the disk does
    not give says nothing: whoever reads it is told.
    """
    at = next((at for at in range(segment.count - 1, -1, -1) if idx.lengths[at]), None)
    if at is None:
        return False
    path, named = segment_path(topic_id, segment.first, "data"), _NAMED.pack(topic_id, segment.first + at)
    try:
        if disk.read(path, idx.offsets[at] + _NAMED_AT, len(named)) == named:
            return False
        data = disk.read(path, 0, segment.size)
    except OSError:
        return False
    return not len(walk(data, 0, len(data), topic_id=topic_id, first_seq=segment.first))


def _read_idx(disk: Disk, topic_id: int, segment: Segment, seal: Seal) -> IdxColumns | None:
    """The idx file if it is whole, and this segment's."""
    data = read_part(disk, topic_id, segment, "idx")
    try:
        if data is None:
            disk.read(segment_path(topic_id, segment.first, "idx"), 0, 0)  # refused, if it is something else
        return seal.idx(data or b"")
    except (Corrupt, FileNotFoundError):
        return None


def _rebuilt_idx(disk: Disk, topic_id: int, segment: Segment, before: IdxColumns | None) -> IdxColumns:
    """The idx as the data says it must be. Of what is not there the one before knows the times, and the flags of what
    is lost; of what a rewrite has dropped nobody else knows when it was written.
    """
    data = read_data(disk, topic_id, segment)
    found = walk(data, 0, len(data), topic_id=topic_id, first_seq=segment.first, seq_stop=segment.last + 1)
    idx = found.index_columns(segment.first, segment.last + 1)
    known = _counted(before, segment)
    if known is not None and len(found) < segment.count:
        for at in [at for at, length in enumerate(idx.lengths) if not length]:
            idx.ts[at] = known.ts[at]
            idx.flags[at] = known.flags[at]
    return idx


def _counted(idx: IdxColumns | None, segment: Segment) -> IdxColumns | None:
    """The entries that the marks count, None if they are not all there."""
    count = segment.count
    if idx is None or len(idx) < count:
        return None
    return IdxColumns(idx.offsets[:count], idx.lengths[:count], idx.ts[:count], idx.flags[:count])


def _slots_of(
    segment: Segment, idx: IdxColumns, blocks: list[ColumnsBlock], first: int, *, of_queue: bool
) -> Slots:
    skip = first - segment.first
    slots = Slots(
        first_seq=first,
        ts=idx.ts[skip:].tobytes(),
        offsets=idx.offsets[skip:].tobytes(),
        lengths=idx.lengths[skip:].tobytes(),
        sizes=b"",
        flags=bytes(idx.flags[skip:]).translate(_SLOT_FLAGS),
        of_queue=of_queue,
    )
    _add_columns(slots, segment, idx, blocks, skip)
    return slots


def _add_columns(
    slots: Slots, segment: Segment, idx: IdxColumns, blocks: list[ColumnsBlock], skip: int
) -> None:
    """Put the blocks' columns into the slots, whose first is the segment's `skip`-th."""
    sizes = implied_sizes(idx.lengths)
    expires, jobs = array("Q", bytes(8 * len(idx))), array("Q", bytes(8 * len(idx)))
    for block in blocks:
        start = block.first_seq - segment.first
        span = slice(start, start + block.count)
        if block.sizes is not None:
            sizes[span] = block.sizes
        if block.expires is not None:
            expires[span] = block.expires
        if block.jobs is not None:
            jobs[span] = block.jobs
    slots.sizes = sizes[skip:].tobytes()
    by_tag = [(block.first_seq, block.tags, block.tag_numbers) for block in blocks]
    by_node = [(block.first_seq, block.nodes, block.node_numbers) for block in blocks]
    slots.tags, slots.tag_numbers = _names(segment, by_tag, skip)
    slots.nodes, slots.node_numbers = _names(segment, by_node, skip)
    if slots.of_queue:
        by_key = [(block.first_seq, block.keys, block.key_numbers) for block in blocks]
        slots.keys, slots.key_numbers = _names(segment, by_key, skip)
        if any(jobs[skip:]):
            slots.jobs = jobs[skip:].tobytes()
    if any(expires[skip:]):
        slots.expires = expires[skip:].tobytes()
        slots.flags = bytes(
            flags | TIMED if due else flags for flags, due in zip(slots.flags, expires[skip:], strict=True)
        )


def _complete(slots: Slots, sizes_known: array[int] | None) -> None:
    """Slots without bytes: they have the labels that the columns know, and the size that an idx before has implied."""
    lengths, sizes, flags = array("I", slots.lengths), array("I", slots.sizes), bytearray(slots.flags)
    tags, nodes = array("I", slots.tag_numbers), array("I", slots.node_numbers)
    for at in [at for at, length in enumerate(lengths) if not length]:
        flags[at] &= ~(TAGGED | NODED)
        flags[at] |= (TAGGED if tags and tags[at] else 0) | (NODED if nodes and nodes[at] else 0)
        if sizes_known is not None and not sizes[at]:
            sizes[at] = sizes_known[at]
    slots.sizes, slots.flags = sizes.tobytes(), bytes(flags)


def _names(
    segment: Segment, columns: list[tuple[int, list[bytes], array[int] | None]], skip: int
) -> tuple[list[bytes], bytes]:
    """One column of all blocks, each from a seq on: the names, and the number of each slot's."""
    names = list(dict.fromkeys(name for _, own, _ in columns for name in own))
    if not names:
        return [], b""
    at = {name: number for number, name in enumerate(names, 1)}
    numbers = array("I", bytes(4 * segment.count))
    for first_seq, own, own_numbers in columns:
        if own_numbers is not None:
            table = [0, *(at[name] for name in own)]
            start = first_seq - segment.first
            numbers[start : start + len(own_numbers)] = array("I", [table[number] for number in own_numbers])
    return names, numbers[skip:].tobytes()
