"""`topics demo`: the main job, told in five steps, each with its proofs. Exit code 1 if one of them fails.

Load real input, read it back, kill the server in mid-write and look for everything it had promised, have jobs done over
more kills, see what a reader is told of records that are gone. All of it through a server of its own.
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

from topics.cli.core.failure import USAGE, Failed
from topics.cli.core.invocation import Invocation, json_option, local_options, pass_invocation
from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from topics.cli.demo.input import Input
    from topics.cli.demo.story import Check, Story

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
    "--kills", type=click.IntRange(1, 50), default=3, show_default=True, help="How often to kill it."
)
@click.option("--keep", is_flag=True, help="Keep the directory.")
@json_option
@local_options
@pass_invocation
def demo(
    invocation: Invocation, file: str | None, tag_field: str | None, kills: int, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """Load real input, read it back, kill the server in mid-write, and prove that nothing acknowledged is missing.

    FILE holds JSON lines (gzip too); without it, the bundled earthquakes. It starts a server of its own, in a temporary
    directory or the empty one that --data names, and takes some seconds.
    """
    with Needs("topics demo", "server"):
        import topics.server.main  # noqa: F401 -- that it can be started
        from topics.cli.demo.story import Story

    own = _own_directory(invocation)
    story = Story(is_silent=as_json)
    started = time.monotonic()
    given = _input(file, tag_field)
    with _directory(keep=keep and own is None) as home:
        data = own or home / "data"
        story.open(given, data if own else home)
        _run(story, given, home, data, kills)
        seconds = time.monotonic() - started
        kept = data if keep or own else None
        if as_json:
            story.print_json(seconds=seconds, directory=str(kept) if kept else None)
        else:
            story.close(seconds, kept=kept)
    failed = [check for check in story.checks if not check.holds]
    if failed:
        raise Failed(f"{len(failed)} of {len(story.checks)} proofs failed, the first: {_first(failed)}")


def _own_directory(invocation: Invocation) -> Path | None:
    """What --data names. Nothing of anybody's is written to, and no server but its own."""
    if "url" in invocation.flags:
        raise Failed("the demo starts a server of its own; leave --url out", code=USAGE)
    if "data" not in invocation.flags:
        return None
    own = invocation.settings.data.absolute()
    if own.exists() and (not own.is_dir() or any(own.iterdir())):
        raise Failed(f"{own} is not empty; name a new directory for the demo", code=USAGE)
    return own


def _acks() -> int:
    return random.randint(*ACKS)  # noqa: S311 -- no secret


def _run(story: Story, given: Input, home: Path, data: Path, kills: int) -> None:
    from topics.cli.demo import steps
    from topics.cli.demo.clients import client_of
    from topics.cli.demo.private_server import PrivateServer
    from topics.cli.demo.work import work

    with PrivateServer(data, home) as server, client_of(server) as client:
        story.say(f"A private server: topics serve, at {server.url}, ready in {server.ready_ms:.0f} ms.")
        loaded = steps.load(story, server, client, given)
        steps.read_back(story, client, given, loaded)
        steps.crash(story, server, given, kills=kills, acks=_acks)
        work(story, server, client)
        steps.floors(story, client, given)


def _input(file: str | None, tag_field: str | None) -> Input:
    from topics.cli.demo.input import read_input

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
