"""`simulate`: the deterministic simulation, whose every run is repeated by its seed."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from topics.cli.core.failure import Failed
from topics.cli.core.invocation import json_option
from topics.cli.io.terminal import json_line
from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from topics.simulation.world import World, WorldReport

DRAWN_BELOW: Final = 1 << 32
COUNTS: Final = {  # of a report, in words
    "opened": "starts",
    "answers": "answers",
    "pages": "pages read",
    "crashed in a call": "crashes inside a disk call",
    "power losses": "power cuts",
    "process deaths": "kills",
    "faults": "disk faults",
}


@click.command()
@click.option("--seed", type=click.IntRange(0), metavar="N", help="The first run's; drawn unless given.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="So many seeds, from the first on.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=6,
    show_default=True,
    metavar="N",
    help="Starts and crashes of a run.",
)
@click.option("--served", is_flag=True, help="The whole server, with clients on connections in memory.")
@click.option("--queues", is_flag=True, help="With workers that claim, die and answer late.")
@json_option
def simulate(
    seed: int | None, runs: int, rounds: int, served: bool, queues: bool, as_json: bool
) -> None:  # fmt: skip
    """Run the store in a simulation, and hold every promise against it.

    Disk, clock, chance and clients are simulated: writes, reads, crashes, power cuts and disk faults in an order that
    the seed gives. Nothing is written anywhere. Exit code 1 if a promise was broken: the same seed and options break it
    again, step by step.
    """
    first = secrets.randbelow(DRAWN_BELOW) if seed is None else seed
    options = f"--rounds {rounds}" + " --served" * served + " --queues" * queues
    with Needs("topics simulate", "server"):
        make = world_maker(rounds, served=served, queues=queues)
    for report, took_s in run_seeds(range(first, first + runs), make, options):
        if as_json:
            told = {
                "seed": report.seed,
                "trace": report.trace,
                "took_s": round(took_s, 3),
                "counts": report.counts,
            }
            sys.stdout.buffer.write(json_line(told))
            sys.stdout.flush()
        else:
            click.echo(f"seed {report.seed}: every promise kept in {took_s:.1f} s; {summary(report)}")


def world_maker(rounds: int, *, served: bool, queues: bool) -> Callable[[int], World]:
    """From a seed to its world."""
    from topics.simulation.queues.job_workload import JobWorkload
    from topics.simulation.workload import Workload

    asking = JobWorkload if queues else Workload
    if served:
        from topics.simulation.served import ServedWorld

        return lambda seed: ServedWorld(seed, rounds=rounds, asking=asking)
    from topics.simulation.world import World

    return lambda seed: World(seed, rounds=rounds, asking=asking)


def run_seeds(
    seeds: Iterable[int], make: Callable[[int], World], options: str
) -> Iterable[tuple[WorldReport, float]]:
    """Each run's report, and the seconds it took. Raises `Failed` with the first broken promise."""
    for seed in seeds:
        began = time.monotonic()
        try:
            report = make(seed).run()
        except AssertionError as broken:
            click.echo("\n".join(getattr(broken, "__notes__", ())), err=True)  # its last steps
            raise Failed(
                f"seed {seed}: {str(broken) or 'an assertion failed'}; the same again:"
                f" topics simulate --seed {seed} {options}"
            ) from broken
        yield report, time.monotonic() - began


def summary(report: WorldReport) -> str:
    counts = [f"{report.counts[name]} {words}" for name, words in COUNTS.items() if report.counts.get(name)]
    return f"{', '.join(counts)}; trace {report.trace[:16]}"
