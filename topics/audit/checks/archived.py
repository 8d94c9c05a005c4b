"""What is kept of the log in `archive/`: whole, and without a hole, so that a restore can go through it (storage 7).

No start reads it. Its files are scanned as those of the log are, and judged with them by the code of a start. But a
file was closed by a mark and synced before it went there, so none of them may end in what is not whole. A hole is no
damage: the archive may have been switched off for a while, or files were taken away. The oldest go by themselves, also
while this is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Severity, Violation, WalRow, WalTask
from topics.audit.scan.walscan import look_of
from topics.engine.recovery.judge import Damage, judge
from topics.engine.recovery.judge import LogState as Judged
from topics.host.directory.layout import find_wal_files_in, shards_in
from topics.host.wal.archive import ARCHIVE_DIR, archive_path
from topics.kernel.ports import Disk

CHECK: Final = "archive"
_REFUSED: Final = "a restore that would go past it is refused; keep a newer backup"


def archive_tasks(disk: Disk) -> list[WalTask]:
    """Every file of the archive, in the order of the log."""
    return [
        WalTask(
            generation=file.generation, shard=file.shard, first_frame=file.first_frame, file=archive_path(file),
            archived=True,
        )
        for key in shards_in(disk, ARCHIVE_DIR)
        for file in find_wal_files_in(disk, ARCHIVE_DIR, *key)
    ]  # fmt: skip


def check_archive(state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What of the archive is damaged, and where it has holes. `rows`: those of all of the log."""
    shards: dict[tuple[int, int], dict[int, WalRow]] = {}
    for row in sorted(rows, key=lambda row: not row.task.archived):
        own = shards.setdefault((row.task.generation, row.task.shard), {})
        own.setdefault(row.task.first_frame, row)  # one in both places is one file (`host.system.moving`)
    for _, own in sorted(shards.items()):
        if any(row.task.archived for row in own.values()):
            yield from _check_shard(state, [own[number] for number in sorted(own)])


def _check_shard(state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    together: list[WalRow] = []
    for row in rows:
        before = together[-1] if together else None
        if before is not None and before.clean and _behind(before) != row.task.first_frame:
            yield from _check_files(state, together)
            if before.task.archived:
                detail = f"frames {_behind(before)} to {row.task.first_frame - 1} of the log behind it are not kept: "
                # Without a frame the next file would have the same name, so this one has lost all of them.
                severity = Severity.NOTE if before.frames else Severity.ERROR
                yield Violation("", before.task.file, CHECK, severity, None, None, detail + _REFUSED)
            together = []
        together.append(row)
    yield from _check_files(state, together)


def _behind(row: WalRow) -> int:
    """The number of the frame behind the last of a file."""
    return row.task.first_frame + row.frames


def _check_files(state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """Files that follow each other, those of the archive first."""
    files = {row.task.first_frame: row.task for row in rows if row.task.archived}
    told: dict[tuple[int, int], None] = {}
    for damage in _damages(rows):
        task = files.get(damage.file.first_frame)
        if task is not None and (damage.file.first_frame, damage.offset) not in told:
            told[damage.file.first_frame, damage.offset] = None
            topic_id, seq = damage.plausible or (0, None)
            yield state.violation(topic_id, task.file, CHECK, seq, damage.offset, f"{damage.why}; {_REFUSED}")


def _damages(rows: Sequence[WalRow]) -> Iterator[Damage]:
    looks = [look_of(row) for row in rows]
    for seen in looks:
        if seen.header_defect:
            yield Damage(seen.file, 0, 0, seen.header_defect, None)
        elif seen.clean and not seen.closed:
            yield Damage(seen.file, seen.end, 0, "it does not end with the mark that closes it", None)
    since = looks[0].file if looks and looks[0].begun else None
    verdict = judge(looks, same_boot=False, since=since)
    yield from verdict.damages
    if verdict.state is Judged.TORN and verdict.tail is not None:
        seen = verdict.tail
        broken = seen.broken or [(seen.end, 0, None)]
        yield from (Damage(seen.file, at, size, seen.defect, head) for at, size, head in broken)
