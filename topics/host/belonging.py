"""Whether the entries and the columns of a segment are those of its data (storage 5, decision 0029).

Each file has its own checksum, and only `.data` says, in every frame, whose it is. An `.idx` or `.col` of another
segment is intact, and if records are of equal size it fits the data by its size, too. So what they say of the last few
records is held against their frames: topic, seq, length, time, flags and labels, a few KiB a segment. If all of it
agrees, they belong together.

If anything does not, it is damage or a file of another segment, and all of the data says which: frames that are
intact, where the entries have them, and of another record, or of this one with another time. Bytes that are damaged
speak neither for nor against, nor do those that the disk does not give: whoever reads that record is told.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import gt, ne
from struct import Struct
from typing import Final

import attrs

from topics.codec.layout import (
    APPEND,
    CHECKSUM_SIZE,
    EXT,
    FLAGS_ALL,
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    META,
    NODE,
    TAG,
    Defect,
    Ext,
    check_frame,
    parse_region,
)
from topics.codec.segcolumns import NEEDS_BLOCK, ColumnsBlock
from topics.codec.segidx import ENDS, IdxColumns
from topics.host.layout import segment_path
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.segments import Segment

ENTRIES_HELD: Final = 8  # of the last records, against their frames
LABELS_HELD: Final = 16  # more: tags repeat, times do not
WINDOW: Final = 4096  # bytes; so far in front of the last of them the first one may begin
_IDENTITY: Final = Struct("<IBBQQQ")  # how a frame begins: frame_len, type, flags, topic id, seq, ts
_LENGTHS: Final = Struct("<HHI")  # and goes on: node_len, tag_len, data_len, node, tag
assert _IDENTITY.size + _LENGTHS.size == FRAME_HEAD.size
_NOT_ZERO: Final = bytes(1 if value else 0 for value in range(256))
_HAS_TAG: Final = bytes(1 if flags & TAG else 0 for flags in range(256))
_HAS_NODE: Final = bytes(1 if flags & NODE else 0 for flags in range(256))
_HAS_EXT: Final = bytes(1 if flags & EXT else 0 for flags in range(256))


def idx_belongs(
    disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, *, doubted: bool = False
) -> bool:
    """Whether the entries that count are of the data that is there. `doubted`: the last few are not enough."""
    places = _last_places(idx, b"\x01" * segment.count, ENTRIES_HELD)
    if not places:
        return True
    path = segment_path(topic_id, segment.first, "data")
    try:
        if not doubted:
            frames = _Frames.read(disk, path, idx, places)
            if all(frames.begin(at, topic_id, segment.first + at) for at in places):
                return True
        data = disk.read(path, 0, segment.size)
    except OSError:
        return True
    held = hold(data, topic_id, segment, idx)
    return not held.wrong and held.others <= held.own


@attrs.frozen(kw_only=True)
class Held:
    """Of the intact frames that lie where entries have them: `own`, as their entries say; `wrong`, of the right seq and
    not as its entry says; `others`, of another topic or seq; `theirs`, those of them that are as the entries say.
    """

    own: int
    wrong: int
    others: int
    theirs: int


def hold(data: bytes, topic_id: int, segment: Segment, idx: IdxColumns) -> Held:
    """All of a segment's data against its entries."""
    own = wrong = others = theirs = 0
    for at in range(segment.count):
        offset, length = idx.offsets[at], idx.lengths[at]
        if not length or offset >= len(data):
            continue
        total = check_frame(data, offset, len(data))
        if isinstance(total, Defect):
            continue
        _, kind, flags, topic, seq, ts, _, _, _ = FRAME_HEAD.unpack_from(data, offset)
        same = (total, kind, flags, ts) == (length, APPEND, idx.flags[at] & FLAGS_ALL, idx.ts[at])
        if (topic, seq) == (topic_id, segment.first + at):
            own += same
            wrong += not same
        else:
            others += 1
            theirs += same
    return Held(own=own, wrong=wrong, others=others, theirs=theirs)


def knows_more(data: bytes, topic_id: int, segment: Segment, found: IdxColumns, before: IdxColumns) -> bool:
    """Whether entries of which data was `found` otherwise may be believed of what the data lacks.

    A rewrite or a loss changes which records have bytes, and where; never when a record was written, or what it is.
    """
    for at in compress(range(segment.count), found.lengths):
        if before.ts[at] != found.ts[at]:
            return False
        if before.lengths[at] and (
            before.lengths[at] != found.lengths[at] or (before.flags[at] ^ found.flags[at]) & FLAGS_ALL
        ):
            return False
    return any(found.lengths) or not hold(data, topic_id, segment, before).theirs


def columns_belong(
    disk: Disk,
    topic_id: int,
    segment: Segment,
    idx: IdxColumns,
    blocks: Sequence[ColumnsBlock],
    *,
    away: bool = False,
) -> bool:
    """Whether the blocks may be those of these entries, and say of a few records what their frames say.

    `away`: the data is in the cold tier, of which a start asks nothing.
    """
    if not all(_numbers_fit(block, block.first_seq - segment.first, idx) for block in blocks):
        return False
    places = _last_places(idx, idx.flags.translate(NEEDS_BLOCK), LABELS_HELD)
    if away or not places:
        return True
    path = segment_path(topic_id, segment.first, "data")
    try:
        frames = _Frames.read(disk, path, idx, places)
        if not all(frames.say(at, _said(blocks, segment.first + at, idx.lengths[at])) for at in places):
            return False
        for at in filter(idx.lengths.__getitem__, _bearers_of_the_newest(blocks, segment.first, places)):
            frame = _Frames.read(disk, path, idx, [at])
            if not frame.say(at, _said(blocks, segment.first + at, idx.lengths[at])):
                return False
    except OSError:
        return True
    return True


def unfit(idx: IdxColumns, at: int, *, named: bool, flagged: bool) -> bool:
    """Whether a name is there without the flag that says so, or the reverse.

    Of a record that has ended before it was copied the name is not kept. One without bytes has no flags to go by.
    """
    return bool(idx.lengths[at]) and named != flagged and (named or not idx.flags[at] & ENDS)


# The frames of a few records.

Said = tuple[int, bytes, bytes, int]  # size, tag, node, expiry


class _Frames:
    """Bytes of a segment's data, and the entries of those that are looked at."""

    __slots__ = ("_data", "_idx", "_start")

    def __init__(self, data: bytes, start: int, idx: IdxColumns) -> None:
        self._data = data
        self._start = start
        self._idx = idx

    @classmethod
    def read(cls, disk: Disk, path: str, idx: IdxColumns, places: Sequence[int]) -> _Frames:
        """One read for all places, the last of them first. Of a long record only the beginning. Raises OSError."""
        start = min(map(idx.offsets.__getitem__, places))
        stop = idx.offsets[places[0]] + min(idx.lengths[places[0]], WINDOW)
        return cls(disk.read(path, start, stop - start), start, idx)

    def begin(self, at: int, topic_id: int, seq: int) -> bool:
        """Whether the frame begins where the entry says, as it says, and is of this record."""
        idx, length = self._idx, self._idx.lengths[at]
        flags, ts = idx.flags[at] & FLAGS_ALL, idx.ts[at]
        return length >= FRAME_OVERHEAD and self._data.startswith(
            _IDENTITY.pack(length - FRAME_LEN_SIZE, APPEND, flags, topic_id, seq, ts),
            idx.offsets[at] - self._start,
        )

    def say(self, at: int, said: Said) -> bool:
        """Whether the frame has this size, tag, node and expiry. Size and expiry of a long one are left alone."""
        offset = self._idx.offsets[at] - self._start
        if not self._idx.flags[at] & (META | EXT):
            size, tag, node, expiry = said
            names = _LENGTHS.pack(len(node), len(tag), size) + node + tag
            if not expiry and self._data.startswith(names, offset + _IDENTITY.size):
                return True
        told = _labels_of(self._data[offset : offset + self._idx.lengths[at]], self._idx.lengths[at])
        if told is None or told == said:
            return told is not None
        size, tag, node, expiry = told
        if self._idx.flags[at] & ENDS and not (said[1] or said[2]):
            tag = node = b""
        return (size, tag, node, expiry) == said or (size < 0 and (tag, node) == said[1:3])


def _labels_of(frame: bytes, length: int) -> Said | None:
    """Size, tag, node and expiry of a frame whose checksum nobody has looked at; None if it is none of this length.

    Size -1: not all of it is here.
    """
    if len(frame) < FRAME_HEAD.size or length < FRAME_OVERHEAD:
        return None
    frame_len, _, flags, _, _, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(frame)
    if frame_len + FRAME_LEN_SIZE != length or length != FRAME_OVERHEAD + node_len + tag_len + data_len:
        return None
    tag_at = FRAME_HEAD.size + node_len
    at = tag_at + tag_len
    tag, node = frame[tag_at:at], frame[FRAME_HEAD.size : tag_at]
    if len(frame) < length:
        return None if len(frame) < at else (-1, tag, node, 0)
    if not flags & (META | EXT):
        return data_len, tag, node, 0
    parsed = parse_region(frame[at : length - CHECKSUM_SIZE], flags)
    if parsed is None:
        return None
    meta, exts, data = parsed
    return len(meta) + len(data), tag, node, int.from_bytes(exts.get(Ext.EXPIRES_AT, b""), "little")


def _last_places(idx: IdxColumns, wanted: bytes | bytearray, most: int) -> list[int]:
    """The last few of the wanted entries that have bytes, near each other; the last one first."""
    found: list[int] = []
    nearest = 0
    at = wanted.rfind(1)
    while at >= 0 and len(found) < most:
        if idx.lengths[at]:
            offset = idx.offsets[at]
            if not found:
                nearest = offset
            elif not nearest - WINDOW <= offset <= nearest:
                break
            found.append(at)
        at = wanted.rfind(1, 0, at)
    return found


# What blocks say.


def _said(blocks: Sequence[ColumnsBlock], seq: int, length: int) -> Said:
    for block in reversed(blocks):
        at = seq - block.first_seq
        if 0 <= at < block.count:
            break
    else:
        return length - FRAME_OVERHEAD, b"", b"", 0
    tag = block.tag_numbers[at] if block.tag_numbers is not None else 0
    node = block.node_numbers[at] if block.node_numbers is not None else 0
    return (
        block.sizes[at] if block.sizes is not None else length - FRAME_OVERHEAD,
        block.tags[tag - 1] if tag else b"",
        block.nodes[node - 1] if node else b"",
        block.expires[at] if block.expires is not None else 0,
    )


def _numbers_fit(block: ColumnsBlock, start: int, idx: IdxColumns) -> bool:
    """Whether those of its records have a tag, a node, an expiry of which their entries say that they may.

    Bytes against bytes: mostly all of them are as they should be.
    """
    flags = bytes(idx.flags[start : start + block.count])
    for numbers, names, table in (
        (block.tag_numbers, block.tags, _HAS_TAG),
        (block.node_numbers, block.nodes, _HAS_NODE),
    ):
        flagged = flags.translate(table)
        named = bytes(block.count) if numbers is None else _not_zero(numbers, len(names))
        if named != flagged:
            for at in compress(range(block.count), map(ne, named, flagged)):
                if unfit(idx, start + at, named=bool(named[at]), flagged=bool(flagged[at])):
                    return False
    if block.expires is None:
        return True
    timed = compress(
        range(block.count), map(gt, _not_zero(block.expires, U64_MAX), flags.translate(_HAS_EXT))
    )
    return not any(idx.lengths[start + at] for at in timed)


def _not_zero(numbers: array[int], most: int) -> bytes:
    """1 for each number, of at most `most`, that is not 0: the first bytes of all are one integer, and so on."""
    data, any_bits = numbers.tobytes(), 0
    for byte in range((most.bit_length() + 7) // 8):
        any_bits |= int.from_bytes(data[byte :: numbers.itemsize], "little")
    return any_bits.to_bytes(len(numbers), "little").translate(_NOT_ZERO)


def _bearers_of_the_newest(
    blocks: Sequence[ColumnsBlock], first: int, places: Sequence[int]
) -> Iterator[int]:
    """Who bears the tag, and who the node, that came last: few others do, as a rule. Not if one of `places` does."""
    tagged = max(blocks, key=lambda block: len(block.tags))
    noded = max(blocks, key=lambda block: len(block.nodes))
    for block, names, numbers in (
        (tagged, tagged.tags, tagged.tag_numbers),
        (noded, noded.nodes, noded.node_numbers),
    ):
        start = block.first_seq - first
        inside = [at - start for at in places if start <= at < start + block.count]
        if numbers is not None and not any(numbers[at] == len(names) for at in inside):
            yield start + numbers.index(len(names))
