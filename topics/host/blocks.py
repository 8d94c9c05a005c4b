"""The columns of a segment, from its `.col` file: taken if they are whole and its own, else made anew from its data
(storage 4 and 5). Every call blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Final

import attrs

from topics.codec.frame import decode_frame
from topics.codec.layout import EXT, FRAME_LEN_SIZE, NODE, TAG
from topics.codec.primitives import U32
from topics.codec.segcolumns import NEEDS_BLOCK, ColumnsBlock, blocks_within, encode_block, implied_sizes
from topics.codec.segidx import ENDS, IdxColumns
from topics.codec.segment import END_SIZE, is_deleted
from topics.host.belonging import columns_belong, unfit
from topics.host.largest import read_part
from topics.host.layout import segment_path
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.segments import Segment

Unlabelled = list[tuple[int, str]]  # seq, and why
_IS_ZERO: Final = bytes(1 if value == 0 else 0 for value in range(256))


@attrs.frozen(kw_only=True)
class Blocks:
    """`doubted`: a block lacks, or they do not agree with all that they were held against. `anew`: the whole `.col` as
    the data says it must be, None if the file's blocks were taken. `unlabelled`: records of which nothing says what
    labels they have.
    """

    blocks: list[ColumnsBlock]
    doubted: bool = False
    anew: bytes | None = None
    unlabelled: Unlabelled = attrs.field(factory=list)


def load_blocks(disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, *, away: bool) -> Blocks:
    """The blocks of a segment with these entries; made anew from its data if one lacks, or they are not its own.

    `away`: the data is in another tier, and is read only if blocks have to be made anew. Of a record of which nothing
    says its labels, the entry's flags say from now on that it has none.
    """
    blocks = _blocks_of(segment, _read_columns(disk, topic_id, segment))
    lacking = _lacking(segment, idx, blocks)
    if not lacking and columns_belong(disk, topic_id, segment, idx, blocks, away=away):
        return Blocks(blocks=blocks)
    data = read_data(disk, topic_id, segment)
    said = _Labels.of_blocks(segment, idx, blocks)
    labels = _Labels.of_data(topic_id, segment, idx, data)
    if not lacking and not labels.contradict(said, idx, data):  # damage, which says nothing of the columns
        return Blocks(blocks=blocks, doubted=True)
    for seq, _ in labels.unlabelled:
        idx.flags[seq - segment.first] &= ~(TAG | NODE)
    encoded = labels.encode(idx)
    return Blocks(
        blocks=_blocks_of(segment, encoded), doubted=True, anew=encoded, unlabelled=labels.unlabelled
    )


def read_data(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """What is there of a segment's data, up to the bytes that the marks count."""
    try:
        return disk.read(segment_path(topic_id, segment.first, "data"), 0, segment.size)
    except FileNotFoundError:
        return b""


def _read_columns(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """The `.col` file, empty if there is none: most segments need none."""
    return read_part(disk, topic_id, segment, "col") or b""


def _blocks_of(segment: Segment, buffer: bytes) -> list[ColumnsBlock]:
    """Those that speak of its records only: a file that was put in the place of another is intact, too."""
    return blocks_within(buffer, segment.first, segment.last + 1)[0]


def _lacking(segment: Segment, idx: IdxColumns, blocks: Sequence[ColumnsBlock]) -> bool:
    """Whether no block speaks of a record that is more than data."""
    covered = bytearray(len(idx))
    for block in blocks:
        start = block.first_seq - segment.first
        covered[start : start + block.count] = b"\x01" * block.count
    return any(compress(idx.flags.translate(NEEDS_BLOCK), covered.translate(_IS_ZERO)))


class _Labels:
    """What is known of each record of a segment beside its entry."""

    __slots__ = ("expires", "first_seq", "nodes", "sizes", "tags", "unlabelled")

    def __init__(self, segment: Segment, idx: IdxColumns) -> None:
        self.first_seq = segment.first
        self.sizes = implied_sizes(idx.lengths)
        self.tags = [b""] * len(idx)
        self.nodes = [b""] * len(idx)
        self.expires = array("Q", bytes(len(idx) * 8))
        self.unlabelled: Unlabelled = []

    @classmethod
    def of_blocks(cls, segment: Segment, idx: IdxColumns, blocks: Sequence[ColumnsBlock]) -> _Labels:
        said = cls(segment, idx)
        for block in blocks:
            start = block.first_seq - segment.first
            span = slice(start, start + block.count)
            if block.sizes is not None:
                said.sizes[span] = block.sizes
            if block.tag_numbers is not None:
                said.tags[span] = _named(block.tags, block.tag_numbers)
            if block.node_numbers is not None:
                said.nodes[span] = _named(block.nodes, block.node_numbers)
            if block.expires is not None:
                said.expires[span] = block.expires
        return said

    @classmethod
    def of_data(cls, topic_id: int, segment: Segment, idx: IdxColumns, data: bytes) -> _Labels:
        """As the frames of those that have more than data say, which are verified."""
        found = cls(segment, idx)
        for at, flags in enumerate(idx.flags):
            if not NEEDS_BLOCK[flags] or not idx.lengths[at]:
                continue
            try:
                found._take(at, topic_id, segment.first + at, idx, data)
            except Corrupt as damage:
                found.unlabelled.append((segment.first + at, damage.message))
        return found

    def _take(self, at: int, topic_id: int, seq: int, idx: IdxColumns, data: bytes) -> None:
        start, stop = idx.offsets[at], idx.offsets[at] + idx.lengths[at]
        if stop > len(data):
            raise Corrupt("the data ends before its record")
        view = decode_frame(data, start, stop)
        if (view.topic_id, view.seq) != (topic_id, seq) or U32.unpack_from(data, start)[
            0
        ] + FRAME_LEN_SIZE != stop - start:
            raise Corrupt(f"seq {view.seq} of topic id {view.topic_id} lies in its place")
        self.sizes[at] = len(view.data) + len(view.meta)
        self.tags[at], self.nodes[at], self.expires[at] = view.tag, view.node, view.expires_at or 0

    def contradict(self, said: _Labels, idx: IdxColumns, data: bytes) -> bool:
        """Whether blocks say otherwise of a record that is whole, or what no record with its entry can have."""
        unknown = dict(self.unlabelled)
        first = self.first_seq
        return any(
            said.impossible(at, idx) if first + at in unknown else self._differs(at, said, idx, data)
            for at in compress(range(len(idx)), idx.lengths)
        )

    def impossible(self, at: int, idx: IdxColumns) -> bool:
        flags = idx.flags[at]
        return (
            unfit(idx, at, named=bool(self.tags[at]), flagged=bool(flags & TAG))
            or unfit(idx, at, named=bool(self.nodes[at]), flagged=bool(flags & NODE))
            or (self.expires[at] > 0 and not flags & EXT)
        )

    def _differs(self, at: int, said: _Labels, idx: IdxColumns, data: bytes) -> bool:
        if (self.sizes[at], self.expires[at]) != (said.sizes[at], said.expires[at]):
            return True
        if (self.tags[at], self.nodes[at]) == (said.tags[at], said.nodes[at]):
            return False
        # Of a record that has ended before it was copied the names are not kept.
        stop = idx.offsets[at] + idx.lengths[at]
        end = data[stop : stop + END_SIZE]
        ended = idx.flags[at] & ENDS or any(map(is_deleted, end))
        return not ended or bool(said.tags[at] or said.nodes[at])

    def encode(self, idx: IdxColumns) -> bytes:
        return encode_block(
            self.first_seq,
            idx.lengths,
            sizes=self.sizes,
            tags=self.tags,
            nodes=self.nodes,
            expires=self.expires,
        )


def _named(names: Sequence[bytes], numbers: Sequence[int]) -> list[bytes]:
    table = [b"", *names]
    return [table[number] for number in numbers]
