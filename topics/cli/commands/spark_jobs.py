"""`topics spark`: validate, report and export by Spark, for data that one machine is too slow for.

It needs the packages of `topics-log[spark]` and a Java; without them it says which to install. The exit codes of
`validate`: 0 nothing is wrong · 1 something is · 2 it could not be looked at.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from topics.cli.commands.directory.check import (
    COULD_NOT,
    bytes_bar,
    cold_place,
    print_report,
    root_of,
    tell_unseen,
    tell_unsettled,
    why_unseen,
)
from topics.cli.completion.types import TOPIC
from topics.cli.core.failure import Failed, say
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.paths import PathName, cannot_write, check_overwrites, force_option
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line
from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from topics.cli.config.settings import Settings

_ACKS_TYPE: Final = PathName(exists=True, dir_okay=False)
_MASTER: Final = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: where spark-submit says, or else local[*], on this machine.",
)
_CONF: Final = click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")


@click.group(cls=Group, no_args_is_help=False)
def spark() -> None:
    """Validate, report and export by Spark."""


@spark.command()
@click.argument("directory", required=False)
@click.option("--out", type=PathName(file_okay=False), metavar="DIR", help="A folder for the report.")
@click.option(
    "--acks", type=_ACKS_TYPE, metavar="FILE",
    help="What clients were told is stored: JSON lines or Parquet of topic, seq, digest.",
)  # fmt: skip
@_MASTER
@_CONF
@json_option
@common_options
@pass_invocation
def validate(
    invocation: Invocation,
    directory: str | None,
    out: Path | None,
    acks: Path | None,
    master: str | None,
    conf: Sequence[str],
    as_json: bool,
) -> None:
    """Check a data directory or a backup, a path or an fsspec URL, as fsck does, on any number of machines.

    Without DIRECTORY, the one that --data names.

    With --cold-dir its cold tier is checked, too.
    """
    from topics.host.cold.fsspec_store import is_url
    from topics.host.cold.ownership import NOTE_FILE
    from topics.host.directory.owner import same_boot_at
    from topics.kernel.errors import TopicsError

    with Needs("topics spark", "spark"):
        from topics.audit.checks.acks import load_acks
        from topics.audit.report.violations import json_lines
        from topics.spark.options import located

    _, cold_dir = cold_place(invocation)
    where = located(directory or str(root_of(invocation, None)))
    if not is_url(where):
        _check_directory(root_of(invocation, Path(where)))
    with _session(master, conf) as running:
        from topics.spark.audits import validate as look
        from topics.spark.audits import write_report

        try:
            with bytes_bar(where) as tell:
                report = look(
                    running, where, acks=None if acks is None else load_acks(acks), cold_dir=cold_dir,
                    same_boot=not is_url(where) and same_boot_at(Path(where)), unseen=why_unseen(invocation),
                    progress=tell,
                )  # fmt: skip
        except (TopicsError, OSError) as error:
            raise Failed(error, code=COULD_NOT) from error
    if as_json:
        for one in json_lines(report):
            sys.stdout.buffer.write(one)
    else:
        print_report(report)
    tell_unsettled(report)
    if cold_dir is None and (Path(where) / NOTE_FILE).exists():
        tell_unseen(invocation)
    if out is not None:
        try:
            click.echo(f"the report is {write_report(report, out)[0]}", err=as_json)
        except OSError as error:
            raise cannot_write("--out", out, error, code=COULD_NOT) from error
    raise click.exceptions.Exit(report.exit_code)


def _check_directory(root: Path) -> None:
    """What is no data directory is told before a Java is started, which takes seconds and says much."""
    from topics.audit.recovery import read_format_or_guess
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen

    try:
        read_format_or_guess(ReadOnlyDisk(root), str(root))
    except (CannotOpen, OSError) as error:
        raise Failed(error, code=COULD_NOT, root=root) from error


@spark.command()
@click.argument("topics", type=TOPIC, nargs=-1, required=True)
@click.option("--out", required=True, type=PathName(dir_okay=False), metavar="FILE", help="The page.")
@force_option
@click.option(
    "--checkpoint", "checkpoints", multiple=True, metavar="PATH",
    help="The checkpoint of a stream by Spark that reads them, a folder or an fsspec URL: how far behind it is.",
)  # fmt: skip
@click.option(
    "--acks", type=_ACKS_TYPE, metavar="FILE",
    help="A client's log of acknowledgements with sent_ms and acked_ms: how long its writes took.",
)  # fmt: skip
@_MASTER
@_CONF
@json_option
@common_options
@pass_invocation
def report(
    invocation: Invocation, topics: Sequence[str], out: Path, checkpoints: Sequence[str], acks: Path | None,
    master: str | None, conf: Sequence[str], force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Rates, sizes, lags, losses, the most frequent keys and the latency of TOPICS, as an HTML page.

    With --json they are printed, too: a line a topic, then one with all the rest.
    """
    check_overwrites("--out", out, force=force)
    with _session(master, conf) as running:
        from topics.audit.checks.acks import load_acks
        from topics.spark.lags import read_checkpoint
        from topics.spark.overview import json_lines, overview, overview_page

        consumers = [read_checkpoint(path) for path in checkpoints]
        told = None if acks is None else load_acks(acks)
        found = overview(_frame(running, invocation, topics), consumers=consumers, acks=told)
    try:
        out.write_bytes(overview_page(", ".join(topics), found))
    except OSError as error:
        raise cannot_write("--out", out, error, code=COULD_NOT) from error
    if as_json:
        for one in json_lines(found):
            sys.stdout.buffer.write(one)
    records = sum(one.records for one in found.topics)
    click.echo(f"{counted(len(found.topics), 'topic')}, {counted(records, 'record')}: {out}", err=as_json)


@spark.command()
@click.argument("topics", type=TOPIC, nargs=-1, required=True)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="A folder that is not there yet, or a URL that Spark writes to.",
)
@_MASTER
@_CONF
@json_option
@common_options
@pass_invocation
def export(
    invocation: Invocation, topics: Sequence[str], out: str, master: str | None, conf: Sequence[str], as_json: bool
) -> None:  # fmt: skip
    """Write the records of TOPICS as Parquet, a folder a topic and day.

    With --json a line a lost range is printed, then one that sums up.
    """
    with _session(master, conf) as running:
        from topics.spark.overview import export as write
        from topics.spark.overview import loss_fields
        from topics.spark.session import losses

        frame = _frame(running, invocation, topics, includeHeaders="true")
        write(frame, out)
        records = running.read.schema("value binary").parquet(out).count()  # there may be no file
        lost = [(row["topic"], row["first"], row["last"], row["reason"]) for row in losses(frame).collect()]
    if as_json:
        for loss in lost:
            sys.stdout.buffer.write(json_line(loss_fields(loss)))
        sys.stdout.buffer.write(json_line({"out": out, "records": records, "losses": len(lost)}))
        return
    for topic, first, last, reason in lost:
        say(f"topic {topic!r}: seq {first} to {last} ({reason})", "LOST: ", colour="red")
    click.echo(f"{counted(records, 'record')} exported to {out}")


@contextmanager
def _session(master: str | None, conf: Sequence[str]) -> Iterator[SparkSession]:
    """A Spark of this command's own; what it cannot do is told in one line."""
    from topics.kernel.errors import TopicsError
    from topics.spark.session import OURS, QUIET, CannotRun, check_pyspark, is_submitted, plainly, session

    confs = dict(OURS if is_submitted() else QUIET)
    for pair in conf:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Failed(f"--conf {pair}: must be NAME=VALUE", code=2)
        confs[name] = value
    try:
        check_pyspark()
        from pyspark.sql import SparkSession

        own = SparkSession.getActiveSession() is None  # else it is somebody's who calls us
        if own:
            logging.getLogger().addFilter(_is_worth_telling)
            logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails is raised, too
        running = session("topics", master=master, confs=confs)
        if own:
            # Pyspark's own calls Java out of a call to Java.
            signal.signal(signal.SIGINT, signal.default_int_handler)
    except CannotRun as error:
        raise Failed(str(error), code=COULD_NOT) from error
    try:
        yield running
    except (TopicsError, Failed):
        raise
    except Exception as error:  # Spark has many kinds
        raise Failed(plainly(error), code=COULD_NOT) from error
    finally:
        if own:
            running.stop()


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Whether it is other than the tracebacks that py4j logs when Ctrl-C ends a call to Java."""
    return "while sending command" not in record.getMessage()


def _frame(running: SparkSession, invocation: Invocation, topics: Sequence[str], **options: str) -> DataFrame:
    """The records of the directory or server that the flags name. What is lost of them is no error here, but told."""
    return running.read.format("topics").options(**source_options(invocation, topics), **options).load()


def source_options(invocation: Invocation, topics: Sequence[str]) -> dict[str, str]:
    """How `format("topics")` is told of that place, and of the cold tier of a directory that has one."""
    from topics.cli.target.place import ServerTarget

    place = invocation.place
    options = {"subscribe": ",".join(topics), "failOnDataLoss": "false"}
    if isinstance(place, ServerTarget):
        return {**options, "url": place.name, **_credentials(place.settings)}
    cold_dir = invocation.settings.options().cold_dir
    data = str(invocation.settings.values["data"].value)  # as it was given: of a URL a Path keeps half
    return {**options, "path": data, **({} if cold_dir is None else {"coldPath": cold_dir})}


def _credentials(settings: Settings) -> dict[str, str]:
    """The key and the certificates by which to reach a server, as options of a read."""
    from topics.client.key import read_api_key

    key_file, cafile = (settings.values[name].value for name in ("api_key_file", "cafile"))
    given = {"token": read_api_key(key_file), "caFile": cafile}
    return {name: str(value) for name, value in given.items() if value is not None}
