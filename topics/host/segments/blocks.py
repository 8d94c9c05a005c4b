"""The columns of a segment, from its `.col` file: taken if they are whole and its own, else made anew from its data
(storage 4 and 5). Every call blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

import attrs

from topics.codec.log.frame import decode_frame
from topics.codec.log.layout import FRAME_LEN_SIZE, NODE, TAG
from topics.codec.primitives import U32
from topics.codec.segments.segcolumns import NEEDS_BLOCK, ColumnsBlock, encode_block, implied_sizes
from topics.codec.segments.segidx import IdxColumns
from topics.host.directory.layout import segment_path
from topics.host.directory.size_limits import read_part
from topics.host.segments.segment_seals import seal_of
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.segments import Segment

Unlabelled = list[tuple[int, str]]  # seq, and why
_IS_ZERO: Final = bytes(1 if value == 0 else 0 for value in range(256))


@attrs.frozen(kw_only=True)
class Blocks:
    """`anew`: the whole `.col` as the data says it must be, None if the file's blocks were taken. `unlabelled`: records
    of which nothing says what labels they have.
    """

    blocks: list[ColumnsBlock]
    anew: bytes | None = None
    unlabelled: Unlabelled = attrs.field(factory=list)


def load_blocks(disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns) -> Blocks:
    """The blocks of a segment with these entries; made anew from its data if one lacks: only then that is read.

    Of a record of which nothing says its labels, the entry's flags say from now on that it has none.
    """
    seal = seal_of(disk, topic_id, segment.first)
    stop = segment.last + 1
    blocks, _ = seal.blocks(read_part(disk, topic_id, segment, "col") or b"", segment.first, stop)
    if not _lacking(segment, idx, blocks):
        return Blocks(blocks=blocks)
    labels = _Labels.of_data(topic_id, segment, idx, read_data(disk, topic_id, segment))
    for seq, _ in labels.unlabelled:
        idx.flags[seq - segment.first] &= ~(TAG | NODE)
    encoded = labels.encode(idx, seal.seed)
    made, _ = seal.blocks(encoded, segment.first, stop)
    return Blocks(blocks=made, anew=encoded, unlabelled=labels.unlabelled)


def columns_of_data(topic_id: int, segment: Segment, idx: IdxColumns, data: bytes, seed: int) -> bytes | None:
    """The `.col` that the data says; None if a record that has more than data is damaged."""
    labels = _Labels.of_data(topic_id, segment, idx, data)
    return None if labels.unlabelled else labels.encode(idx, seed)


def columns_agree(
    topic_id: int, segment: Segment, idx: IdxColumns, data: bytes, blocks: Sequence[ColumnsBlock]
) -> bool:
    """Whether the blocks say of all records that are whole in the data what their frames say, and there are some."""
    labels = _Labels.of_data(topic_id, segment, idx, data)
    held = [agrees for block in blocks for agrees in labels.hold(block, idx)]
    return bool(held) and all(held)


def read_data(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """What is there of a segment's data, up to the bytes that the marks count."""
    try:
        return disk.read(segment_path(topic_id, segment.first, "data"), 0, segment.size)
    except FileNotFoundError:
        return b""


def _lacking(segment: Segment, idx: IdxColumns, blocks: Sequence[ColumnsBlock]) -> bool:
    """Whether no block speaks of a record that is more than data."""
    covered = bytearray(len(idx))
    for block in blocks:
        start = block.first_seq - segment.first
        covered[start : start + block.count] = b"\x01" * block.count
    return any(compress(idx.flags.translate(NEEDS_BLOCK), covered.translate(_IS_ZERO)))


class _Labels:
    """What is known of each record of a segment beside its entry."""

    __slots__ = ("expires", "first_seq", "jobs", "nodes", "sizes", "tags", "unlabelled")

    def __init__(self, segment: Segment, idx: IdxColumns) -> None:
        self.first_seq = segment.first
        self.sizes = implied_sizes(idx.lengths)
        self.tags = [b""] * len(idx)
        self.nodes = [b""] * len(idx)
        self.expires = array("Q", bytes(len(idx) * 8))
        self.jobs = array("Q", bytes(len(idx) * 8))
        self.unlabelled: Unlabelled = []

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
        self.tags[at], self.nodes[at] = view.tag, view.node
        self.expires[at], self.jobs[at] = view.expires_at or 0, view.job

    def hold(self, block: ColumnsBlock, idx: IdxColumns) -> Iterator[bool]:
        """Of each record of the block that has bytes, whether it says the same. Of jobs older versions said nothing."""
        start = block.first_seq - self.first_seq
        sizes = block.sizes or implied_sizes(idx.lengths[start : start + block.count])
        for i, at in enumerate(range(start, start + block.count)):
            if idx.lengths[at]:
                own = (self.sizes[at], self.tags[at], self.nodes[at], self.expires[at])
                job = 0 if block.jobs is None else self.jobs[at]
                yield (sizes[i], *_said(block, i)) == (*own, job)

    def encode(self, idx: IdxColumns, seed: int) -> bytes:
        return encode_block(
            self.first_seq,
            idx.lengths,
            sizes=self.sizes,
            tags=self.tags,
            nodes=self.nodes,
            expires=self.expires,
            jobs=self.jobs,
            seed=seed,
        )


def _said(block: ColumnsBlock, i: int) -> tuple[bytes, bytes, int, int]:
    """Tag, node, expiry and job of a block's record, absent ones as in `_Labels`."""
    tag = 0 if block.tag_numbers is None else block.tag_numbers[i]
    node = 0 if block.node_numbers is None else block.node_numbers[i]
    return (
        block.tags[tag - 1] if tag else b"",
        block.nodes[node - 1] if node else b"",
        0 if block.expires is None else block.expires[i],
        0 if block.jobs is None else block.jobs[i],
    )
