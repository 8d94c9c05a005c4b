"""`topics bench`: which systems, under which workloads, for how long; then the table, JSON or the page."""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import Invocation, json_option, pass_invocation, remote_options
from topics.cli.io.paths import PathName, cannot_write, check_overwrites, force_option
from topics.cli.io.terminal import is_terminal, json_line
from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from topics.cli.bench.systems import System

ROUNDS_MAX: Final = 50
SECONDS_MAX: Final = 60.0
PAYLOADS: Final = 200  # different ones


@click.command()
@click.option(
    "--vs", is_flag=True, help="Beside what else is installed: Redis, NATS, RabbitMQ, beanstalkd, SQLite …"
)
@click.option("--only", metavar="NAME,…", help="Some of the workloads, by their names: see above.")
@click.option(
    "--rounds", type=click.IntRange(1, ROUNDS_MAX), default=3, show_default=True, help="Turns of each."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.001, SECONDS_MAX),
    default=0.3,
    show_default=True,
    help="Of each turn.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same payloads."
)
@click.option(
    "--dir", "folder", type=PathName(exists=True, file_okay=False), help="A directory on the disk to measure."
)
@click.option(
    "--html",
    "page",
    type=PathName(dir_okay=False),
    metavar="FILE",
    help="Write a page with plots there, too.",
)
@force_option
@json_option
@remote_options
@pass_invocation
def bench(
    invocation: Invocation, vs: bool, only: str | None, rounds: int, seconds: float, seed: int, folder: Path | None,
    page: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Measure topics under reproducible load: writes, reads, jobs, delivery, and others beside it.

    It starts a server of its own in a temporary directory, or loads the one that --url names, in topics of its own that
    are removed afterwards. What --vs finds is started likewise. Every figure is a median of rounds in which all take
    turns, so compare them with each other, not with those of another run.

    Workloads: write, write-16, write-batch, read, job, job-batch, deliver, fan-out.
    """
    with Needs("topics bench", "server"):
        import topics.server.main  # noqa: F401 -- that it can be started
    from topics.cli.bench.machine import describe
    from topics.cli.bench.payload import payloads
    from topics.cli.bench.report import BenchRun, page_of, print_report, run_fields
    from topics.cli.bench.rounds import measure
    from topics.cli.bench.workloads import WORKLOADS

    keys = [workload.key for workload in WORKLOADS]
    wanted = keys if only is None else [key.strip() for key in only.split(",")]
    if unknown := sorted(set(wanted) - set(keys)):
        raise Failed(f"--only: there is no workload {unknown[0]!r}; there are {', '.join(keys)}", code=USAGE)
    if isnan(seconds):  # which is in any range
        raise Failed("--seconds takes a number of seconds, not nan", code=USAGE)
    if page is not None:
        check_overwrites("--html", page, force=force)
        _check_can_write(page)
    with ExitStack() as stack:
        home = stack.enter_context(_directory(folder))
        systems = stack.enter_context(_systems(invocation, vs=vs))
        facts = describe(home)
        measured = measure(
            systems, [workload for workload in WORKLOADS if workload.key in wanted], rounds=rounds,
            seconds=seconds, payloads=payloads(PAYLOADS, seed=seed), home=home, tell=_tell,
        )  # fmt: skip
    run = BenchRun(facts, rounds, seconds, seed, measured)
    if page is not None:
        try:
            page.write_bytes(page_of(run))
        except OSError as error:
            raise cannot_write("--html", page, error) from error
    if as_json:
        sys.stdout.buffer.write(json_line(run_fields(run)))
        sys.stdout.flush()
    else:
        print_report(run)
    if measured.notes:
        raise Failed(measured.notes[0], quiet=not as_json)


@contextmanager
def _systems(invocation: Invocation, *, vs: bool) -> Iterator[Sequence[System]]:
    from topics.cli.bench.systems import at_url, ours, peers

    others = peers() if vs else []
    if "data" in invocation.flags:
        raise Failed("bench makes its own data: name a disk with --dir, or a server with --url", code=USAGE)
    url = invocation.flags.get("url")  # by flag alone: nobody loads a server that TOPICS_URL happens to name
    if url is None:
        yield ours() + others
        return
    from topics.client.key import read_api_key

    get = {key: value.value for key, value in invocation.settings.values.items()}
    with invocation.place.writing() as store:
        key = read_api_key(get["api_key_file"])
        prefix = f"bench-{secrets.token_hex(4)}"
        yield at_url(store, url, cafile=get["cafile"], key=key, prefix=prefix) + others


@contextmanager
def _directory(parent: Path | None) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="topics-bench-", dir=parent))
    before = {  # a closed window leaves nothing behind either
        closing: signal.signal(closing, signal.default_int_handler)
        for closing in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        for closing, handler in before.items():
            signal.signal(closing, handler)


def _check_can_write(page: Path) -> None:
    """Before minutes are spent."""
    try:
        with page.open("ab"):
            pass
    except OSError as error:
        raise cannot_write("--html", page, error, code=USAGE) from error


def _tell(line: str) -> None:
    if is_terminal(sys.stderr):
        say(line)
