"""One file of the log to one row: what recovery's own `examine_log_file` says of it, and the checksum of each record.

The row has what `engine.recovery.judge.judge` asks of a file but its items, so rows that were made anywhere are judged
by the code that a start runs (`look_of`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, islice
from typing import Final

from topics.audit.scan.rows import WalRow, WalSpan, WalTask
from topics.codec.log.control import CommitMark, Control
from topics.codec.log.frame import Run
from topics.codec.log.layout import CHECKSUM_SIZE, FrameType
from topics.engine.recovery.judge import FileLook, examine_log_file
from topics.host.directory.size_limits import read_log
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

BROKEN_MAX: Final = 1000  # damaged places that a row lists of one file


def scan_wal(disk: Disk, task: WalTask) -> WalRow | None:
    """The row of a WAL file; None if it is not there (any more)."""
    size = disk.size(task.file)
    if size is None:
        return None
    try:
        buffer = read_log(disk, task.file)
    except FileNotFoundError:
        return None
    return row_of(task, buffer, size=size)


def row_of(task: WalTask, buffer: bytes, *, size: int | None = None) -> WalRow:
    """The row of a WAL file's bytes; `size` as for `examine_log_file`."""
    seen = examine_log_file(WalFileId(task.generation, task.shard, task.first_frame), buffer, size=size)
    return WalRow(
        task=task, size=seen.size, header_defect=seen.header_defect, blank=seen.blank, frames=seen.frames,
        beyond=len(seen.beyond), end=seen.end, stopped_at=seen.stopped_at, clean=seen.clean, defect=seen.defect,
        stop=seen.stop, followed=seen.followed, marks=tuple(seen.marks),
        broken=tuple((at, size, *(head or (0, 0))) for at, size, head in seen.broken[:BROKEN_MAX]),
        unknown=tuple(seen.unknown), spans=() if task.archived else tuple(_spans([*seen.items, *seen.beyond], buffer)),
    )  # fmt: skip


def look_of(row: WalRow) -> FileLook:
    """What `judge` needs to decide. It only asks if there are items behind a bad frame, so one stands for all."""
    task = row.task
    return FileLook(
        file=WalFileId(task.generation, task.shard, task.first_frame), size=row.size,
        header_defect=row.header_defect, blank=row.blank, file_id=b"", items=(), frames=row.frames, end=row.end,
        stopped_at=row.stopped_at, clean=row.clean, defect=row.defect, stop=row.stop,
        beyond=(_SOMETHING,) * min(row.beyond, 1), followed=row.followed, marks=row.marks,
        broken=[(at, size, (topic_id, seq) if seq else None) for at, size, topic_id, seq in row.broken],
        unknown=row.unknown,
    )  # fmt: skip


_SOMETHING: Final = Control(FrameType.COMMIT_MARK, 0, 0, CommitMark(bytes(8), 0, 0), 0, 0, False)  # noqa: FBT003 -- a struct's field


def _spans(items: Iterable[Run | Control], buffer: bytes) -> Iterable[WalSpan]:
    """The records of each topic, neighbours in the log as one span."""
    topic_id, first, offset = 0, 0, 0
    prints: list[bytes] = []
    for item in items:
        if not isinstance(item, Run):
            continue
        if item.topic_id != topic_id or item.seq_start != first + len(prints):
            if prints:
                yield WalSpan(topic_id, first, offset, b"".join(prints))
            topic_id, first, offset, prints = item.topic_id, item.seq_start, item.offset, []
        stops = islice(accumulate(item.lengths, initial=item.offset), 1, None)
        prints += [buffer[stop - CHECKSUM_SIZE : stop] for stop in stops]
    if prints:
        yield WalSpan(topic_id, first, offset, b"".join(prints))
