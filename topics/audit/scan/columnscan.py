"""What the `.col` and `.del` of a segment say, against its records: part of the segment's row (`segmentscan`).

A block that is not of a queue is not asked for jobs and keys. Where an earlier build wrote it for one, the next start
takes them from the data.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import and_, ne
from typing import Final, Protocol

from topics.audit.scan.flaws import Flaws
from topics.audit.scan.rows import SegmentTask, Severity
from topics.codec.log.layout import EXT, FRAME_HEAD, META, Ext, checked_region
from topics.codec.log.run import pack_job
from topics.codec.segments.segcolumns import NEEDS_BLOCK, ColumnsBlock, implied_sizes
from topics.codec.segments.segment import DataColumns
from topics.kernel.errors import Corrupt

_Labels = tuple[int, bytes, bytes, int, int, bytes]  # size, tag, node, expiry, job, key
_WHAT: Final = "size, tag, node, expiry, job and key"
_IS_PLAIN: Final = bytes(0 if needs else 1 for needs in NEEDS_BLOCK)


class Labelled(Protocol):
    """Who knows of all records at once which of them are to be looked at (`labels.Labels`)."""

    def contradicted(self, blocks: Sequence[ColumnsBlock], ended: bytes) -> list[int]: ...


def check_columns(
    task: SegmentTask, found: DataColumns, data: bytes, buffer: bytes | None, ended: bytes, flaws: Flaws,
    labels: Labelled | None = None,
) -> None:  # fmt: skip
    """What the blocks say of each record that is more than data, against its frame."""
    said = _Said(check_blocks(task, buffer or b"", flaws))
    sizes = implied_sizes(found.lengths)
    suspects: Iterable[int]
    if labels is None:
        suspects = compress(range(len(found)), bytes(found.flags).translate(NEEDS_BLOCK))
    else:
        suspects = labels.contradicted(said.blocks, ended)
    wrong: list[tuple[int, str]] = []
    for at in suspects:
        offset, length = found.offsets[at], found.lengths[at]
        wanted = _wanted(data[offset : offset + length])
        says = said.of(found.seqs[at], sizes[at])
        if says is None:
            detail = "no block speaks of it, and it has more than data"
            if wanted != _plain_of(sizes[at]):
                flaws.add("segment.col", found.seqs[at], None, detail)
            continue
        if not said.of_queue:
            wanted = (*wanted[:4], 0, b"")
        if says != wanted and not (ended[at] and says == _nameless(wanted)):
            wrong.append((found.seqs[at], f"{_WHAT} are {says}, its frame says {wanted}"))
    for seq, detail in wrong:
        flaws.add("segment.col", seq, None, detail)
    _check_plain(found, said, sizes, flaws)


def _plain_of(size: int) -> _Labels:
    """Of a record that is only data."""
    return size, b"", b"", 0, 0, b""


def _nameless(wanted: _Labels) -> _Labels:
    size, _, _, expiry, job, _ = wanted
    return size, b"", b"", expiry, job, b""


def _wanted(frame: bytes) -> _Labels:
    """Of a frame that was verified."""
    _, _, flags, _, _, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(frame)
    tag_at = FRAME_HEAD.size + node_len
    at, expiry, job, key = tag_at + tag_len, b"", 0, b""
    size = data_len
    if flags & (META | EXT):
        meta, exts, data = checked_region(frame[at : at + data_len], flags)
        size, expiry = len(meta) + len(data), exts.get(Ext.EXPIRES_AT, b"")
        due, priority = exts.get(Ext.NOT_BEFORE, b""), exts.get(Ext.PRIORITY)
        job = pack_job(None if priority is None else priority[0], int.from_bytes(due, "little"))
        key = exts.get(Ext.KEY, b"")
    names = frame[tag_at:at], frame[FRAME_HEAD.size : tag_at]
    return size, *names, int.from_bytes(expiry, "little"), job, key


def check_blocks(task: SegmentTask, buffer: bytes, flaws: Flaws) -> list[ColumnsBlock]:
    """The intact blocks of a `.col`. What comes behind them is missed where a record needs it."""
    blocks, end = task.seal.blocks(buffer, task.first, task.last + 1)
    if end < len(buffer) and task.sealed:
        detail = f"{len(buffer) - end} bytes are no block of it; damage, a block of another segment, or an append that "
        detail += "was cut off before the seal"
        flaws.add("segment.col", None, end, detail, Severity.UNDECIDABLE)
    return blocks


def _check_plain(found: DataColumns, said: _Said, sizes: array[int], flaws: Flaws) -> None:
    """A record that is only data has no labels in any block."""
    plain = bytes(found.flags).translate(_IS_PLAIN)
    if not said.blocks or not any(plain):
        return
    for at in _suspects(found, said.blocks, sizes, plain):
        seq = found.seqs[at]
        says = said.of(seq, sizes[at])
        if says is not None and says != _plain_of(sizes[at]):
            flaws.add("segment.col", seq, None, f"{_WHAT} are {says}, and it is only data")


def _suspects(
    found: DataColumns, blocks: list[ColumnsBlock], sizes: array[int], plain: bytes
) -> Iterable[int]:  # fmt: skip
    """The plain records of which a block may say more than that: all of a block that has a gap."""
    marked = bytearray(len(found))
    for block in blocks:
        start, stop = (bisect_left(found.seqs, seq) for seq in (block.first_seq, block.seq_stop))
        if stop - start != block.count:
            marked[start:stop] = b"\x01" * (stop - start)
            continue
        if block.sizes is not None:
            for at in compress(range(block.count), map(ne, block.sizes, sizes[start:stop])):
                marked[start + at] = 1
        for column in (block.tag_numbers, block.node_numbers, block.expires, block.jobs, block.key_numbers):
            if column is not None:
                for at in compress(range(block.count), column):
                    marked[start + at] = 1
    return compress(range(len(found)), map(and_, marked, plain))


class _Said:
    """What the blocks of a `.col` say, asked in the order of seqs. `of_queue`: the last answer was of a queue's."""

    __slots__ = ("at", "blocks", "of_queue")

    def __init__(self, blocks: list[ColumnsBlock]) -> None:
        self.blocks = blocks
        self.at = 0
        self.of_queue = False

    def of(self, seq: int, implied: int) -> _Labels | None:
        """What is said of a record; None if no block speaks of it."""
        if self.at and self.blocks[self.at - 1].seq_stop > seq:
            self.at = 0
        while self.at < len(self.blocks) and self.blocks[self.at].seq_stop <= seq:
            self.at += 1
        if self.at == len(self.blocks) or self.blocks[self.at].first_seq > seq:
            return None
        block = self.blocks[self.at]
        self.of_queue = block.of_queue
        i = seq - block.first_seq
        return (
            block.sizes[i] if block.sizes is not None else implied,
            _name(block.tags, block.tag_numbers, i),
            _name(block.nodes, block.node_numbers, i),
            block.expires[i] if block.expires is not None else 0,
            block.jobs[i] if block.jobs is not None and block.of_queue else 0,
            _name(block.keys, block.key_numbers, i),
        )


def _name(names: Sequence[bytes], numbers: Sequence[int] | None, i: int) -> bytes:
    return b"" if numbers is None or not numbers[i] else names[numbers[i] - 1]


def check_del(task: SegmentTask, buffer: bytes | None, flaws: Flaws) -> bytes:
    """What a `.del` says of each entry; nothing if there is none."""
    if buffer is None:
        return b""
    try:
        ended = task.seal.ends(buffer)
    except Corrupt as damage:
        flaws.add("segment.del", None, None, damage.message)
        return b""
    return ended.ends
