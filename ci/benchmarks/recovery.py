"""B10: SIGKILL of a writer in mid-write, then the time until a new process is ready: the store open, the server at 200.

The judged figures are from the start of that process, so the interpreter and the imports are in them. Opening repairs
the tail, so each turn first puts the log back as the kill left it; LOCK stays, because a copied one would tell of
another machine. The floors read the same bytes and scan them, nothing else.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.payload import BATCH
from ci.benchmarks.served import ask, topics_serve
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE

ROOT = Path(__file__).resolve().parents[2]
_WRITER = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from ci.benchmarks import payload
import topics
batches = payload.raws(payload.texts(50))
topic = topics.open(sys.argv[1]).create("bench", durability="disk")
for number in range(int(sys.argv[2])):
    topic.put_many(batches[number % len(batches)])
os.kill(os.getpid(), signal.SIGKILL)
"""
_OPENER = """
import os, signal, sys, time
import topics
begun, cpu = time.perf_counter(), time.process_time()
store = topics.open(sys.argv[1])
took, cpu = time.perf_counter() - begun, time.process_time() - cpu
print(took, cpu, store.topic("bench").state().head_seq, len(store.damages), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def figures(setting: Setting) -> Iterator[Figure]:
    """Time to ready, what of it `open` took, and the floors."""
    writes = setting.count(10_000, 40)
    with setting.directory() as path:
        killed = path / "killed"
        kill_writer(killed, path / "wal", writes)
        logs = sorted(path.glob("wal/gen-*/shard-*/wal-*.log"))
        ready, served, opened, cpu, read, scanned = [], [], [], [], [], []
        for _ in range(setting.runs):
            read_s, scan_s = _floors(logs)
            read.append(read_s)
            scanned.append(scan_s)
            served.append(_serve_again(killed, path / "wal", writes * BATCH))
            ready_s, open_s, cpu_s = open_again(killed, path / "wal", writes * BATCH)
            ready.append(ready_s)
            opened.append(open_s)
            cpu.append(cpu_s)
        size = sum(log.stat().st_size for log in logs)
    beside = f"{writes} writes of {BATCH} x 200 B, disk; {size >> 20} MiB in {len(logs)} files"
    yield median_figure(
        "B10 SIGKILL to ready, whole process", ready, "s",
        must=4.0, aim=2.0, less=True, beside=beside,
    )  # fmt: skip
    yield median_figure(
        "B10 SIGKILL to /v0/ready, topics serve", served, "s",
        must=4.0, aim=2.0, less=True, beside="the same log",
    )  # fmt: skip
    per_record = statistics.median(cpu) / (writes * BATCH) * 1e6
    yield median_figure("  topics.open alone", opened, "s", beside=f"{per_record:.2f} µs CPU a record")
    yield median_figure("  floor: reading the files", read, "s")
    yield median_figure("  floor: reading and codec.scan", scanned, "s")


def kill_writer(killed: Path, log: Path, writes: int) -> None:
    """Leave what a writer left that was killed behind so many writes; its log apart, so that it can be put back."""
    command = [sys.executable, "-c", _WRITER, str(killed), str(writes), str(ROOT)]
    assert subprocess.run(command, check=False).returncode < 0
    (killed / "wal").rename(log)


def _floors(logs: list[Path]) -> tuple[float, float]:
    begun = time.perf_counter()
    for log in logs:
        log.read_bytes()
    read_s = time.perf_counter() - begun
    begun = time.perf_counter()
    for log in logs:
        buffer = log.read_bytes()
        scan(buffer, HEADER_SIZE, len(buffer))
    return read_s, time.perf_counter() - begun


def _serve_again(killed: Path, log: Path, records: int) -> float:
    """Seconds until the server has said that it is ready."""
    shutil.copytree(log, killed / "wal")
    try:
        with topics_serve(killed) as server:
            state = ask(server.port, "GET", "/v0/topics/bench")
            assert state["head_seq"] == records, state
            server.process.kill()
            server.process.wait()
        return server.ready_s
    finally:
        shutil.rmtree(killed / "wal")


def open_again(killed: Path, log: Path, records: int) -> tuple[float, float, float]:
    """Seconds to ready, of `open`, and of its CPU."""
    shutil.copytree(log, killed / "wal")
    try:
        begun = time.perf_counter()
        command = [sys.executable, "-c", _OPENER, str(killed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as opener:
            assert opener.stdout is not None
            line = opener.stdout.readline()
            took = time.perf_counter() - begun
        open_s, cpu_s, head_seq, damages = line.split()
        assert (int(head_seq), int(damages)) == (records, 0), line
        return took, float(open_s), float(cpu_s)
    finally:
        shutil.rmtree(killed / "wal")
