"""B11: what a million sealed records cost in memory, what a start over them takes, and what sealing them took; B8d:
what a job takes beside that.

One topic of class `disk`, 200 bytes a record. `RssAnon` is what the process has beside files mapped into it; idle is
the same process over an empty directory. The start is a new process, from `topics.open` called to returned; beside it
the same records read from the log, as they are before a checkpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from topics.cli.bench.payload import sensor_reading

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDS: Final = 1_000_000
BATCH: Final = 1000
_OPENED: Final = """
import json, pathlib, sys, time
import topics

def anonymous():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0

with topics.open(sys.argv[1]):
    idle = anonymous()
"""
_OPEN: Final = f"""{_OPENED}
begun = time.perf_counter()
with topics.open(sys.argv[2]) as store:
    took = time.perf_counter() - begun
    print(json.dumps({{"took": took, "bytes": anonymous() - idle, "count": store.topic("t").state().count}}))
"""
_CLAIM: Final = f"""{_OPENED}
with topics.open(sys.argv[2]) as store:
    jobs, claimed = store.queue("t"), 1
    jobs.claim(1, lease_ms=86_400_000)
    ready = anonymous() - idle
    while got := len(jobs.claim(1000, lease_ms=86_400_000)):
        claimed += got
    print(json.dumps({{"bytes": ready, "leased": anonymous() - idle, "count": claimed}}))
"""


def figures(setting: Setting) -> Iterator[Figure]:
    """Bytes a record, seconds of a start with and without a checkpoint, and CPU of the checkpoint."""
    count = setting.count(RECORDS, 20_000)
    with setting.directory() as scratch:
        data, empty = scratch / "data", scratch / "empty"
        _fill(data, count)
        from_log = [_opened(data, empty, count)["took"] for _ in range(setting.runs)]
        cpu = _seal(data)
        found = [_opened(data, empty, count) for _ in range(setting.runs)]
    beside = f"{count} records of 200 B in one topic, sealed"
    yield median_figure(
        "B11 RssAnon above idle, a record", [one["bytes"] / count for one in found], "B", must=100, aim=50,
        less=True, beside=beside,
    )  # fmt: skip
    yield median_figure(
        "a start over them behind a checkpoint", [one["took"] for one in found], "s", beside=beside
    )
    yield median_figure("the same from the log", from_log, "s", beside="no checkpoint yet")
    yield Figure("a checkpoint: CPU of the process a record", cpu / count * 1e6, "µs", beside=beside)


def of_jobs(setting: Setting) -> Iterator[Figure]:
    """B8d: what a job takes beyond what a log's record does, as long as nobody has it and while somebody does."""
    count = setting.count(RECORDS, 5000)
    above: list[tuple[float, float]] = []
    for _ in range(min(setting.runs, 3)):
        with setting.directory() as scratch:
            log, jobs, empty = scratch / "log", scratch / "jobs", scratch / "empty"
            for data, kind in ((log, "log"), (jobs, "queue")):
                _fill(data, count, kind)
                _seal(data)
            of_log = _opened(log, empty, count)["bytes"]
            of_queue = _opened(jobs, empty, count, _CLAIM)
            above.append(((of_queue["bytes"] - of_log) / count, (of_queue["leased"] - of_log) / count))
    beside = f"RssAnon above that of as many records in a log, {count} jobs of 200 B, sealed, one node"
    yield median_figure(
        "B8d a ready job", [ready for ready, _ in above], "B", must=100, less=True, beside=beside
    )
    yield median_figure(
        "B8d a leased job", [leased for _, leased in above], "B", must=200, less=True, beside=beside
    )


def _fill(data: Path, count: int, kind: str = "log") -> None:
    with topics.open(data) as store:
        topic = store.create("t", type=kind, durability="disk")
        for first in range(0, count, BATCH):
            topic.put_many([topics.Raw(sensor_reading(first + i).encode()) for i in range(BATCH)])


def _seal(data: Path) -> float:
    """Two checkpoints, so that logs go too; seconds of CPU of the first."""
    with topics.open(data) as store:
        begun = time.process_time()
        store.checkpoint()
        took = time.process_time() - begun
        store.checkpoint()
    return took


def _opened(data: Path, empty: Path, count: int, script: str = _OPEN) -> dict[str, float]:
    """A new process opens the directory."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(empty), str(data)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    assert found["count"] == count
    return found
