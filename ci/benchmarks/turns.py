"""Turns of loaded servers: who is loaded with what, in which order, and whether the generator had air left."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ci.benchmarks.figure import Figure, Setting, median_figure
from ci.benchmarks.load import DISTINCT_BODIES, Plan, Result, requests_of
from ci.benchmarks.served import canned, load, serve

K = TypeVar("K")
T = TypeVar("T")
BUSY_MAX = 0.7  # of a core; above it the rate says what the generator can do (performance 3)


@dataclass(frozen=True)
class Side:
    """One server under one load. `kind`: topics, floor or quart. `topics`: how many are written to by turns.

    Before the clock starts come `fill` writes of 100, then `warm` requests.
    """

    kind: str
    durability: str
    load: str
    batch: int
    connections: int
    warm: int
    fill: int = 0
    topics: int = 1
    bodies: int = DISTINCT_BODIES


@dataclass(frozen=True)
class Turn:
    """One side's part of a turn."""

    rate: float  # requests a second
    batch: int
    cpu_us: float  # of the server's process, a request
    p50_us: float
    p99_us: float
    busy: float

    @property
    def records_rate(self) -> float:
        return self.rate * self.batch

    @property
    def record_cpu_us(self) -> float:
        return self.cpu_us / self.batch


def turn_of(result: Result, batch: int) -> Turn:
    return Turn(
        rate=result.requests / result.seconds,
        batch=batch,
        cpu_us=result.server_cpu_s / max(result.requests, 1) * 1e6,
        p50_us=result.p50_us,
        p99_us=result.p99_us,
        busy=result.busy,
    )


def take_turns(setting: Setting, sides: Mapping[K, Callable[[Path], T]]) -> dict[K, list[T]]:
    """A B C, then C B A, and so on, each in a new directory."""
    turns: dict[K, list[T]] = {name: [] for name in sides}
    for run in range(setting.runs):
        for name in list(sides) if run % 2 == 0 else reversed(list(sides)):
            with setting.directory() as path:
                turns[name].append(sides[name](path))
    return turns


def loaded(setting: Setting, side: Side, **settings: int) -> Callable[[Path], Turn]:
    """A turn of a server that is started for it, with these settings."""

    def turn(path: Path) -> Turn:
        with serve(side.kind, path / "data", side.durability, topics=side.topics, **settings) as server:
            plan = plan_of(setting, side, port=server.port, pid=server.pid)
            return turn_of(load(plan, Result), side.batch)

    return turn


def plan_of(setting: Setting, side: Side, *, port: int, pid: int) -> Plan:
    return Plan(
        port=port,
        pid=pid,
        kind=side.load,
        batch=side.batch,
        connections=side.connections,
        warm=setting.count(side.warm, 20),
        warm_s=0.5,
        seconds=0.05 if setting.quick else 1.0,
        fill=min(side.fill, 2) if setting.quick else side.fill,
        topics=side.topics,
        bodies=side.bodies,
    )


def ratios(
    ours: Sequence[Turn], theirs: Sequence[Turn], of: Callable[[Turn], float] = lambda turn: turn.rate
) -> list[float]:
    return [of(our) / of(their) for our, their in zip(ours, theirs, strict=True)]


def rate_figure(figure: Figure, *sides: Sequence[Turn]) -> Figure:
    """A figure made of rates; void if the generator had no CPU left when it loaded one of the sides."""
    busy = max(statistics.median(turn.busy for turn in turns) for turns in sides)
    return replace(figure, void=f"generator {busy:.0%} busy" if busy > BUSY_MAX else "")


def made_of(name: str, turns: Sequence[Turn], *, records: bool) -> Figure:
    """What a ratio is made of: the rate, and the rest beside it."""
    p50, p99, busy = (
        statistics.median(getattr(t, field) for t in turns) for field in ("p50_us", "p99_us", "busy")
    )
    cpu = statistics.median(turn.record_cpu_us if records else turn.cpu_us for turn in turns)
    digits, unit = (2, "record") if records else (1, "request")
    waits = f"a request p50 {p50:.0f} µs, p99 {p99:.0f} µs"
    beside = f"{waits}; {cpu:.{digits}f} µs CPU a {unit}; generator {busy:.0%} busy"
    rates = [turn.records_rate if records else turn.rate for turn in turns]
    return median_figure(name, [rate / 1000 for rate in rates], "k/s", beside=beside)


def ceiling(setting: Setting, side: Side, *, answer_bytes: int = 200) -> Figure:
    """The generator against a server that answers the same bytes to everything."""
    plan = plan_of(setting, side, port=0, pid=0)
    plan.fill = 0
    size = len(requests_of(plan)[0])
    with (
        setting.directory() as path,
        canned(path / "port", request_bytes=size, answer_bytes=answer_bytes) as server,
    ):
        plan.port, plan.pid, plan.answer_bytes = server.port, server.pid, answer_bytes
        result = load(plan, Result)
    rate = result.requests / result.seconds
    beside = f"generator {result.busy:.0%} busy: {result.busy / rate * 1e6:.1f} µs of its CPU a request of {size} B"
    return Figure("  the generator's ceiling, canned answers", rate / 1000, "k/s", beside=beside)
