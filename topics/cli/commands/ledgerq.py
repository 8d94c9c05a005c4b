"""`import` and `export`: directories of ledgerq into topics, and out of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click

from topics.cli.commands.manage import fields_argument, parse_fields
from topics.cli.core.failure import Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line

if TYPE_CHECKING:
    from topics.embed.ledgerq.importing import Import, Imported

_SHOWN_MAX: Final = 20

_directory_option = click.option(
    "--ledgerq", "directory", required=True, metavar="DIR",
    type=click.Path(path_type=Path), help="The directory of the queue.",
)  # fmt: skip


@click.command("import")
@_directory_option
@click.argument("topic")
@fields_argument
@click.option(
    "--read-position", "read_id", type=click.IntRange(1), metavar="ID",
    help="What is below this id is consumed. Default: as the directory says.",
)  # fmt: skip
@click.option(
    "--new-timestamps", "is_now", is_flag=True,
    help="Records get the time of this import: where their own cannot be kept, which takes a new data directory.",
)  # fmt: skip
@json_option
@common_options
@pass_invocation
def import_(
    invocation: Invocation, directory: Path, topic: str, fields: tuple[str, ...], read_id: int | None, is_now: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Take a directory of ledgerq into a new topic: a queue, unless type=log says otherwise.

    Seqs are ledgerq's ids, and its headers are meta. In a queue what is consumed is gone; a log keeps it. The directory
    of ledgerq is only read. Entries that are damaged are left out and told, and the exit code is 1.

    \b
      topics import --ledgerq /var/lib/mail mail --data new-data
      topics import --ledgerq /var/lib/mail-dlq mail-failed type=log --data new-data
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.embed.ledgerq.directory import Directory
    from topics.embed.ledgerq.importing import Import
    from topics.kernel.ids import check_topic_name

    check_topic_name(topic)
    asked = Import(Directory(directory), topic, parse_fields(fields), read_id=read_id, is_now=is_now)
    done = _imported(invocation, asked)
    if as_json:
        row = attrs.asdict(done) | {"faults": [attrs.asdict(fault) for fault in done.faults]}
        sys.stdout.buffer.write(json_line(row))
    else:
        consumed = f", {done.consumed} consumed" if done.consumed else ""
        click.echo(
            f"{topic}: {counted(done.records, 'record')} of {counted(done.entries, 'message')} of "
            f"{done.dialect}{consumed}; the next seq is {done.next_seq}"
        )
    _tell(done.notes)
    for fault in done.faults[:_SHOWN_MAX] if not as_json else ():
        say(str(fault), "LEFT OUT: ", colour="red")
    if done.faults:
        more = len(done.faults) - _SHOWN_MAX
        if more > 0 and not as_json:
            say(f"and {more} more; --json lists them all", "LEFT OUT: ", colour="red")
        raise click.exceptions.Exit(1)


@click.command()
@_directory_option
@click.argument("topic")
@json_option
@common_options
@pass_invocation
def export(invocation: Invocation, directory: Path, topic: str, as_json: bool) -> None:
    """Write a topic as a directory of ledgerq, in the dialect of its architecture page.

    The directory must be new. Ids are seqs; what is gone from the topic is not there. It is of a data directory, or of
    a backup: of a topic at a server take a backup first (topics backup).

    \b
      topics export --ledgerq mail-out mail --data my-data
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.embed.ledgerq.exporting import Export
    from topics.embed.store import Store

    with invocation.reading() as store:
        if not isinstance(store, Store):
            raise Failed(
                f"{store.where} does not tell all that an export holds: take a backup (topics backup DEST --url …), "
                "and export from that (--data DEST)"
            )
        done = Export(store, topic, directory).carried_out()
    if as_json:
        sys.stdout.buffer.write(json_line(attrs.asdict(done)))
    else:
        click.echo(f"{topic}: {counted(done.records, 'record')} written to {directory}")
    _tell(done.notes)


def _imported(invocation: Invocation, asked: Import) -> Imported:
    from topics.cli.target.place import DirectoryTarget

    place = invocation.place
    with place.writing(clock=asked.clock) if isinstance(place, DirectoryTarget) else place.writing() as store:
        return asked.into(store)


def _tell(notes: list[str]) -> None:
    for note in notes:
        say(note, "note: ", colour="cyan")
