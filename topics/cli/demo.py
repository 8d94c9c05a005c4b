"""`topics demo`: the main job, told in four steps, each with its proofs. Exit code 1 if one of them fails.

Load real input, read it back, kill the process that writes and look for everything it was promised, see what a reader
is told of records that are gone. All in a temporary directory.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from topics.cli.failure import Failed
from topics.cli.invocation import Invocation, common_options, json_option, pass_invocation

if TYPE_CHECKING:
    from topics.cli.story import Check, Story
    from topics.cli.tour import Input

SAMPLE: Final = "earthquakes.jsonl"
SAMPLE_SOURCE: Final = "one week of earthquakes, U.S. Geological Survey (USGS)"
SAMPLE_FIELD: Final = "properties.net"
ACKS: Final = (500, 1000)  # a kill comes after some number of acknowledgements between these


@click.command()
@click.argument("file", required=False)
@click.option(
    "--tag-field", metavar="PATH", help="The field of FILE to tag records by. Default: a fitting one."
)
@click.option(
    "--kills", type=click.IntRange(1, 50), default=3, show_default=True, help="How often to kill the writer."
)
@click.option("--keep", is_flag=True, help="Keep the directory.")
@json_option
@common_options
@pass_invocation
def demo(
    _invocation: Invocation, file: str | None, tag_field: str | None, kills: int, keep: bool, as_json: bool
) -> None:
    """Load real input, read it back, kill the writer in mid-write, and prove that nothing acknowledged is missing.

    FILE holds JSON lines (gzip too); without it, the bundled earthquakes. Takes some seconds, in a temporary directory.
    """
    from topics.cli.story import Story

    story = Story(is_silent=as_json)
    started = time.monotonic()
    given = _input(file, tag_field)
    with _directory(keep=keep) as home:
        story.open(given, home)
        _steps(story, given, home, kills)
        seconds = time.monotonic() - started
        if as_json:
            story.print_json(seconds=seconds, directory=str(home / "data") if keep else None)
        else:
            story.close(seconds, kept=home / "data" if keep else None)
    failed = [check for check in story.checks if not check.holds]
    if failed:
        raise Failed(f"{len(failed)} of {len(story.checks)} proofs failed, the first: {_first(failed)}")


def _steps(story: Story, given: Input, home: Path, kills: int) -> None:
    import topics
    from topics.cli import tour

    data = home / "data"
    with topics.open(data) as store:
        loaded = tour.load(story, store, given)
        tour.read_back(story, store, given, loaded)
    tour.crash(story, data, home / "rows.jsonl", given, kills=kills, acks=lambda: random.randint(*ACKS))  # noqa: S311 -- no secret
    with topics.open(data) as store:
        tour.floors(story, store, given)


def _input(file: str | None, tag_field: str | None) -> Input:
    from topics.cli.tour import read_input

    if file is not None:
        return read_input(file, note="", tag_field=tag_field)
    sample = resources.files("topics") / "sample" / SAMPLE
    with resources.as_file(sample) as path:
        return read_input(str(path), note=SAMPLE_SOURCE, tag_field=tag_field or SAMPLE_FIELD)


@contextmanager
def _directory(*, keep: bool) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="topics-demo-"))
    for closing in (signal.SIGTERM, signal.SIGHUP):  # a closed window leaves nothing behind either
        signal.signal(closing, signal.default_int_handler)
    try:
        yield home
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
        sys.stdout.flush()


def _first(failed: list[Check]) -> str:
    return f"{failed[0].what} (expected {failed[0].expected}, found {failed[0].found})"
