"""B1 to B5: writes over HTTP, beside the floor server and beside the same write through Quart.

B1 is judged by the server's CPU a record, B3 by its CPU a request, so they hold on a busy machine too; B2, B4, B5 and
the comparison with Quart by ratios within a turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ci.benchmarks.figure import FLOOR_CPU_US, Figure, Setting, median_figure
from ci.benchmarks.payload import BATCH
from ci.benchmarks.turns import Side, Turn, ceiling, loaded, made_of, rate_figure, ratios, take_turns
from topics.cli.bench.payload import PAYLOAD_BYTES

BATCHED = Side("topics", "disk", "write", BATCH, 16, warm=1200)
SINGLE = Side("topics", "disk", "write", 1, 16, warm=4000, fill=1000)
SHAPES = {"write": "plain", "rich": "with tag, node, meta"}
BATCH_BOUNDS = {"write": (2.2, 1.3), "rich": (3.0, 1.9)}


def batches(setting: Setting) -> Iterator[Figure]:
    """B1."""
    turns = _turns(
        setting,
        {
            "write": BATCHED,
            "rich": replace(BATCHED, load="rich"),
            "floor": replace(BATCHED, kind="floor"),
        },
    )
    beside = f"{PAYLOAD_BYTES} B, batch {BATCH}, 16 connections, disk"
    for shape, title in SHAPES.items():
        must, aim = BATCH_BOUNDS[shape]
        yield median_figure(
            f"B1 CPU a record, by 100, {title}", [turn.record_cpu_us for turn in turns[shape]], "µs",
            must=must, aim=aim, less=True, beside=beside, cpu=True,
        )  # fmt: skip
        yield made_of(f"  topics, {title}", turns[shape], records=True)
    yield made_of("  floor server, plain", turns["floor"], records=True)
    yield ceiling(setting, BATCHED)


def synced_batches(setting: Setting) -> Iterator[Figure]:
    """B2: the rate with `fsync` against the rate with `disk`, in pairs."""
    sides = {
        f"{shape} {durability}": replace(BATCHED, load=shape, durability=durability)
        for shape in SHAPES
        for durability in ("disk", "fsync")
    }
    turns = _turns(setting, sides)
    for shape, title in SHAPES.items():
        synced, unsynced = turns[f"{shape} fsync"], turns[f"{shape} disk"]
        yield _ratio(
            f"B2 fsync / disk, {title}", synced, unsynced, must=0.7, aim=0.9,
            beside=f"{PAYLOAD_BYTES} B, batch {BATCH}, 16 connections",
        )  # fmt: skip
        yield made_of(f"  topics, fsync, {title}", synced, records=True)
        yield made_of(f"  topics, disk, {title}", unsynced, records=True)


def singles(setting: Setting) -> Iterator[Figure]:
    """B3."""
    turns = _turns(
        setting,
        {
            "topics": SINGLE,
            "floor": replace(SINGLE, kind="floor"),
            "quart": replace(SINGLE, kind="quart", warm=300),
        },
    )
    beside = f"{PAYLOAD_BYTES} B, one record, 16 connections, disk"
    yield median_figure(
        "B3 CPU a write of one record", [turn.cpu_us for turn in turns["topics"]], "µs",
        must=55.0, aim=35.0, less=True, beside=beside, cpu=True,
    )  # fmt: skip
    yield _ratio("B3 topics / Quart", turns["topics"], turns["quart"], must=8.0, beside=beside)
    by_cpu = ratios(turns["quart"], turns["topics"], lambda turn: turn.cpu_us)
    yield median_figure("  Quart / topics by CPU", by_cpu, "x", beside=beside)
    for name, title in (("topics", "topics"), ("floor", "floor server"), ("quart", "Quart on Hypercorn")):
        yield made_of(f"  {title}", turns[name], records=False)
    yield ceiling(setting, SINGLE)


def scale(setting: Setting) -> float:
    """How much slower this machine is just now than the one that bounds of CPU are for."""
    turns = take_turns(
        replace(setting, runs=min(setting.runs, 3)), {"floor": loaded(setting, replace(SINGLE, kind="floor"))}
    )
    return statistics.median(turn.cpu_us for turn in turns["floor"]) / FLOOR_CPU_US


def synced_single(setting: Setting) -> Iterator[Figure]:
    """B4: how long one client waits."""
    side = replace(SINGLE, durability="fsync", connections=1, warm=500)
    turns = _turns(setting, {"topics": side, "floor": replace(side, kind="floor")})
    samples = ratios(turns["topics"], turns["floor"], lambda turn: turn.p50_us)
    yield median_figure(
        "B4 p50, topics / floor server", samples, "x", must=1.6, aim=1.3, less=True,
        beside=f"{PAYLOAD_BYTES} B, one record, 1 connection, fsync",
    )  # fmt: skip
    yield made_of("  topics", turns["topics"], records=False)
    yield made_of("  floor server", turns["floor"], records=False)


def synced_singles(setting: Setting) -> Iterator[Figure]:
    """B5: what group commit makes of many clients."""
    for connections in (16, 64):
        side = replace(SINGLE, durability="fsync", connections=connections, warm=2000)
        turns = _turns(setting, {"topics": side, "floor": replace(side, kind="floor")})
        yield _ratio(
            f"B5 {connections} connections, topics / floor", turns["topics"], turns["floor"],
            must=0.4, aim=0.6, beside=f"{PAYLOAD_BYTES} B, one record, fsync",
        )  # fmt: skip
        yield made_of("  topics", turns["topics"], records=False)
        yield made_of("  floor server", turns["floor"], records=False)
        yield ceiling(setting, side)


def _turns(setting: Setting, sides: dict[str, Side]) -> dict[str, list[Turn]]:
    return take_turns(setting, {name: loaded(setting, side) for name, side in sides.items()})


def _ratio(
    name: str, ours: Sequence[Turn], theirs: Sequence[Turn], *, must: float, aim: float | None = None, beside: str
) -> Figure:  # fmt: skip
    figure = median_figure(name, ratios(ours, theirs), "x", must=must, aim=aim, beside=beside)
    return rate_figure(figure, ours, theirs)
