"""`queue history`: who had a job when, and how that ended, by the log of a data directory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import attrs
import click

from topics.cli.commands.check import root_of
from topics.cli.core.failure import Failed
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import moment
from topics.cli.io.terminal import json_line, safe

if TYPE_CHECKING:
    from topics.audit.job_history import JobEvent


@click.command()
@click.argument("queue")
@click.argument("seq", type=click.IntRange(1))
@json_option
@common_options
@pass_invocation
def history(invocation: Invocation, queue: str, seq: int, as_json: bool) -> None:
    """Show who had a job when: each event of it in the log and the archive.

    It reads the files of a directory, which a server may be using. A job may have a longer history than the log: what
    checkpoints have absorbed is gone from it, unless wal_archive keeps it.
    """
    from topics.audit.job_history import job_history
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen, TopicsError

    root = root_of(invocation, None)
    try:
        events = list(job_history(ReadOnlyDisk(root), str(root), queue, seq))
    except (CannotOpen, OSError, TopicsError) as error:
        raise Failed(error, root=root) from error
    if as_json:
        for event in events:
            known = attrs.asdict(event, filter=lambda _, value: value is not None)
            sys.stdout.buffer.write(json_line(known))
    elif not events:
        click.echo(f"the log in {root} says nothing of job {seq} of {queue}")
    else:
        for event in events:
            click.echo(_line(event))


def _line(event: JobEvent) -> str:
    parts = []
    if event.node is not None:
        parts.append(f"by {safe(event.node)}")
    elif event.event == "released":
        parts.append("nobody was given it")
    if event.lease_id is not None:
        parts.append(event.lease_id)
    if event.deadline is not None:
        parts.append(f"until {moment(event.deadline)}")
    if event.ready_at is not None and event.ready_at > event.ts:
        parts.append(f"ready at {moment(event.ready_at)}")
    if event.dest is not None:
        parts.append(f"to {safe(event.dest)}")
    if event.reason:
        parts.append(safe(event.reason))
    said = f"  {', '.join(parts)}" if parts else ""
    return f"{moment(event.ts)}  {event.event}{said}  ({event.file}:{event.offset})"
