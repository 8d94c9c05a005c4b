"""One segment to one row: every checksum, and whether `.idx` and `.col` say what `.data` holds (spark 4).

Records are verified as a start verifies them (`codec.segment.walk`); `.idx` and `.col` can be made again from them, so
whatever they say otherwise is wrong. Only the bytes that the task counts are looked at: behind them may be what a crash
left of an append, or one that is under way.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import gt, ne, or_
from typing import Final

from topics.audit.rows import FLAWS_MAX, Flaw, SegmentRow, SegmentTask, Severity
from topics.codec.frame import decode_frame
from topics.codec.layout import CHECKSUM_SIZE, EXT, FLAGS_ALL, META, NODE, TAG
from topics.codec.primitives import U64
from topics.codec.segcolumns import ColumnsBlock, blocks_before, implied_sizes
from topics.codec.segidx import DELETED, EXPIRED, IdxColumns, decode_idx
from topics.codec.segment import END_SIZE, DataColumns, is_deleted, is_regular, walk
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U32_MAX
from topics.kernel.ports import Disk

_LABELS: Final = TAG | NODE | META | EXT  # size or labels of such a record do not follow from its idx entry
_REGULAR: Final = bytes(0 if is_regular(end) else 1 for end in range(256))
_SAYS_DELETED: Final = bytes(1 if is_deleted(end) else 0 for end in range(256))
_IDX_DELETED: Final = bytes(1 if flags & DELETED else 0 for flags in range(256))
_IDX_EXPIRED: Final = bytes(1 if flags & EXPIRED else 0 for flags in range(256))
_IDX_ENDED: Final = bytes(1 if flags & (DELETED | EXPIRED) else 0 for flags in range(256))
_FRAME_FLAGS: Final = bytes(flags & FLAGS_ALL for flags in range(256))
_LABELLED: Final = bytes(1 if flags & _LABELS else 0 for flags in range(256))

Ranges = tuple[tuple[int, int], ...]


class Flaws:
    """The flaws of one file: the first FLAWS_MAX, and how many there are."""

    __slots__ = ("count", "listed")

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Flaw] = []

    def add(
        self,
        check: str,
        seq: int | None,
        offset: int | None,
        detail: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        self.count += 1
        if len(self.listed) < FLAWS_MAX:
            self.listed.append(Flaw(check, seq, offset, detail, severity))


def scan_segment(disk: Disk, task: SegmentTask) -> SegmentRow | None:
    """The row of a segment; None if its `.data` is not there (any more)."""
    flaws = Flaws()
    if task.cold:
        return _row_of_cold(disk, task, flaws)
    size = disk.size(task.file)
    if size is None:
        return None
    try:
        idx_buffer, col_buffer = (_read(disk, task.part(part)) for part in ("idx", "col"))
        stop = _stale_size(task, idx_buffer) if task.stale else task.size
        data = disk.read(task.file, 0, min(stop, size))
    except FileNotFoundError:
        return None
    if task.size > U32_MAX:
        flaws.add(
            "segment.record", task.first, 0, f"{task.size} bytes are counted, more than offsets can name"
        )
        data = data[:U32_MAX]
    found = walk(data, 0, len(data), topic_id=task.topic_id, first_seq=task.first, seq_stop=task.last + 1)
    if len(data) < task.size and not task.stale:
        flaws.add(
            "segment.record", None, len(data), f"{task.size - len(data)} of {task.size} bytes are not there"
        )
    damaged = _damaged(task, found, flaws)
    missing = _without(_gaps(found.seqs, task.first, task.last), damaged)
    _check_order(found, flaws)
    _check_ends(found, flaws)
    idx = _check_idx(task, found, idx_buffer, flaws)
    _check_columns(task, found, data, col_buffer, _ended(task, found, idx), flaws)
    print_first, prints = _prints(task, found, data)
    return SegmentRow(
        task=task, records=len(found), size=len(data), ts_first=found.ts[0] if found.ts else 0,
        ts_last=found.ts[-1] if found.ts else 0, damaged=damaged, missing=missing,
        deleted=_deleted(task, found, idx), expired=_flagged(task, idx, _IDX_EXPIRED), print_first=print_first,
        prints=prints, flaws=tuple(flaws.listed), flaw_count=flaws.count,
    )  # fmt: skip


def _row_of_cold(disk: Disk, task: SegmentTask, flaws: Flaws) -> SegmentRow:
    """The idx of a segment whose data is in the other tier, which is not asked."""
    idx = _whole_idx(task, _read(disk, task.part("idx")), flaws)
    return SegmentRow(
        task=task, records=0, size=0, ts_first=0, ts_last=0, damaged=(), missing=(),
        deleted=_flagged(task, idx, _IDX_DELETED), expired=_flagged(task, idx, _IDX_EXPIRED),
        print_first=task.last + 1, prints=b"", flaws=tuple(flaws.listed), flaw_count=flaws.count,
    )  # fmt: skip


def _read(disk: Disk, path: str) -> bytes | None:
    size = disk.size(path)
    return None if size is None else disk.read(path, 0, size)


def _stale_size(task: SegmentTask, buffer: bytes | None) -> int:
    """How much of the data an idx says the records of the task take; what the task says if there is none."""
    try:
        idx = decode_idx(buffer or b"")
    except Corrupt:
        return task.size
    return _end_of(idx, min(len(idx), task.last - task.first + 1))


# Records.


def _damaged(task: SegmentTask, found: DataColumns, flaws: Flaws) -> Ranges:
    """The seqs that lie, or lay, where bytes are damaged; nothing but the neighbours of damaged bytes tells."""
    ranges: list[tuple[int, int]] = []
    for damage in found.damages:
        before = found.seqs[damage.index - 1] if damage.index else task.first - 1
        behind = found.seqs[damage.index] if damage.index < len(found) else task.last + 1
        claimed = damage.seq if damage.seq is not None and before < damage.seq < behind else None
        first, last = before + 1, behind - 1
        if first <= last and (not ranges or ranges[-1] != (first, last)):
            ranges.append((first, last))
        seq = claimed if claimed is not None else first if first == last else None
        where = "" if seq is not None or first > last else f", of seqs {first} to {last}"
        detail = f"{damage.stop - damage.offset} bytes are no record: {damage.defect.value}{where}"
        flaws.add("segment.record", seq, damage.offset, detail)
    return tuple(ranges)


def _gaps(seqs: Sequence[int], first: int, last: int) -> Ranges:
    """The seqs in [first, last] that are not in `seqs`."""
    if len(seqs) == last - first + 1:
        return ()
    gaps, before = [], first - 1
    for seq in seqs:
        if seq > before + 1:
            gaps.append((before + 1, seq - 1))
        before = seq
    if before < last:
        gaps.append((before + 1, last))
    return tuple(gaps)


def _without(gaps: Ranges, damaged: Ranges) -> Ranges:
    """A gap is damage where bytes between its neighbours are damaged: then both are the same range."""
    known = dict.fromkeys(damaged)
    return tuple(gap for gap in gaps if gap not in known)


def _check_order(found: DataColumns, flaws: Flaws) -> None:
    falls = map(gt, found.ts, found.ts[1:])
    for at in compress(range(1, len(found)), falls):
        detail = f"ts {found.ts[at]} is before {found.ts[at - 1]}, that of the record before it"
        flaws.add("segment.ts", found.seqs[at], found.offsets[at], detail)


def _check_ends(found: DataColumns, flaws: Flaws) -> None:
    for at in compress(range(len(found)), found.ends.translate(_REGULAR)):
        end = found.ends[at]
        taken = "deleted" if is_deleted(end) else "live"
        detail = f"the delete byte is 0x{end:02x}, neither 0x00 nor 0xd5; readers take it as {taken}"
        flaws.add("segment.flag", found.seqs[at], found.offsets[at] + found.lengths[at], detail)


def _prints(task: SegmentTask, found: DataColumns, data: bytes) -> tuple[int, bytes]:
    if task.compare_from is None or task.compare_from > task.last:
        return task.last + 1, b""
    first = max(task.compare_from, task.first)
    prints = array("Q", bytes(U64.size * (task.last + 1 - first)))
    for at, seq in enumerate(found.seqs):
        if seq >= first:
            prints[seq - first] = U64.unpack_from(
                data, found.offsets[at] + found.lengths[at] - CHECKSUM_SIZE
            )[0]
    return first, prints.tobytes()


# The idx.


def _whole_idx(task: SegmentTask, buffer: bytes | None, flaws: Flaws) -> IdxColumns | None:
    """The idx, None if it is damaged. Of a segment that grows it may be what a crash left of an append."""
    severity, hint = Severity.ERROR, ""
    if not task.sealed:
        severity, hint = (
            Severity.UNDECIDABLE,
            "; damage, or an append that was cut off: the next start makes it anew",
        )
    if buffer is None:
        flaws.add("segment.idx", None, None, f"{task.part('idx')} is not there{hint}", severity)
        return None
    try:
        idx = decode_idx(buffer)
    except Corrupt as damage:
        flaws.add("segment.idx", None, None, f"{damage.message}{hint}", severity)
        return None
    count = task.last - task.first + 1
    if len(idx) < count:
        flaws.add("segment.idx", None, None, f"it has {len(idx)} entries for {count} records{hint}", severity)
        return None
    return idx


def _check_idx(
    task: SegmentTask, found: DataColumns, buffer: bytes | None, flaws: Flaws
) -> IdxColumns | None:
    """The idx if it is whole. An entry of a record that is damaged is left alone: nobody can say what it should be."""
    idx = _whole_idx(task, buffer, flaws)
    if idx is None:
        return None
    count = task.last - task.first + 1
    wanted = found.index_columns(task.first, task.last + 1)
    there = bytes(1 if length else 0 for length in wanted.lengths)
    unknown = bytearray(count)  # what the data does not tell: no intact record there
    for damage in found.damages:
        start = (found.seqs[damage.index - 1] + 1 if damage.index else task.first) - task.first
        stop = (found.seqs[damage.index] if damage.index < len(found) else task.last + 1) - task.first
        unknown[start:stop] = b"\x01" * (stop - start)
    flags, wanted_flags = (bytes(one.flags[:count]).translate(_FRAME_FLAGS) for one in (idx, wanted))
    differs = bytearray(count)
    for name in ("offsets", "lengths", "ts"):
        own, right = getattr(idx, name)[:count], getattr(wanted, name)
        if own != right:
            _mark(differs, own, right, None if name == "lengths" else there)
    if flags != wanted_flags:
        _mark(differs, flags, wanted_flags, there)
    severity, hint = Severity.ERROR, ""
    if not task.sealed or _end_of(idx, count) != _end_of(wanted, count):
        severity, hint = Severity.UNDECIDABLE, "; an append or a rewrite that was cut off leaves that, too"
    for at in compress(range(count), differs):
        if not unknown[at]:
            detail = _contradiction(idx, wanted, at) + hint
            flaws.add("segment.idx", task.first + at, None, detail, severity)
    return idx


def _end_of(idx: IdxColumns, count: int) -> int:
    """How many bytes of data the first entries imply."""
    for at in range(count - 1, -1, -1):
        if idx.lengths[at]:
            return idx.offsets[at] + idx.lengths[at] + END_SIZE
    return 0


def _mark(differs: bytearray, own: Sequence[int], right: Sequence[int], there: bytes | None) -> None:
    for at in compress(range(len(differs)), map(ne, own, right)):
        if there is None or there[at]:
            differs[at] = 1


def _contradiction(idx: IdxColumns, wanted: IdxColumns, at: int) -> str:
    if idx.lengths[at] and not wanted.lengths[at]:
        return f"its entry says {idx.lengths[at]} bytes at offset {idx.offsets[at]}, where the data has no such record"
    names = [
        f"{name} {getattr(idx, field)[at]} where the data says {getattr(wanted, field)[at]}"
        for name, field in (("offset", "offsets"), ("length", "lengths"), ("ts", "ts"))
        if getattr(idx, field)[at] != getattr(wanted, field)[at]
    ]
    own, right = idx.flags[at] & FLAGS_ALL, wanted.flags[at] & FLAGS_ALL
    if own != right:
        names.append(f"flags {own} where the data says {right}")
    return ", ".join(names)


def _deleted(task: SegmentTask, found: DataColumns, idx: IdxColumns | None) -> Ranges:
    says = compress(found.seqs, found.ends.translate(_SAYS_DELETED))
    flagged = set(says)
    for first, last in _flagged(task, idx, _IDX_DELETED):
        flagged.update(range(first, last + 1))
    return _ranges(sorted(flagged))


def _flagged(task: SegmentTask, idx: IdxColumns | None, table: bytes) -> Ranges:
    if idx is None:
        return ()
    count = task.last - task.first + 1
    return _ranges(compress(range(task.first, task.last + 1), bytes(idx.flags[:count]).translate(table)))


def _ranges(seqs: Iterable[int]) -> Ranges:
    """Ascending seqs as ranges."""
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] + 1 == seq:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return tuple(ranges)


# The col.


def _ended(task: SegmentTask, found: DataColumns, idx: IdxColumns | None) -> bytes:
    """1 for each record that may have ended before it was copied: then its tag and node were not kept."""
    ends = found.ends.translate(_SAYS_DELETED)
    if idx is None:
        return b"\x01" * len(found)
    flags = map(idx.flags.__getitem__, map((-task.first).__add__, found.seqs))
    return bytes(map(or_, ends, bytes(flags).translate(_IDX_ENDED)))


def _check_columns(
    task: SegmentTask, found: DataColumns, data: bytes, buffer: bytes | None, ended: bytes, flaws: Flaws
) -> None:
    """What the blocks say of each record that is more than data, against its frame."""
    buffer = buffer or b""
    blocks, end = blocks_before(buffer, task.last + 1)
    if end < len(buffer) and task.sealed:
        flaws.add(
            "segment.col", None, end, f"{len(buffer) - end} bytes of {task.part('col')} are no block of it"
        )
    said = _Said(blocks)
    sizes = implied_sizes(found.lengths)
    for at in compress(range(len(found)), bytes(found.flags).translate(_LABELLED)):
        offset, length = found.offsets[at], found.lengths[at]
        view = decode_frame(data, offset, offset + length)
        wanted = (len(view.data) + len(view.meta), view.tag, view.node, view.expires_at or 0)
        says = said.of(found.seqs[at], sizes[at])
        if says is None:
            detail = "no block speaks of it, and it has more than data"
            if wanted != (sizes[at], b"", b"", 0):
                flaws.add("segment.col", found.seqs[at], None, detail)
        elif says != wanted and not (ended[at] and says == (wanted[0], b"", b"", wanted[3])):
            detail = f"size, tag, node and expiry are {says}, its frame says {wanted}"
            flaws.add("segment.col", found.seqs[at], None, detail)
    _check_plain(found, said, sizes, flaws)


def _check_plain(found: DataColumns, said: _Said, sizes: array[int], flaws: Flaws) -> None:
    """A record that is only data has no labels in any block."""
    labelled = bytes(found.flags).translate(_LABELLED)
    if not said.blocks:
        return
    for at, seq in enumerate(found.seqs):
        if labelled[at]:
            continue
        says = said.of(seq, sizes[at])
        if says is not None and says != (sizes[at], b"", b"", 0):
            flaws.add("segment.col", seq, None, f"size, tag, node and expiry are {says}, and it is only data")


class _Said:
    """What the blocks of a `.col` say, asked in the order of seqs."""

    __slots__ = ("at", "blocks")

    def __init__(self, blocks: list[ColumnsBlock]) -> None:
        self.blocks = blocks
        self.at = 0

    def of(self, seq: int, implied: int) -> tuple[int, bytes, bytes, int] | None:
        """(size, tag, node, expiry) of a record; None if no block speaks of it."""
        if self.at and self.blocks[self.at - 1].seq_stop > seq:
            self.at = 0
        while self.at < len(self.blocks) and self.blocks[self.at].seq_stop <= seq:
            self.at += 1
        if self.at == len(self.blocks) or self.blocks[self.at].first_seq > seq:
            return None
        block = self.blocks[self.at]
        i = seq - block.first_seq
        tag = block.tag_numbers[i] if block.tag_numbers is not None else 0
        node = block.node_numbers[i] if block.node_numbers is not None else 0
        return (
            block.sizes[i] if block.sizes is not None else implied,
            block.tags[tag - 1] if tag else b"",
            block.nodes[node - 1] if node else b"",
            block.expires[i] if block.expires is not None else 0,
        )


def spread(ranges: Ranges) -> Iterator[int]:
    """Each seq of some ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)
