"""B7: from a write to the watchers' hands, by server-sent events and WebSockets; beside one who does not read; under
pressure.

B12: what watchers cost that are told nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.load import Result, topic_name
from ci.benchmarks.pressed_watchers import Band, Pressed, PressedPlan
from ci.benchmarks.served import load, serve, topics_serve
from ci.benchmarks.turns import Turn, ratios, take_turns, turn_of
from ci.benchmarks.watchers import Idle, Pairs, WatchPlan
from topics.cli.bench import processes
from topics.cli.bench.processes import MissingPeer

BOUNDS_MS = {1: (0.45, 0.25), 100: (3.0, 2.2)}  # p50, by watchers: must and aim
P99_OVER_P50 = 10
PEERS: Mapping[str, tuple[str, Callable[[Path], AbstractContextManager[tuple[int, int]]]]] = {
    "Redis XREAD BLOCK": ("redis", partial(processes.redis, fsync="everysec")),
    "NATS JetStream push": ("nats", processes.nats),
}
CROWD = 1000
BESIDE_STUCK = {"p50": 1.3, "p99": 2.0}  # with one who does not read, over without
FILLED = 40_000  # records that he does not read: more than the kernel keeps for a connection
TOP_P99_MS, TOP_OF_LOWEST, LONGEST_S = 25.0, 0.25, 10.0
PRESSED_S = 8.0
TOPICS, WATCHERS = 10_000, 1000
IDLE_S = 20.0
_GENERATOR = "ci.benchmarks.watchers"


def figures(setting: Setting) -> Iterator[Figure]:
    sides: dict[str, Callable[[Path], Turn | str]] = {
        f"{watchers}": _watched(setting, watchers=watchers) for watchers in BOUNDS_MS
    }
    sides |= {
        f"sockets {watchers}": _watched(setting, watchers=watchers, side="sockets") for watchers in BOUNDS_MS
    }
    for peer in PEERS:
        sides |= {f"{peer} {watchers}": _peer_watched(setting, peer, watchers) for watchers in BOUNDS_MS}
    turns = take_turns(setting, sides)
    for watchers, (must, aim) in BOUNDS_MS.items():
        of = [turn for turn in turns[f"{watchers}"] if isinstance(turn, Turn)]
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
        sockets = [turn for turn in turns[f"sockets {watchers}"] if isinstance(turn, Turn)]
        cpu = statistics.median(turn.cpu_us for turn in sockets)
        yield median_figure(
            "  by WebSocket / by SSE, p50", ratios(sockets, of, lambda turn: turn.p50_us), "×",
            beside=f"{cpu:.0f} µs CPU a delivery",
        )  # fmt: skip
        for peer in PEERS:
            yield _beside_peer(peer, of, turns[f"{peer} {watchers}"])


def _beside_peer(peer: str, ours: Sequence[Turn], theirs: Sequence[Turn | str]) -> Figure:
    there = [turn for turn in theirs if isinstance(turn, Turn)]
    if len(there) < len(theirs):
        return Figure(f"  topics / {peer}, p50", 0.0, "×", beside=f"skipped: {theirs[0]}")
    p50, cpu = (statistics.median(getattr(turn, name) for turn in there) for name in ("p50_us", "cpu_us"))
    beside = f"its p50 {p50 / 1000:.2f} ms; {cpu:.0f} µs CPU a delivery"
    return median_figure(
        f"  topics / {peer}, p50", ratios(ours, there, lambda turn: turn.p50_us), "×", beside=beside
    )


def beside_stuck(setting: Setting) -> Iterator[Figure]:
    """A crowd at the tail, with and without one more watcher who asked for all there is and does not read it."""
    crowd, filled = setting.count(CROWD, 5), setting.count(FILLED, 200)
    with setting.directory() as path, serve("topics", path / "data", "disk") as server:
        plan = WatchPlan(
            port=server.port, pid=server.pid, watchers=crowd, filled=filled, pairs=setting.runs, warm=3,
            writes=setting.count(20, 3),
        )  # fmt: skip
        pairs = load(plan, Pairs, _GENERATOR)
    for number, (part, must) in enumerate(BESIDE_STUCK.items()):
        alone, beside = ([one[number] / 1000 for one in side] for side in (pairs.alone, pairs.beside))
        made_of = f"{statistics.median(beside):.1f} and {statistics.median(alone):.1f} ms, {crowd} watchers"
        yield median_figure(
            f"B7b {part} beside one who does not read / without",
            [with_him / without for with_him, without in zip(beside, alone, strict=True)],
            "×", must=must, less=True, beside=made_of,
        )  # fmt: skip


def under_pressure(setting: Setting) -> Iterator[Figure]:
    """More to tell than time, in bands: what of that the top sees, and how long anybody from 0 on waits."""
    found: list[Pressed] = []
    for _ in range(min(setting.runs, 3)):
        with setting.directory() as path, topics_serve(path / "data") as server:
            plan = pressed_plan(
                server.port,
                server.pid,
                size=setting.count(20, 1),
                seconds=0.5 if setting.quick else PRESSED_S,
            )
            found.append(load(plan, Pressed, "ci.benchmarks.pressed_watchers"))
    tops, lowest = ([one.bands[name] for one in found] for name in ("top", "below"))
    pressure, busy = max(one.pressure for one in found), statistics.median(one.server_busy for one in found)
    yield median_figure(
        "B7c p99 of the top band under pressure", [top.p99_ms for top in tops], "ms", must=TOP_P99_MS, less=True,
        beside=f"pressure {pressure:.2f}, the server had {busy:.2f} of a core",
    )  # fmt: skip
    yield median_figure(
        "B7c p99 of the top band / of the lowest",
        [top.p99_ms / low.p99_ms for top, low in zip(tops, lowest, strict=True)],
        "×", must=TOP_OF_LOWEST, less=True, beside=f"{statistics.median(low.p99_ms for low in lowest):.0f} ms there",
    )  # fmt: skip
    yield median_figure(
        "B7c longest at priority 0", [one.bands["low"].longest_ms / 1000 for one in found], "s", must=LONGEST_S,
        less=True, beside=f"{sum(top.deliveries for top in tops)} deliveries in the top band; none was lost",
    )  # fmt: skip


def pressed_plan(port: int, pid: int, *, size: int, seconds: float) -> PressedPlan:
    """Few topics that matter, written at a pace, and many that do not, as fast as it goes."""
    bands = [
        Band(name="top", priority=800, topics=4, watchers=5, every_s=0.02),
        Band(name="high", priority=600, topics=size, watchers=8),
        Band(name="low", priority=0, topics=3 * size, watchers=8),
        Band(name="below", priority=-10, topics=size, watchers=8),
    ]
    return PressedPlan(port=port, pid=pid, bands=bands, connections=32, seconds=seconds)


def _watched(setting: Setting, *, watchers: int, side: str = "topics") -> Callable[[Path], Turn]:
    def turn(path: Path) -> Turn:
        with serve("topics", path / "data", "disk") as server:
            return _turn(setting, port=server.port, pid=server.pid, watchers=watchers, side=side)

    return turn


def _peer_watched(setting: Setting, peer: str, watchers: int) -> Callable[[Path], Turn | str]:
    """A turn, or why there is none."""
    side, server = PEERS[peer]

    def turn(path: Path) -> Turn | str:
        try:
            with server(path / "peer") as (port, pid):
                return _turn(setting, port=port, pid=pid, watchers=watchers, side=side)
        except MissingPeer as missing:
            return str(missing)

    return turn


def _turn(setting: Setting, *, port: int, pid: int, watchers: int, side: str = "topics") -> Turn:
    writes = setting.count(60 if watchers > 1 else 200, 3)
    plan = WatchPlan(port=port, pid=pid, watchers=watchers, side=side, warm=3, writes=writes)
    return turn_of(load(plan, Result, _GENERATOR), 1)


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
                found.append(load(plan, Idle, _GENERATOR))
    beside = f"{watchers} watchers of {count // watchers} topics each, over {count} topics, nothing written"
    yield median_figure(
        "B12 CPU of idle watchers, of a core", [one.cpu_s / one.seconds * 100 for one in found], "%", must=1.0,
        less=True, beside=beside,
    )  # fmt: skip
    yield median_figure(
        "B12 RssAnon a connected watcher", [one.bytes / watchers / 1024 for one in found], "KiB", must=30.0, less=True,
        beside="session, stream and connection",
    )  # fmt: skip
