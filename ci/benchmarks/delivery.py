"""B7: from a write to the watchers' hands, by server-sent events. B12: what watchers cost that are told nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.load import topic_name
from ci.benchmarks.served import load, serve, topics_serve
from ci.benchmarks.turns import Turn, take_turns, turn_of
from ci.benchmarks.watchers import Idle, WatchPlan

BOUNDS_MS = {1: (0.45, 0.25), 100: (3.0, 2.2)}  # p50, by watchers: must and aim
P99_OVER_P50 = 10
TOPICS, WATCHERS = 10_000, 1000
IDLE_S = 20.0
_GENERATOR = "ci.benchmarks.watchers"


def figures(setting: Setting) -> Iterator[Figure]:
    sides: dict[str, Callable[[Path], Turn]] = {
        f"{watchers}": _watched(setting, watchers) for watchers in BOUNDS_MS
    }
    turns = take_turns(setting, sides)
    for watchers, (must, aim) in BOUNDS_MS.items():
        of = turns[f"{watchers}"]
        cpu = statistics.median(turn.cpu_us for turn in of)
        beside = f"200 B, one record, disk; {cpu:.0f} µs CPU a delivery, the write included"
        name = f"B7 write to SSE, {watchers} watcher{'s' if watchers > 1 else ''}"
        yield median_figure(
            f"{name}, p50", [turn.p50_us / 1000 for turn in of], "ms", must=must, aim=aim, less=True, beside=beside,
        )  # fmt: skip
        yield median_figure(
            f"{name}, p99 / p50", [turn.p99_us / turn.p50_us for turn in of], "×", must=P99_OVER_P50, less=True,
            beside=f"p99 {statistics.median(turn.p99_us for turn in of) / 1000:.2f} ms",
        )  # fmt: skip


def _watched(setting: Setting, watchers: int) -> Callable[[Path], Turn]:
    def turn(path: Path) -> Turn:
        with serve("topics", path / "data", "disk") as server:
            writes = setting.count(60 if watchers > 1 else 200, 3)
            plan = WatchPlan(port=server.port, pid=server.pid, watchers=watchers, warm=3, writes=writes)
            return turn_of(load(plan, module=_GENERATOR), 1)

    return turn


def idle(setting: Setting) -> Iterator[Figure]:
    """Ten topics a watcher, so that every topic is watched; heartbeats as they are by default."""
    watchers = setting.count(WATCHERS, 5)
    count, idle_s = TOPICS // WATCHERS * watchers, 0.2 if setting.quick else IDLE_S
    found: list[Idle] = []
    with setting.directory() as path:
        with topics.open(path / "data") as store:
            for number in range(count):
                store.create(topic_name(number), durability="disk")
        for _ in range(min(setting.runs, 3)):
            with topics_serve(path / "data") as server:
                plan = WatchPlan(
                    port=server.port,
                    pid=server.pid,
                    watchers=watchers,
                    topics=count // watchers,
                    idle_s=idle_s,
                )
                found.append(load(plan, module=_GENERATOR, result=Idle))
    beside = f"{watchers} watchers of {count // watchers} topics each, over {count} topics, nothing written"
    yield median_figure(
        "B12 CPU of idle watchers, of a core", [one.cpu_s / one.seconds * 100 for one in found], "%", must=1.0,
        less=True, beside=beside,
    )  # fmt: skip
    yield median_figure(
        "B12 RssAnon a connected watcher", [one.bytes / watchers / 1024 for one in found], "KiB", must=30.0, less=True,
        beside="session, stream and connection",
    )  # fmt: skip
