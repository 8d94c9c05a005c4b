"""`why`: what became of a record or a job, in words, by the log of a data directory and how its topic stands."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import click

from topics.cli.commands.check import root_of
from topics.cli.core.failure import Failed
from topics.cli.core.invocation import Invocation, json_option, local_options, pass_invocation
from topics.cli.io.quantities import counted, moment
from topics.cli.io.terminal import json_line, safe

if TYPE_CHECKING:
    from topics.audit.history import History, LogEvent, Standing

_LOST = {
    "cap": "evicted by the topic's cap",
    "ttl": "expired by the topic's ttl",
    "mixed": "lost to the topic's cap or its ttl, or both",
    "crash": "lost with the machine's power",
    "corrupt": "damaged, and repaired away",
    "restart": "of an ephemeral topic, and lost with its process",
}


@click.command()
@click.argument("topic")
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option("--job", type=click.IntRange(1), metavar="SEQ", help="A job of the queue TOPIC.")
@json_option
@local_options
@pass_invocation
def why(invocation: Invocation, topic: str, seq: int | None, job: int | None, as_json: bool) -> None:
    """Tell what became of a record (TOPIC SEQ) or a job (QUEUE --job SEQ): a line an event, and how it stands.

    It reads the files of a directory, which a server may be using. The log goes back as far as checkpoints have left
    it, or as wal_archive keeps it. With --json a line an event, and last one with `state`.

    \b
      topics why orders 17
      topics why mail --job 17
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.audit.history import history
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen, TopicsError, not_a_queue

    wanted = seq if job is None else job
    if wanted is None or (seq is not None and job is not None):
        raise click.UsageError("name one record or job: topics why TOPIC SEQ, or topics why QUEUE --job SEQ")
    root = root_of(invocation, None)
    try:
        found = history(ReadOnlyDisk(root), str(root), topic, wanted, time.time_ns() // 1_000_000)
        if job is not None and not found.is_job:
            raise not_a_queue(topic)
    except (CannotOpen, OSError, TopicsError) as error:
        raise Failed(error, root=root) from error
    if as_json:
        rows: list[attrs.AttrsInstance] = [*found.events, found.now]
        for row in rows:
            sys.stdout.buffer.write(json_line(attrs.asdict(row, filter=lambda _, value: value is not None)))
        return
    for when, words in _story(found):
        click.echo(f"{moment(when)}  {words}")
    click.echo(f"{'job' if found.is_job else 'record'} {wanted} {_stands(found)}")


def _story(found: History) -> Iterator[tuple[int, str]]:
    """(when, what happened) in words. That a lease ran out is in no frame; what comes behind it shows it."""
    until: int | None = None  # of the lease that it is in
    for event in found.events:
        if until is not None and event.ts > until:
            yield until, "the lease ran out"
            until = None
        yield event.ts, _words(event)
        until = event.deadline
    if until is not None and found.now.state in ("ready", "delayed"):
        yield until, "the lease ran out"


def _words(event: LogEvent) -> str:
    node, reason = safe(event.node or ""), safe(event.reason or "")
    because = f": {reason}" if reason else ""
    match event.event:
        case "put":
            return "put"
        case "claimed":
            return f"leased by {node} until {moment(event.deadline)}"
        case "extended":
            return f"extended by {node} until {moment(event.deadline)}"
        case "released" if event.node is None:
            return "given back: it was not sent to anybody, and that counts as no delivery"
        case "released":
            rests = event.ready_at is not None and event.ready_at > event.ts
            again = f", to be ready at {moment(event.ready_at)}" if rests else ""
            return f"given back by {node}{because}{again}"
        case "released_all":
            return f"the lease ended, as all of the queue did{because}"
        case "acked":
            return f"acked by {node}: done, and deleted"
        case "dead_lettered":
            return f"on its way to {safe(event.dest or '')}{because}"
        case "moved":
            return "arrived there, and deleted here"
        case "purged":
            return "deleted by a purge of the queue"
    return f"{event.event}{because}"


def _stands(found: History) -> str:
    now = found.now
    said = _state(now)
    if found.is_job and said == "was deleted":
        said = "is gone: acked, moved, purged or deleted"
    if now.deliveries:
        said += f", delivered {counted(now.deliveries, 'time')}"
    if now.reason and now.state in ("ready", "delayed", "in_flight"):
        said += f"; the last failure: {safe(now.reason)}"
    if not found.events and now.state != "unborn":
        said += "; the log says nothing of it any more (wal_archive keeps what checkpoints have absorbed)"
    return said


def _state(now: Standing) -> str:
    node, dest, reason = safe(now.node or ""), safe(now.dest or ""), safe(now.reason or "")
    match now.state:
        case "live":
            return "is there"
        case "ready":
            return "is ready"
        case "in_flight":
            return f"is in flight: leased by {node} until {moment(now.deadline)}"
        case "delayed":
            return f"is delayed until {moment(now.ready_at)}"
        case "moving":
            return f"is on its way to {dest}"
        case "acked":
            return f"was acked by {node}"
        case "moved":
            return (
                f"was moved to {dest}"
                + ("" if now.dest_seq is None else f" as {now.dest_seq}")
                + f": {reason}"
            )
        case "purged":
            return "was deleted by a purge"
        case "deleted":
            return f"was deleted: {reason}" if reason else "was deleted"
        case "expired":
            return "expired by its own ttl"
        case "lost":
            return f"is lost: {_LOST.get(reason, reason)}"
    return "was never put: the head is below it"
