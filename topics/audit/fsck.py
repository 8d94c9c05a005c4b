"""`fsck`: is this data directory whole? It reads and changes nothing, and needs no lock (storage 4, spark 4).

    state     what a start would make of the directory, by the code of a start
    rows      one a WAL file, archived or not, and one a segment, scanned here or in processes
    checks    rows and state against each other

The directory may be in use meanwhile: files grow, move and go away under the reader. So nothing is believed that was
seen once: whatever is wrong is looked at again from the beginning, and only what is wrong in the same place both times
is told. Damage stays; a write that was under way has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from topics.audit.checks.acknowledged import check_acknowledged
from topics.audit.checks.acks import Acks
from topics.audit.checks.archived import archive_tasks, check_archive
from topics.audit.checks.coldtier import HOW, check_cold, check_notes, reach
from topics.audit.checks.consumer_logs import check_consumers
from topics.audit.checks.copies import check_copies
from topics.audit.checks.metafiles import check_agreement, check_metafiles
from topics.audit.checks.queue_logs import check_queues
from topics.audit.checks.router_logs import check_routers
from topics.audit.checks.row_checks import CHECKS, check_rows
from topics.audit.checks.schedule_logs import check_schedules
from topics.audit.checks.wrong_types import find_wrong_types, wrong_type_violations
from topics.audit.recovery import RecoveredDirectory, read, segment_tasks, wal_tasks
from topics.audit.scan.rows import Row, SegmentRow, Severity, Task, Violation, WalRow
from topics.audit.scan.scan import Progress, bytes_of, scan_all
from topics.host.checkpoint.snapshots import META_DIR
from topics.host.cold.segment_stores import SegmentStore
from topics.host.system.readonly import Hiding, WithCold
from topics.kernel.errors import CannotOpen, Corrupt
from topics.kernel.ids import is_internal
from topics.kernel.ports import Disk

PASSES_MAX: Final = 8


Scanner = Callable[[Sequence[Task], Progress], list[Row | None]]


@attrs.frozen(kw_only=True)
class Options:
    """How to look. `same_boot`: the machine has not restarted since the last recovery (LOCK says so). `settled`: nobody
    writes meanwhile, so one look is enough. `acks`: what clients were told. `agreement`, `journals`: the checks that
    cost a second start, and reading what databases and Weavers hold. `cold`: the cold tier, to be checked with it, and
    `cold_dir` its place, for processes to open; without it only the idx of a cold segment is looked at, and that is
    told as an error: `unseen` says why.
    """

    same_boot: bool = False
    jobs: int = 1
    settled: bool = False
    agreement: bool = True
    journals: bool = True
    acks: Acks | None = None
    scan: Scanner | None = None  # who makes the rows of tasks, if not processes here
    cold: SegmentStore | None = None
    cold_dir: str | None = None
    unseen: str = HOW


@attrs.frozen(kw_only=True)
class FsckReport:
    """What was found. `files`: segments and logs that were looked at, and `bytes` of those, without what lies beside a
    segment. `records`: in segments; `frames`: those, and all of the log. `unsettled`: the directory changed
    so fast that it could not be read as a whole. `skipped`: the checks that were not made, and why.
    """

    where: str
    violations: Sequence[Violation]
    files: int
    bytes: int
    records: int
    passes: int
    frames: int = 0
    unsettled: bool = False
    skipped: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def errors(self) -> Sequence[Violation]:
        return [one for one in self.violations if one.severity is Severity.ERROR]

    @property
    def exit_code(self) -> int:
        """0: nothing that was promised is wrong; 1: something is; 2: it could not be looked at."""
        return 2 if self.unsettled else 1 if self.errors else 0


def fsck(
    disk: Disk,
    *,
    where: str,
    options: Options | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FsckReport:
    """Look at a data directory. `progress` is told bytes done and bytes in all, of one look.

    Raises:
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed.
    """
    options = options or Options()
    before: _FirstLook | None = None
    found = None
    for passes in range(1, PASSES_MAX + 1):
        try:
            found = _look(disk, where, options, progress)
        except FileNotFoundError:
            before = found = None  # a checkpoint has removed what this look had begun with
            continue
        if options.settled or not found.violations:
            return found.report(where, found.violations, passes)
        if before is not None:
            known = dict.fromkeys(one.key for one in before.violations)
            return found.report(where, [one for one in found.violations if one.key in known], passes)
        before = found
    skipped = dict.fromkeys(CHECKS, "the directory changed too fast")
    return FsckReport(
        where=where, violations=(), files=0, bytes=0, records=0, passes=PASSES_MAX, unsettled=True, skipped=skipped
    )  # fmt: skip


def fsck_of_backup(
    disk: Disk,
    where: str,
    options: Options,
    *,
    findings: Sequence[Violation],
    progress: Callable[[int, int], None] | None = None,
) -> FsckReport:
    """`fsck` of a backup of which `findings` are known. What they have made unreadable is no reason to say nothing.

    Raises as `fsck` does, if there are none.
    """
    try:
        report = fsck(disk, where=where, options=options, progress=progress)
    except CannotOpen:
        if not findings:
            raise
        skipped = dict.fromkeys(CHECKS, "no state can be read")
        report = FsckReport(
            where=where, violations=(), files=0, bytes=0, records=0, passes=1, skipped=skipped
        )
    return attrs.evolve(report, violations=[*findings, *report.violations])


@attrs.frozen
class _FirstLook:
    violations: Sequence[Violation]
    rows: Sequence[Row]
    skipped: Mapping[str, str]

    def report(self, where: str, violations: Sequence[Violation], passes: int) -> FsckReport:
        stored = sum(row.records for row in self.rows if isinstance(row, SegmentRow))
        return FsckReport(
            where=where,
            violations=violations,
            files=len(self.rows),
            bytes=sum(row.size for row in self.rows),
            records=stored,
            passes=passes,
            frames=stored + sum(row.frames for row in self.rows if isinstance(row, WalRow)),
            skipped=self.skipped,
        )


def _look(
    disk: Disk, where: str, options: Options, progress: Callable[[int, int], None] | None
) -> _FirstLook:  # fmt: skip
    if wrong := find_wrong_types(disk):
        disk = Hiding(disk, frozenset(wrong))
    cold, unseen = reach(disk, options.cold, options.unseen)
    if cold is None:
        options = attrs.evolve(options, cold=None, cold_dir=None)
    try:
        state = read(disk, where, same_boot=options.same_boot, cold=cold)
    except Corrupt as damage:
        told = Violation("", META_DIR, "snapshot", Severity.ERROR, None, None, damage.message)
        return _FirstLook(
            [*wrong_type_violations(wrong), told], (), dict.fromkeys(CHECKS, "no state can be read")
        )
    hot = disk
    if cold is not None:
        disk = WithCold(disk, cold)
    logs = [*wal_tasks(disk), *archive_tasks(disk)]
    every: list[Task] = [*logs, *segment_tasks(state)]
    tell = _teller(sum(bytes_of(disk, task) for task in every), progress)
    wal_rows = _scanned(disk, logs, options, tell)
    tasks = segment_tasks(state, [row for row in wal_rows if isinstance(row, WalRow)])
    segment_rows = _scanned(disk, tasks, options, tell)
    rows = [row for row in (*wal_rows, *segment_rows) if row is not None]
    found = [*examine(disk, state, rows, options), *check_cold(hot, state, rows, unseen)]
    skipped = {} if options.acks is not None else {"acknowledged": "no log of acknowledgements was given"}
    return _FirstLook([*wrong_type_violations(wrong), *found], rows, skipped)


def _scanned(disk: Disk, tasks: Sequence[Task], options: Options, tell: Progress) -> list[Row | None]:
    if options.scan is not None:
        return options.scan(tasks, tell)
    return scan_all(disk, tasks, jobs=options.jobs, progress=tell, cold_dir=options.cold_dir)


def _teller(total: int, progress: Callable[[int, int], None] | None) -> Progress:
    done = 0

    def tell(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, max(total, done))

    return tell


def examine(
    disk: Disk, state: RecoveredDirectory, rows: Sequence[Row], options: Options | None = None
) -> list[Violation]:  # fmt: skip
    """What is wrong with a directory by its state and its rows, whoever made them."""
    options = options or Options()
    every = [row for row in rows if isinstance(row, WalRow)]
    wal_rows = [row for row in every if not row.task.archived]
    segment_rows = [row for row in rows if isinstance(row, SegmentRow)]
    return [
        *check_metafiles(disk, state),
        *check_notes(disk, state),
        *(check_agreement(disk, state) if options.agreement else ()),
        *check_rows(state, wal_rows, segment_rows),
        *check_archive(state, every),
        *check_queues(disk, state, every),
        *check_consumers(disk, state, every),
        *check_schedules(disk, state, every),
        *check_routers(disk, state, every),
        *check_copies(disk, state, every),
        *(_check_journals(disk, state) if options.journals else ()),
        *(check_acknowledged(disk, state, options.acks) if options.acks is not None else ()),
    ]


def _check_journals(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """Where there are none nobody needs what it takes to read them. Raises `MissingExtra`."""
    if any(is_internal(topic.name) for topic in state.topics.values()):
        from topics.audit.checks.journals import check_journals

        yield from check_journals(disk, state)
