"""`ci/bench --quick`: every group runs to its end, says what it measured beside what, and leaves nothing behind.

Groups that start servers or fill stores first take minutes of the gate together, so they are in the slow lane.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from ci.benchmarks.command import GROUPS
from ci.benchmarks.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = {
    "b1": "B1 CPU a record, by 100, plain",
    "b2": "B2 fsync / disk, with tag, node, meta",
    "b3": "B3 topics / Quart",
    "b4": "B4 p50, topics / floor server",
    "b5": "B5 64 connections, topics / floor",
    "b6": "B6 diff verified from file",
    "b7": "B7 write to SSE, 100 watchers, p50",
    "b7b": "B7b p50 beside one who does not read / without",
    "b7c": "B7c p99 of the top band / of the lowest",
    "b8": "B8 claim 100 + ack 100",
    "b8b": "B8b put + claim + ack by 100",
    "b8c": "B8c put to a waiting worker's handler, p50",
    "b8d": "B8d a ready job",
    "b9": "B9 fsync/FULL, 1 thread: Raw / TEXT",
    "b9q": "B9q disk, by 1, 1 thread: topics / SQLite",
    "b10": "B10 SIGKILL to /v0/ready, topics serve",
    "b11": "B11 RssAnon above idle, a record",
    "b12": "B12 RssAnon a connected watcher",
    "b13": "B13 recovery, 2 k to 4 k records",
    "b14": "B14 topics serve",
    "cold": "cold p99 of a write, beside / alone",
    "cpu": "cpu: append, batch 100",
    "kv_merge": "kv_merge: 1000 keys × 10 kinds",
    "floors": "floor: pwrite+fdatasync of 256 B, p50",
    "weaver_rebuild": "weaver_rebuild: rebuilt",
    "weaver_sync": "weaver_sync: bytes of a session",
}
IDLE = (  # so little in 2 s that it may be none
    "B8c CPU of 1000 waiting workers, a second",
    "  mean, with the pings that each gets",
    "B12 CPU of idle watchers, of a core",
    "B12 RssAnon a connected watcher",
)
WITH_JAVA = ["spark"]  # tried in the lane of Spark
QUICK = ("b8b", "b9", "b11", "cpu", "floors", "kv_merge", "weaver_rebuild", "weaver_sync")


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "ci/bench", "--quick", "--runs", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_group_has_a_smoke() -> None:
    assert sorted(GROUPS) == sorted([*EXPECTED, *WITH_JAVA])


@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(EXPECTED)],
)
def test_a_group_runs_and_cleans_up(group: str, tmp_path: pathlib.Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    report = tmp_path / "report.json"
    ended = run_bench(group, "--dir", str(scratch), "--json", str(report))

    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(report.read_text(encoding="utf-8"))["figures"]
    assert EXPECTED[group] in [figure["name"] for figure in figures]
    measured = [figure for figure in figures if not figure["beside"].startswith("skipped: ")]
    assert all(figure["value"] > 0 or figure["name"] in IDLE for figure in measured)
    assert all(figure["verdict"] == "" for figure in figures)
    assert list(scratch.iterdir()) == []
    for fact in ("machine:", "python:", "versions:", "disk:"):
        assert fact in ended.stdout


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    ended = run_bench("b99")

    assert ended.returncode == 2
    assert "b99" in ended.stderr
    assert all(name in ended.stderr for name in GROUPS)


@pytest.mark.parametrize(
    ("value", "less", "verdict"),
    [
        (0.9, False, "MISS"),
        (1.0, False, "ok, below aim"),
        (1.6, False, "ok"),
        (1.7, True, "MISS"),
        (0.5, True, "ok"),
    ],
)
def test_a_verdict_names_what_is_not_met(value: float, less: bool, verdict: str) -> None:
    bounds = (1.6, 1.0) if less else (1.0, 1.6)

    assert verdict == Figure("x", value, "x", must=bounds[0], aim=bounds[1], less=less).verdict
