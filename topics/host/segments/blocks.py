"""The columns of a segment, from its `.col` file: taken if they are whole and its own, else made anew from its data
(storage 4 and 5). Every call blocks.

Of a queue they must say priority, not-before and key of its jobs, too. Those that earlier builds wrote do not, so they
lack something wherever a record has an extension, and are made anew as where a block is damaged.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from topics.codec.log.frame import decode_frame
from topics.codec.log.layout import EXT, FRAME_LEN_SIZE, NODE, TAG
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
_HAS_EXTS: Final = bytes(1 if flags & EXT else 0 for flags in range(256))


@attrs.frozen(kw_only=True)
class Blocks:
    """`anew`: the whole `.col` as the data says it must be, None if the file's blocks were taken. `unlabelled`: records
    of which nothing says what labels they have. `guessed`: of some only a block knows that is not of a queue, as it
    should be: what jobs they are is not known until their data is.
    """

    blocks: list[ColumnsBlock]
    anew: bytes | None = None
    unlabelled: Unlabelled = attrs.field(factory=list)
    guessed: bool = False


def load_blocks(disk: Disk, topic_id: int, segment: Segment, idx: IdxColumns, *, of_queue: bool) -> Blocks:
    """The blocks of a segment with these entries; made anew from its data if something lacks: only then that is read.

    Of a record that is damaged there the blocks still know what they say. Of one of which nothing says its labels, the
    entry's flags say from now on that it has none.
    """
    seal = seal_of(disk, topic_id, segment.first)
    stop = segment.last + 1
    blocks, _ = seal.blocks(read_part(disk, topic_id, segment, "col") or b"", segment.first, stop)
    lacking = _lacking(segment, idx, blocks, of_queue=of_queue)
    if not any(lacking):
        return Blocks(blocks=blocks)
    labels = _Labels.of_data(topic_id, segment, idx, read_data(disk, topic_id, segment), blocks)
    for seq, _ in labels.unlabelled:
        idx.flags[seq - segment.first] &= ~(TAG | NODE)
    encoded = labels.encode(idx, seal.seed, of_queue=of_queue)
    made, _ = seal.blocks(encoded, segment.first, stop)
    guessed = any(lacking[at] for at in labels.damaged)
    return Blocks(blocks=made, anew=encoded, unlabelled=labels.unlabelled, guessed=guessed)


def columns_of_data(topic_id: int, segment: Segment, idx: IdxColumns, data: bytes, seed: int) -> bytes | None:
    """The `.col` that the data says, as that of a log; None if a record that has more than data is damaged."""
    labels = _Labels.of_data(topic_id, segment, idx, data, ())
    return None if labels.unlabelled else labels.encode(idx, seed, of_queue=False)


def columns_agree(
    topic_id: int, segment: Segment, idx: IdxColumns, data: bytes, blocks: Sequence[ColumnsBlock]
) -> bool:
    """Whether the blocks say of all records that are whole in the data what their frames say, and there are some. What
    they say of jobs is not asked.
    """
    labels = _Labels.of_data(topic_id, segment, idx, data, ())
    held = [agrees for block in blocks for agrees in labels.hold(block, idx)]
    return bool(held) and all(held)


def read_data(disk: Disk, topic_id: int, segment: Segment) -> bytes:
    """What is there of a segment's data, up to the bytes that the marks count."""
    try:
        return disk.read(segment_path(topic_id, segment.first, "data"), 0, segment.size)
    except FileNotFoundError:
        return b""


def _lacking(segment: Segment, idx: IdxColumns, blocks: Sequence[ColumnsBlock], *, of_queue: bool) -> bytes:
    """Of each record 1 if no block says all that is to be known of it, which is more than data."""
    needs = bytearray(idx.flags.translate(NEEDS_BLOCK))
    exts = idx.flags.translate(_HAS_EXTS)
    for block in blocks:
        start, stop = block.first_seq - segment.first, block.seq_stop - segment.first
        needs[start:stop] = bytes(block.count) if block.of_queue or not of_queue else exts[start:stop]
    return bytes(needs)


class _Labels:
    """What is known of each record of a segment beside its entry."""

    __slots__ = ("damaged", "expires", "first_seq", "jobs", "keys", "nodes", "sizes", "tags", "unlabelled")

    def __init__(self, segment: Segment, idx: IdxColumns) -> None:
        self.first_seq = segment.first
        self.sizes = implied_sizes(idx.lengths)
        self.tags = [b""] * len(idx)
        self.nodes = [b""] * len(idx)
        self.expires = array("Q", bytes(len(idx) * 8))
        self.jobs = array("Q", bytes(len(idx) * 8))
        self.keys = [b""] * len(idx)
        self.damaged: list[int] = []
        self.unlabelled: Unlabelled = []

    @classmethod
    def of_data(
        cls, topic_id: int, segment: Segment, idx: IdxColumns, data: bytes, blocks: Sequence[ColumnsBlock]
    ) -> _Labels:
        """As the frames of those that have more than data say, which are verified; of the others, as the blocks say."""
        found = cls(segment, idx)
        for block in blocks:
            found._take_block(block)
        for at, flags in enumerate(idx.flags):
            if not NEEDS_BLOCK[flags] or not idx.lengths[at]:
                continue
            try:
                found._take(at, topic_id, segment.first + at, idx, data)
            except Corrupt as damage:
                found.damaged.append(at)
                if not any(block.first_seq <= segment.first + at < block.seq_stop for block in blocks):
                    found.unlabelled.append((segment.first + at, damage.message))
        return found

    def _take_block(self, block: ColumnsBlock) -> None:
        start = block.first_seq - self.first_seq
        for i, at in enumerate(range(start, start + block.count)):
            if block.sizes is not None:
                self.sizes[at] = block.sizes[i]
            self.tags[at], self.nodes[at], self.expires[at] = _said(block, i)
            self.jobs[at] = 0 if block.jobs is None else block.jobs[i]
            self.keys[at] = _name(block.keys, block.key_numbers, i)

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
        self.expires[at], self.jobs[at], self.keys[at] = view.expires_at or 0, view.job, view.key

    def hold(self, block: ColumnsBlock, idx: IdxColumns) -> Iterator[bool]:
        """Of each record of the block that has bytes, whether it says the same."""
        start = block.first_seq - self.first_seq
        sizes = block.sizes or implied_sizes(idx.lengths[start : start + block.count])
        for i, at in enumerate(range(start, start + block.count)):
            if idx.lengths[at]:
                own = (self.sizes[at], self.tags[at], self.nodes[at], self.expires[at])
                yield (sizes[i], *_said(block, i)) == own

    def encode(self, idx: IdxColumns, seed: int, *, of_queue: bool) -> bytes:
        return encode_block(
            self.first_seq,
            idx.lengths,
            sizes=self.sizes,
            tags=self.tags,
            nodes=self.nodes,
            expires=self.expires,
            jobs=self.jobs if of_queue else None,
            keys=self.keys if of_queue else None,
            of_queue=of_queue,
            seed=seed,
        )


def _said(block: ColumnsBlock, i: int) -> tuple[bytes, bytes, int]:
    """Tag, node and expiry of a block's record, absent ones as in `_Labels`."""
    expires = 0 if block.expires is None else block.expires[i]
    return _name(block.tags, block.tag_numbers, i), _name(block.nodes, block.node_numbers, i), expires


def _name(names: list[bytes], numbers: array[int] | None, i: int) -> bytes:
    return b"" if numbers is None or not numbers[i] else names[numbers[i] - 1]
