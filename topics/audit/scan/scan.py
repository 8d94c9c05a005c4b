"""Files to rows, in this process or in several (spark 4). Any machine that sees the files may make the rows.

A row depends on nothing but its task and its file, so who scans is a question of speed only: `scan` here, a pool of
processes, or the executors of Spark.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from topics.audit.scan.rows import Row, SegmentTask, Task
from topics.audit.scan.segmentscan import scan_segment
from topics.audit.scan.walscan import scan_wal
from topics.host.cold.place import open_cold
from topics.host.system.readonly import ReadOnlyDisk, WithCold
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk

JOBS_MAX: Final = 64
WORTH_A_POOL: Final = 128 * MIB  # below, starting processes takes longer than scanning
Progress = Callable[[int], None]


def scan(disk: Disk, task: Task) -> Row | None:
    """The row of one file; None if it is not there (any more)."""
    return scan_segment(disk, task) if isinstance(task, SegmentTask) else scan_wal(disk, task)


def bytes_of(disk: Disk, task: Task) -> int:
    """How much there is to scan. The state knows it of a segment: the disk is asked for files of the log alone."""
    return task.size if isinstance(task, SegmentTask) else disk.size(task.file) or 0


def scan_all(
    disk: Disk,
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    cold_dir: str | None = None,
) -> list[Row | None]:
    """The rows, in the order of the tasks. `progress` is told the bytes of each file that is done. `cold_dir`: of the
    cold tier that `disk` reads from, if it does.

    With `jobs` above 1 and a real directory, that many processes share the work if it is worth them.
    """
    assert 1 <= jobs <= JOBS_MAX
    tell = progress or _tell_nobody
    sizes = [bytes_of(disk, task) for task in tasks]
    own = disk.disk if isinstance(disk, WithCold) and cold_dir is not None else disk
    if jobs > 1 and isinstance(own, ReadOnlyDisk) and sum(sizes) >= WORTH_A_POOL:
        return _scan_in_processes((os.fspath(own.root), cold_dir), tasks, sizes, jobs, tell)
    rows = []
    for task, size in zip(tasks, sizes, strict=True):
        rows.append(scan(disk, task))
        tell(size)
    return rows


def _scan_in_processes(
    place: tuple[str, str | None], tasks: Sequence[Task], sizes: Iterable[int], jobs: int, tell: Progress
) -> list[Row | None]:
    rows = []
    # A fork of this process would copy locks that somebody holds. To import everything takes a process as long as to
    # scan 100 MiB, and there are two pools, for the log and for segments: a server that has done it forks them all.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(jobs, context, _begin, place) as pool:
        for row, size in zip(pool.map(_scan_here, tasks), sizes, strict=True):
            rows.append(row)
            tell(size)
    return rows


_disk: Disk | None = None  # of a worker process


def _begin(root: str, cold_dir: str | None) -> None:
    global _disk  # noqa: PLW0603 -- what a worker process is given once
    disk = ReadOnlyDisk(root)
    _disk = disk if cold_dir is None else WithCold(disk, open_cold(cold_dir))


def _scan_here(task: Task) -> Row | None:
    assert _disk is not None
    return scan(_disk, task)


def _tell_nobody(size: int) -> None:
    assert size >= 0
