"""What was measured, as a table on the terminal, as JSON, and as one HTML page that asks for nothing else."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import attrs
import click
import msgspec

from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.cli.bench.rounds import QUANTILES, Measured
from topics.cli.bench.workloads import BenchWorkload
from topics.cli.io.terminal import print_table

_NOTHING: Final = "–"
_EXPORTED: Final = "export { uPlot as default };"
_LESS: Final = "\\u003c"  # in JSON; in a script, a "</script>" or a "<!--" of somebody's would be one
_COLUMNS: Final = 4  # of figures, of which a terminal has room beside the names
LEGEND: Final = (
    f"Rates: thousands of records a second, of {PAYLOAD_BYTES} B each; jobs are claimed and acked. "
    "Watchers: p50 / p99 in µs, from before a write to its arrival. "
    "Synced: whether what is acknowledged is on the disk. "
    f"≥: the load generator had no CPU left, so the system may do more. {_NOTHING}: it has no such thing, or not here."
)


@attrs.frozen
class BenchRun:
    """How it was measured."""

    facts: dict[str, str]
    rounds: int
    seconds: float
    seed: int
    measured: Measured


def print_report(run: BenchRun) -> None:
    measured = run.measured
    versions = {name.partition(",")[0]: version for name, version in measured.versions.items() if version}
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    for fact, value in (run.facts | {"peers": peers or "none"}).items():
        click.echo(f"{fact + ':':<13}{value}")
    click.echo()
    for start in range(0, len(measured.workloads), _COLUMNS):
        workloads = measured.workloads[start : start + _COLUMNS]
        titles = [one.title for one in workloads]
        rows = [
            (
                system.name,
                system.synced,
                *(_shown(measured, system.name, one) for one in workloads),
            )
            for system in measured.systems
        ]
        print_table(("system", "synced?", *titles), rows, numbers=titles)
        click.echo()
    click.echo(LEGEND)
    libraries = {system.name for system in measured.systems if system.is_library}
    busiest = max(
        (cell.busy for (name, _), cell in measured.cells.items() if name not in libraries), default=0.0
    )
    click.echo(
        f"Medians of {run.rounds} rounds of {run.seconds:g} s, by turns; seed {run.seed}; "
        f"the load generator took at most {busiest:.0%} of a core for a server."
    )
    for name, why in measured.missing.items():
        click.echo(f"not measured: {name}: {why}")
    for note in measured.notes:
        click.echo(f"failed: {note}")


def run_fields(run: BenchRun) -> dict[str, Any]:
    """The same for machines: all rounds, and latencies at `quantiles`."""
    measured = run.measured
    return {
        "facts": run.facts,
        "rounds": run.rounds,
        "seconds": run.seconds,
        "seed": run.seed,
        "payload_bytes": PAYLOAD_BYTES,
        "quantiles": QUANTILES,
        "workloads": [
            {"key": one.key, "title": one.title, "is_delivery": one.is_delivery} for one in measured.workloads
        ],
        "systems": [
            {
                "name": system.name,
                "version": measured.versions[system.name],
                "synced": system.synced,
                "cells": {
                    workload.key: attrs.asdict(cell)
                    for workload in measured.workloads
                    if (cell := measured.cells.get((system.name, workload.key))) is not None
                },
            }
            for system in measured.systems
        ],
        "missing": measured.missing,
        "failed": measured.notes,
    }


def page_of(run: BenchRun) -> bytes:
    """With uPlot, as the dashboard has it, and the figures in it."""
    package = resources.files("topics")
    plot = package / "server" / "app" / "dashboard" / "uplot"
    script = (plot / "uPlot.esm.js").read_text(encoding="utf-8")
    assert script.count(_EXPORTED) == 1
    told = msgspec.json.encode(run_fields(run) | {"legend": LEGEND}).decode()
    page = (package / "cli" / "bench" / "report.html").read_text(encoding="utf-8")
    for place, text in (
        ("/*STYLE*/", (plot / "uPlot.min.css").read_text(encoding="utf-8")),
        ("/*UPLOT*/", script.replace(_EXPORTED, "")),
        ("/*TOLD*/", told.replace("<", _LESS)),
    ):
        assert page.count(place) == 1
        page = page.replace(place, text)
    return page.encode()


def _shown(measured: Measured, system: str, workload: BenchWorkload) -> str:
    cell = measured.cells.get((system, workload.key))
    if cell is None:
        return _NOTHING
    if workload.is_delivery:
        return f"{cell.p50_us:.0f} / {cell.p99_us:.0f}"
    return f"{'≥ ' if cell.is_bounded else ''}{number(cell.rate / 1000)}"


def number(value: float) -> str:
    """Three digits that count, no exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
