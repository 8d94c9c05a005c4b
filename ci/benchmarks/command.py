"""The command: which figures, how often, where; then the table, and JSON if asked."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ci.benchmarks import (
    cold,
    commit,
    cpu,
    delivery,
    floors,
    growth,
    jobs,
    kv_merge,
    memory,
    paging,
    queue_rates,
    recovery,
    serving,
    spark,
    startup,
    weaver_rebuild,
    weaver_sync,
)
from ci.benchmarks.figure import FLOOR_CPU_US, Figure, Setting
from topics.cli.bench import machine

ROOT = Path(__file__).resolve().parents[2]

GROUPS: Mapping[str, Callable[[Setting], Iterable[Figure]]] = {
    "floors": floors.figures,
    "cpu": cpu.figures,
    "b14": startup.figures,
    "b10": recovery.figures,
    "b11": memory.figures,
    "b12": delivery.idle,
    "b13": growth.figures,
    "b9": commit.figures,
    "b9q": queue_rates.figures,
    "b1": serving.batches,
    "b2": serving.synced_batches,
    "b3": serving.singles,
    "b4": serving.synced_single,
    "b5": serving.synced_singles,
    "b6": paging.figures,
    "b7": delivery.figures,
    "b7b": delivery.beside_stuck,
    "b7c": delivery.under_pressure,
    "b8": jobs.served,
    "b8b": jobs.in_process,
    "b8c": jobs.handed_out,
    "b8d": memory.of_jobs,
    "cold": cold.figures,
    "kv_merge": kv_merge.figures,
    "spark": spark.figures,
    "weaver_rebuild": weaver_rebuild.figures,
    "weaver_sync": weaver_sync.figures,
}
# The scale is measured right before, for it changes by the minute. No bound of B7 is moved by it: it is shown.
SCALED = ("b1", "b3", "b6", "b7", "b8", "b8b")


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 if a figure misses its must; a `--quick` call judges none."""
    options = _parse(arguments)
    given = options.dir or _scratch_parent()
    with tempfile.TemporaryDirectory(dir=given, prefix=".topics-bench-") as name:
        setting = Setting(Path(name), runs=options.runs, quick=options.quick)
        facts = machine.describe(setting.scratch)
        for fact, value in facts.items():
            print(f"{fact + ':':<13}{value}")
        figures: list[Figure] = []
        for group in options.names:
            scale = 1.0
            if group in SCALED and not setting.quick:
                scale = serving.scale(setting)
                print(
                    f"\nscale {scale:.2f}: the floor server takes {scale * FLOOR_CPU_US:.1f} µs for a single write"
                )
            print(f"\n{_HEADING}", flush=True)
            for measured in GROUPS[group](setting):
                figure = replace(measured, must=None, aim=None) if setting.quick else measured.scaled(scale)
                figures.append(figure)
                print(_row(figure), flush=True)
    missed = [figure.name for figure in figures if figure.verdict in ("MISS", "VOID")]
    print(f"\n{len(figures)} figures, {len(missed)} missed{': ' + ', '.join(missed) if missed else ''}")
    if options.json is not None:
        _write_json(options.json, facts, setting, figures)
    return 1 if missed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ci/bench", description="Measure the figures of docs/performance.md."
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"which: {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--runs", type=int, default=7, help="turns of a comparison (default 7)")
    parser.add_argument("--quick", action="store_true", help="a smoke: little work, values mean nothing")
    parser.add_argument("--dir", type=Path, help="where data directories go, on the file system to measure")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too; `-` prints them")
    options = parser.parse_args(arguments)
    options.names = [name.lower() for name in options.names] or list(GROUPS)
    unknown = sorted(set(options.names) - set(GROUPS))
    if unknown:
        parser.error(f"no figure is called {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if options.runs < 1:
        parser.error("--runs is at least 1")
    if options.dir is not None and not options.dir.is_dir():
        parser.error(f"--dir {options.dir} is not a directory")
    return options


def _scratch_parent() -> Path:
    """The usual place for scratch if it is on the checkout's file system, else the checkout."""
    usual = Path(tempfile.gettempdir())
    return usual if usual.stat().st_dev == ROOT.stat().st_dev else ROOT


_HEADING = f"{'figure':<46}{'value':>12}  {'must':>9} {'aim':>9}  {'':<14}beside"


def _row(figure: Figure) -> str:
    value = f"{_number(figure.value)} {figure.unit}"
    must = "" if figure.must is None else f"{'≤' if figure.less else '≥'} {_number(figure.must)}"
    beside = f"{figure.beside}; {figure.void}" if figure.void else figure.beside
    aim = "" if figure.aim is None else f"{'≤' if figure.less else '≥'} {_number(figure.aim)}"
    return f"{figure.name:<46}{value:>12}  {must:>9} {aim:>9}  {figure.verdict:<14}{beside}".rstrip()


def _number(value: float) -> str:
    """Three digits that count, no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _write_json(where: str, facts: Mapping[str, str], setting: Setting, figures: Sequence[Figure]) -> None:
    report = {"setting": {"runs": setting.runs, "quick": setting.quick, **facts}}
    encoded = json.dumps(report | {"figures": [figure.fields() for figure in figures]}, indent=1)
    if where == "-":
        sys.stdout.write(encoded + "\n")
    else:
        Path(where).write_text(encoded + "\n", encoding="utf-8")
