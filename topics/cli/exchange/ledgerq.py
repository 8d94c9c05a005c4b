"""A topic as a directory of ledgerq, and such a directory as a topic: what is done, and what is said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from topics.cli.core.failure import Failed, say
from topics.cli.core.invocation import Invocation
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line

if TYPE_CHECKING:
    from topics.embed.ledgerq.importing import Import, Imported

_SHOWN_MAX: Final = 20


def import_directory(
    invocation: Invocation, directory: Path, topic: str, config: dict[str, Any], *, read_id: int | None, is_now: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Of entries that are damaged it tells, and ends with exit code 1."""
    from topics.embed.ledgerq.directory import Directory
    from topics.embed.ledgerq.importing import Import

    asked = Import(Directory(directory), topic, config, read_id=read_id, is_now=is_now)
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


def export_directory(invocation: Invocation, directory: Path, topic: str, *, as_json: bool) -> None:
    """Raises `Failed` for a server: it does not tell all that an export holds."""
    from topics.embed.ledgerq.exporting import Export
    from topics.embed.store import Store

    with invocation.there() as store:
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
