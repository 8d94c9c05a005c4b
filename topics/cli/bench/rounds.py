"""Systems under workloads by turns, so that what else the machine does falls on all of them alike; and the medians."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs

from topics.cli.bench.connection import Unexpected
from topics.cli.bench.processes import MissingPeer
from topics.cli.bench.systems import Payloads, Running, System
from topics.cli.bench.workloads import BenchWorkload, Sample

BUSY_MAX: Final = 0.7  # of a core; above it a rate says what the generator can do (performance 3)
QUANTILES: Final = (0.01, 0.05, *(step / 10 for step in range(1, 10)), 0.95, 0.99, 0.999)


@attrs.frozen(kw_only=True)
class Cell:
    """Of one system under one workload: medians over the rounds, and the rates of each.

    `quantiles_us`: of all latencies at QUANTILES. `cpu_us`: of the system's process a record, None if nobody knows.
    `is_bounded`: the generator had no CPU left, so the system, a process of its own, may do more.
    """

    rate: float
    rates: list[float]
    p50_us: float
    p99_us: float
    quantiles_us: list[float]
    cpu_us: float | None
    busy: float
    is_bounded: bool


@attrs.frozen
class Measured:
    """`systems`: those that were there, with their versions. `cells`: by system and key of the workload.
    `missing`: why a system is not among them. `notes`: what went wrong.
    """

    systems: Sequence[System]
    versions: dict[str, str]
    workloads: Sequence[BenchWorkload]
    cells: dict[tuple[str, str], Cell]
    missing: dict[str, str]
    notes: list[str]


def measure(
    systems: Sequence[System], workloads: Sequence[BenchWorkload], *, rounds: int, seconds: float, payloads: Payloads,
    home: Path, tell: Callable[[str], None],
) -> Measured:  # fmt: skip
    """All are started, loaded by turns, and ended."""
    running: dict[str, Running] = {}
    missing: dict[str, str] = {}
    samples: dict[tuple[str, str], list[Sample]] = {}
    notes: dict[tuple[str, str], str] = {}
    with ExitStack() as stack:
        for number, system in enumerate(systems):
            tell(f"starting {system.name}")
            try:
                running[system.name] = stack.enter_context(system.start(home / str(number), payloads))
            except MissingPeer as why:
                missing[system.name] = str(why)
        there = [system for system in systems if system.name in running]
        gc.freeze()
        for number in range(rounds):
            for workload in workloads:
                tell(f"round {number + 1} of {rounds}: {workload.title}")
                for system in there if number % 2 == 0 else reversed(there):
                    at = system.name, workload.key
                    if at in notes or not workload.needs <= system.can:
                        continue
                    try:
                        samples.setdefault(at, []).append(workload.run(running[system.name], seconds))
                    except (Unexpected, OSError) as why:
                        notes[at] = f"{system.name}, {workload.title}: {why}"
    cells = {
        at: cell_of(of, is_library=system.is_library)
        for system in there
        for workload in workloads
        for at in [(system.name, workload.key)]
        if at not in notes and (of := samples.get(at))
    }
    versions = {name: one.version for name, one in running.items()}
    return Measured(there, versions, workloads, cells, missing, list(notes.values()))


def cell_of(samples: Sequence[Sample], *, is_library: bool) -> Cell:
    rates = [sample.records / sample.seconds for sample in samples]
    cpu = [sample.cpu_s / max(sample.records, 1) * 1e6 for sample in samples if sample.cpu_s is not None]
    pooled = sorted(latency for sample in samples for latency in sample.latencies)
    busy = statistics.median(sample.busy for sample in samples)
    return Cell(
        rate=statistics.median(rates),
        rates=rates,
        p50_us=statistics.median(quantile(sorted(sample.latencies), 0.5) for sample in samples) * 1e6,
        p99_us=statistics.median(quantile(sorted(sample.latencies), 0.99) for sample in samples) * 1e6,
        quantiles_us=[quantile(pooled, part) * 1e6 for part in QUANTILES],
        cpu_us=statistics.median(cpu) if cpu else None,
        busy=busy,
        is_bounded=busy > BUSY_MAX and not is_library,
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
