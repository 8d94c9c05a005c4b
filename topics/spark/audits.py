"""fsck by Spark: the same scan, the same checks and the same rows of findings, over any number of machines (spark 4).

The driver reads the state as a start would, and cuts the files into tasks; executors scan them, each file to one small
row; the driver holds rows and state against each other. Every machine must see the directory by the same path or URL.

Executors take the files, which is what grows with the data. The driver alone takes what needs the state: the start and
a second one from the older snapshot, with all of the index in its memory; the journals of databases and Weavers; and
acknowledgements, in columns of 16 bytes each, with the records of those that have a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from topics.audit.checks.acks import Acks
from topics.audit.checks.coldtier import HOW
from topics.audit.fsck import FsckReport, Options, fsck
from topics.audit.report.html_page import page
from topics.audit.report.violations import document, fields, results
from topics.audit.scan.rows import Row, Task, Violation
from topics.audit.scan.scan import bytes_of
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.spark.directory import open_cold, open_disk
from topics.spark.executor import Scanning
from topics.spark.options import located

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 64 * MIB  # of files that one task scans: a task costs 90 ms before it begins
TASK_BYTES_MIN: Final = 16 * MIB
I64_MAX: Final = 2**63 - 1
WAVE: Final = 4  # tasks for each core between two words of progress


def validate(
    spark: SparkSession,
    path: str,
    *,
    acks: Acks | None = None,
    same_boot: bool = False,
    settled: bool = False,
    cold_dir: str | None = None,
    unseen: str = HOW,
    progress: Callable[[int, int], None] | None = None,
) -> FsckReport:
    """Look at a data directory or backup, and with `cold_dir` at its cold tier, which every machine must see by that
    name; without one, `unseen` says why. `settled`: nobody writes meanwhile, so one look is enough. `progress` is told
    bytes done and bytes in all.

    Raises:
        CannotOpen: no data directory, one of a newer version, or what executors see by this name is not what is here.
    """
    path = located(path)  # executors run in folders of their own
    cold_dir = None if cold_dir is None else located(cold_dir)
    disk = open_disk(path)
    cold = None if cold_dir is None else open_cold(cold_dir)
    scanning = Scanning(path, cold_dir)

    def scanned(tasks: Sequence[Task], tell: Callable[[int], None]) -> list[Row | None]:
        sizes = [bytes_of(disk, task) for task in tasks]
        context = spark.sparkContext
        each = sum(sizes) // (2 * context.defaultParallelism)
        groups = list(_groups(tasks, sizes, min(max(each, TASK_BYTES_MIN), TASK_BYTES)))
        rows: list[Row | None] = []
        for some in _waves(groups, WAVE * context.defaultParallelism):
            # All of a wave at once: a local iterator would run one task after the other.
            for group in context.parallelize(some, len(some)).map(scanning).collect():
                tell(sum(sizes[len(rows) : len(rows) + len(group)]))
                rows += group
        refuse_other_files(disk, tasks, rows, where=path)
        return rows

    options = Options(
        same_boot=same_boot,
        settled=settled,
        acks=acks,
        scan=scanned,
        cold=cold,
        cold_dir=cold_dir,
        unseen=unseen,
    )
    return fsck(disk, where=path, options=options, progress=progress)


def refuse_other_files(disk: Disk, tasks: Sequence[Task], rows: Sequence[Row | None], *, where: str) -> None:
    """Raises `CannotOpen` if executors have not found a file that is here: what they see by that name is a directory of
    their own, and what it lacks would pass for lost.
    """
    assert len(rows) == len(tasks)
    for task, row in zip(tasks, rows, strict=True):
        if row is None and disk.size(task.file) is not None:
            how = "every machine must reach the same directory by that path or URL; if it does, try again"
            raise CannotOpen(
                Unusable.MISSING,
                f"an executor does not see {where}/{task.file}, which is here: {how}",
                path=where,
            )


def _waves(groups: list[list[Task]], size: int) -> Iterator[list[list[Task]]]:
    return (groups[at : at + size] for at in range(0, len(groups), size))


def _groups(tasks: Sequence[Task], sizes: Iterable[int], bytes_max: int) -> Iterator[list[Task]]:
    """Tasks in their order, about so many bytes together."""
    held: list[Task] = []
    total = 0
    for task, size in zip(tasks, sizes, strict=True):
        if held and total + size > bytes_max:
            yield held
            held, total = [], 0
        held.append(task)
        total += size
    if held:
        yield held


VIOLATIONS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("file", pa.string()),
        pa.field("check", pa.string()),
        pa.field("severity", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("detail", pa.string()),
    ]
)
CHECKS: Final = pa.schema(
    [
        pa.field("check", pa.string()),
        pa.field("constraint", pa.string()),
        pa.field("status", pa.string()),
        pa.field("metric", pa.int64()),
        pa.field("message", pa.string()),
    ]
)


def write_report(report: FsckReport, out: Path) -> list[Path]:
    """Put the findings into a folder, made if it is not there: report.html, report.json, and a Parquet file of the
    violations and one of the checks. The files, the page first.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = [out / name for name in ("report.html", "report.json", "violations.parquet", "checks.parquet")]
    files[0].write_bytes(page(report))
    files[1].write_bytes(document(report))
    pq.write_table(
        pa.Table.from_pylist([_row(one) for one in report.violations], schema=VIOLATIONS), files[2]
    )
    checks = [{**attrs.asdict(one), "status": one.status.value} for one in results(report)]
    pq.write_table(pa.Table.from_pylist(checks, schema=CHECKS), files[3])
    return files


def _row(one: Violation) -> dict[str, object]:
    """A violation as a row of Parquet. A seq that damaged bytes, or a client, claim may be beyond `int64`."""
    if one.seq is None or one.seq <= I64_MAX:
        return fields(one)
    return {**fields(one), "seq": None, "detail": f"seq {one.seq}: {one.detail}"}
