"""One segment to one row: every checksum, and whether `.idx` and `.col` say what `.data` holds (spark 4).

Records are verified as a start verifies them (`codec.segments.segment.walk`); `.idx` and `.col` can be made again from
them, so whatever they say otherwise is wrong. Only the bytes that the task counts are looked at: behind them may be
what a crash left of an append, or one that is under way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import add, gt, ne, or_
from typing import Final

from topics.audit.scan.columnscan import Labelled, check_blocks, check_columns, check_del
from topics.audit.scan.flaws import Flaws
from topics.audit.scan.rows import Ranges, SegmentRow, SegmentTask, Severity
from topics.codec.log.layout import CHECKSUM_SIZE, FLAGS_ALL, FRAME_HEAD, Defect, check_frame
from topics.codec.segments.segidx import DELETED, EXPIRED, IdxColumns
from topics.codec.segments.segment import LIVE, DataColumns, DataDamage, is_deleted, is_regular, walk
from topics.host.directory.size_limits import part_bytes_max
from topics.host.segments.segment_files import data_end
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U32_MAX
from topics.kernel.ports import Disk

_walk_by_numpy: Callable[[SegmentTask, bytes, bytes], tuple[DataColumns, Labelled] | None] | None
try:
    from topics.audit.columnar.numpy_walk import walk_by_numpy as _walk_by_numpy
except ImportError:  # numpy is not installed: one by one
    _walk_by_numpy = None

_REGULAR: Final = bytes(0 if is_regular(end) else 1 for end in range(256))
_SAYS_DELETED: Final = bytes(1 if is_deleted(end) else 0 for end in range(256))
_IDX_DELETED: Final = bytes(1 if flags & DELETED else 0 for flags in range(256))
_IDX_EXPIRED: Final = bytes(1 if flags & EXPIRED else 0 for flags in range(256))
_IDX_ENDED: Final = bytes(1 if flags & (DELETED | EXPIRED) else 0 for flags in range(256))
_FRAME_FLAGS: Final = bytes(flags & FLAGS_ALL for flags in range(256))


def scan_segment(disk: Disk, task: SegmentTask) -> SegmentRow | None:
    """The row of a segment; None if its `.data` is not there (any more)."""
    flaws = Flaws()
    size = disk.size(task.file)
    if size is None and (task.cold or (task.stale and disk.size(task.part("idx")) is not None)):
        return _row_of_cold(disk, task, flaws)
    if size is None:
        return None
    idx_buffer, col_buffer = (_read(disk, task, part, flaws) for part in ("idx", "col"))
    stop = _stale_size(task, idx_buffer) if task.stale else task.size
    try:
        data = disk.read(task.file, 0, min(stop, size))
    except FileNotFoundError:
        return None
    if task.size > U32_MAX:
        flaws.add(
            "segment.record", task.first, 0, f"{task.size} bytes are counted, more than offsets can name"
        )
        data = data[:U32_MAX]
    found, labels = _records(task, data, idx_buffer)
    if len(data) < task.size and not task.stale:
        flaws.add(
            "segment.record", None, len(data), f"{task.size - len(data)} of {task.size} bytes are not there"
        )
    damaged = _damaged(task, found, data, flaws)
    missing = _without(_gaps(found.seqs, task.first, task.last), damaged)
    _check_order(found, flaws)
    _check_ends(found, flaws)
    idx = _check_idx(task, found, idx_buffer, flaws)
    check_columns(task, found, data, col_buffer, _ended(task, found, idx), flaws, labels)
    check_del(task, _read(disk, task, "del", flaws), flaws)
    print_first, prints = _prints(task, found, data)
    return SegmentRow(
        task=task, records=len(found), size=len(data), ts_first=found.ts[0] if found.ts else 0,
        ts_last=found.ts[-1] if found.ts else 0, damaged=damaged, missing=missing,
        deleted=_deleted(task, found, idx), expired=_flagged(task, idx, _IDX_EXPIRED), print_first=print_first,
        prints=prints, flaws=flaws.summed_up(),
    )  # fmt: skip


def _records(task: SegmentTask, data: bytes, idx: bytes | None) -> tuple[DataColumns, Labelled | None]:
    """The walk; where numpy is installed, a segment that is whole as its idx says is read at once, labels and all."""
    found = None if _walk_by_numpy is None or idx is None else _walk_by_numpy(task, data, idx)
    if found is not None:
        return found
    stop = task.last + 1
    return walk(data, 0, len(data), topic_id=task.topic_id, first_seq=task.first, seq_stop=stop), None


def _row_of_cold(disk: Disk, task: SegmentTask, flaws: Flaws) -> SegmentRow:
    """The idx of a segment whose data is, or may be, in the other tier, which is not asked."""
    idx = _whole_idx(task, _read(disk, task, "idx", flaws), flaws)
    check_blocks(task, _read(disk, task, "col", flaws) or b"", flaws)
    ends = check_del(task, _read(disk, task, "del", flaws), flaws)
    seqs = range(task.first, task.last + 1)
    return SegmentRow(
        task=task, records=0, size=0, ts_first=0, ts_last=0, damaged=(), missing=(),
        deleted=_flagged(task, idx, _IDX_DELETED) + _ranges(compress(seqs, ends.translate(_IDX_DELETED))),
        expired=_flagged(task, idx, _IDX_EXPIRED) + _ranges(compress(seqs, ends.translate(_IDX_EXPIRED))),
        print_first=task.last + 1, prints=b"", flaws=flaws.summed_up(),
    )  # fmt: skip


def _read(disk: Disk, task: SegmentTask, part: str, flaws: Flaws) -> bytes | None:
    """A file beside the data, up to the most that one has; None if it is not there (any more)."""
    path = task.part(part)
    size = disk.size(path)
    count = task.last - task.first + 1
    most = part_bytes_max(part, count=count, size=task.size, sealed=task.sealed)
    if size is not None and size > most:
        flaws.add(f"segment.{part}", None, most, f"it has {size} bytes, and can have no more than {most}")
        size = most
    try:
        return None if size is None else disk.read(path, 0, size)
    except FileNotFoundError:
        return None


def _stale_size(task: SegmentTask, buffer: bytes | None) -> int:
    """How much of the data an idx says the records of the task take; what the task says if there is none."""
    try:
        idx = task.seal.idx(buffer or b"")
    except Corrupt:
        return task.size
    return data_end(idx.first(min(len(idx), task.last - task.first + 1)))


# Records.


def _damaged(task: SegmentTask, found: DataColumns, data: bytes, flaws: Flaws) -> Ranges:
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
        where = "" if first >= last else f", of seqs {first} to {last}"
        defect = _whose(data, damage) if damage.defect is Defect.IDS else damage.defect.value
        detail = f"{damage.stop - damage.offset} bytes are no record: {defect}{where}"
        check = "newer" if damage.defect is Defect.UNKNOWN else "segment.record"
        flaws.add(check, seq, damage.offset, detail)
    return tuple(ranges)


def _whose(data: bytes, damage: DataDamage) -> str:
    """What lies where a record of another topic, or of a seq that cannot come here, is whole."""
    if isinstance(check_frame(data, damage.offset, damage.stop), Defect):
        return damage.defect.value
    _, _, _, topic_id, seq, _, _, _, _ = FRAME_HEAD.unpack_from(data, damage.offset)
    return f"seq {seq} of topic id {topic_id} begins there"


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
    ts = found.ts.tolist()
    if ts == sorted(ts):
        return
    for at in compress(range(1, len(found)), map(gt, ts, ts[1:])):
        detail = f"ts {found.ts[at]} is before {found.ts[at - 1]}, that of the record before it"
        flaws.add("segment.ts", found.seqs[at], found.offsets[at], detail)


def _check_ends(found: DataColumns, flaws: Flaws) -> None:
    if found.ends.count(LIVE) == len(found):
        return
    for at in compress(range(len(found)), found.ends.translate(_REGULAR)):
        end = found.ends[at]
        taken = "deleted" if is_deleted(end) else "live"
        detail = f"the delete byte is 0x{end:02x}, neither 0x00 nor 0xd5; readers take it as {taken}"
        flaws.add("segment.flag", found.seqs[at], found.offsets[at] + found.lengths[at], detail)


def _prints(task: SegmentTask, found: DataColumns, data: bytes) -> tuple[int, bytes]:
    if task.compare_from is None or task.compare_from > task.last:
        return task.last + 1, b""
    first = max(task.compare_from, task.first)
    skipped = bisect_left(found.seqs, first)
    stops = map(add, found.offsets[skipped:], found.lengths[skipped:])
    prints = [data[stop - CHECKSUM_SIZE : stop] for stop in stops]
    if len(prints) == task.last + 1 - first:
        return first, b"".join(prints)
    all_of_them = [bytes(CHECKSUM_SIZE)] * (task.last + 1 - first)
    for seq, own in zip(found.seqs[skipped:], prints, strict=True):
        all_of_them[seq - first] = own
    return first, b"".join(all_of_them)


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
        idx = task.seal.idx(buffer)
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
    there = b"\x01" * count if len(found) == count else bytes(map(bool, wanted.lengths))
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
    wrong = [at for at in compress(range(count), differs) if not unknown[at]]
    severity, hint = Severity.ERROR, ""
    if not task.sealed or data_end(idx.first(count)) != data_end(wanted):
        severity, hint = Severity.UNDECIDABLE, "; an append or a rewrite that was cut off leaves that, too"
    for at in wrong:
        detail = _contradiction(idx, wanted, at) + hint
        flaws.add("segment.idx", task.first + at, None, detail, severity)
    return idx


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


def _ended(task: SegmentTask, found: DataColumns, idx: IdxColumns | None) -> bytes:
    """1 for each record that may have ended before it was copied: then its tag and node were not kept."""
    ends = found.ends.translate(_SAYS_DELETED)
    if idx is None:
        return b"\x01" * len(found)
    if not any(idx.flags.translate(_IDX_ENDED)):
        return bytes(ends)
    flags = map(idx.flags.__getitem__, map((-task.first).__add__, found.seqs))
    return bytes(map(or_, ends, bytes(flags).translate(_IDX_ENDED)))
