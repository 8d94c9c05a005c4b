"""B7: from a write to the watchers' hands, by long poll. Printed only; the bounds come with SSE."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.served import load, serve
from ci.benchmarks.turns import Turn, take_turns, turn_of
from ci.benchmarks.watchers import WatchPlan

WATCHERS = (1, 100)


def figures(setting: Setting) -> Iterator[Figure]:
    sides: dict[str, Callable[[Path], Turn]] = {
        f"{watchers}": _watched(setting, watchers) for watchers in WATCHERS
    }
    turns = take_turns(setting, sides)
    for watchers in WATCHERS:
        of = turns[f"{watchers}"]
        cpu = statistics.median(turn.cpu_us for turn in of)
        beside = f"200 B, one record, disk; {cpu:.0f} µs CPU a delivery, polls included"
        name = f"B7 write to long poll, {watchers} watcher{'s' if watchers > 1 else ''}"
        yield median_figure(f"{name}, p50", [turn.p50_us / 1000 for turn in of], "ms", beside=beside)
        yield median_figure(f"{name}, p99", [turn.p99_us / 1000 for turn in of], "ms")


def _watched(setting: Setting, watchers: int) -> Callable[[Path], Turn]:
    def turn(path: Path) -> Turn:
        with serve("topics", path / "data", "disk") as server:
            writes = setting.count(60 if watchers > 1 else 200, 3)
            plan = WatchPlan(port=server.port, pid=server.pid, watchers=watchers, warm=3, writes=writes)
            return turn_of(load(plan, module="ci.benchmarks.watchers"), 1)

    return turn
