"""`queue claim`, `ack`, `nack` and `extend`: the jobs of a queue by hand, each call a step of its own."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from topics.cli.completion.types import QUEUE
from topics.cli.core.failure import Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, milliseconds, pass_invocation
from topics.cli.io.quantities import counted, moment
from topics.cli.io.terminal import json_line
from topics.kernel.limits import LEASE_MS_MAX, LEASE_MS_MIN, TTL_MS_MAX

if TYPE_CHECKING:
    from topics.calls.blocking import Queue, TopicStore
    from topics.engine.replies import JobsSettled

CLAIM_MAX = 1000

_lease_ms = milliseconds(LEASE_MS_MIN, LEASE_MS_MAX)
_node_option = click.option(
    "--node", help="Whose the leases are. Default: cli-USER@HOST, the same in each call here."
)
_lease_id_option = click.option(
    "--lease-id", "lease_ids", multiple=True, metavar="ID",
    help="The very lease that is meant; once for each SEQ, in their order. Default: whatever lease the node has.",
)  # fmt: skip
_seqs_argument = click.argument("seqs", nargs=-1, required=True, type=click.IntRange(1), metavar="SEQ…")


@click.command()
@click.argument("queue", type=QUEUE)
@click.option(
    "--max",
    "count_max",
    type=click.IntRange(1, CLAIM_MAX),
    default=1,
    show_default=True,
    help="At most so many jobs.",
)
@_node_option
@click.option(
    "--lease", "lease_ms", callback=_lease_ms, metavar="TIME",
    help="For how long, as in 30s. Default: as the queue says.",
)  # fmt: skip
@click.option(
    "--wait", "wait_ms", callback=milliseconds(), metavar="TIME", default="0s",
    help="Where there is none, wait so long for one, as in 10s.",
)  # fmt: skip
@json_option
@common_options
@pass_invocation
def claim(
    invocation: Invocation, queue: str, count_max: int, node: str | None, lease_ms: int | None, wait_ms: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Lease jobs, and print them: a line a job, with its seq, the id of its lease, and its data.

    Say `ack`, `nack` or `extend` before the lease ends; else it is handed out again. No job is no error.

    \b
      topics queue claim mail --lease 5m
      topics queue ack mail 17
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.cli.io.lines import data_on_one_line, job_line

    with invocation.there(fires=True) as store:
        _check_leases_last(store, queue)
        jobs = _hand(store, queue, node).get_many(count_max, timeout=wait_ms / 1000, lease_ms=lease_ms)
    for job in jobs:
        if as_json:
            told = {"lease_id": job.lease_id, "deadline": job.deadline, "deliveries": job.deliveries}
            sys.stdout.buffer.write(job_line(job, told | {"priority": job.priority}))
        else:
            sys.stdout.buffer.write(
                f"{job.seq:>6}  {job.lease_id}  {data_on_one_line(job)}\n".encode(errors="backslashreplace")
            )
    if not jobs and not as_json:
        say(f"{queue}: no job is ready", "topics: ", colour="cyan")


@click.command()
@click.argument("queue", type=QUEUE)
@_seqs_argument
@_node_option
@_lease_id_option
@json_option
@common_options
@pass_invocation
def ack(
    invocation: Invocation, queue: str, seqs: tuple[int, ...], node: str | None, lease_ids: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Say that jobs are done: they are deleted. Exit codes: 0 all of them · 1 some were skipped."""
    with invocation.there() as store:
        hand = _hand(store, queue, node)
        _tell(hand, "acked", hand.ack(seqs, lease_ids=lease_ids or None), as_json=as_json)


@click.command()
@click.argument("queue", type=QUEUE)
@_seqs_argument
@_node_option
@_lease_id_option
@click.option(
    "--delay", "delay_ms", callback=milliseconds(0, TTL_MS_MAX), metavar="TIME",
    help="How long they rest, as in 5m. Default: as the queue's retry_backoff says.",
)  # fmt: skip
@click.option("--reason", help="Why they failed: a peek and a dead letter show it.")
@json_option
@common_options
@pass_invocation
def nack(
    invocation: Invocation, queue: str, seqs: tuple[int, ...], node: str | None, lease_ids: tuple[str, ...],
    delay_ms: int | None, reason: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Say that jobs failed: they are handed out again. Exit codes: 0 all of them · 1 some were skipped."""
    with invocation.there() as store:
        hand = _hand(store, queue, node)
        told = hand.nack(seqs, lease_ids=lease_ids or None, delay_ms=delay_ms, reason=reason)
        _tell(hand, "nacked", told, as_json=as_json)


@click.command()
@click.argument("queue", type=QUEUE)
@_seqs_argument
@_node_option
@_lease_id_option
@click.option(
    "--lease", "lease_ms", callback=_lease_ms, metavar="TIME", required=True, help="How long from now on, as in 60s.",
)  # fmt: skip
@json_option
@common_options
@pass_invocation
def extend(
    invocation: Invocation, queue: str, seqs: tuple[int, ...], node: str | None, lease_ids: tuple[str, ...],
    lease_ms: int, as_json: bool,
) -> None:  # fmt: skip
    """Keep jobs for longer. Exit codes: 0 all of them · 1 some were skipped."""
    with invocation.there() as store:
        hand = _hand(store, queue, node)
        _tell(hand, "extended", hand.extend(seqs, lease_ms, lease_ids=lease_ids or None), as_json=as_json)


def _hand(store: TopicStore, queue: str, node: str | None) -> Queue:
    return store.queue(queue, node=_own_name() if node is None else node)


def _own_name() -> str:
    """The same in each call of this user here, so that a later one may say what became of a job."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return f"cli-{user}@{socket.gethostname()}"


def _check_leases_last(store: TopicStore, queue: str) -> None:
    """A directory is closed behind each command, which ends leases unless the queue says otherwise."""
    from topics.embed.store import Store

    if not isinstance(store, Store):
        return
    found = store.topic(queue).state()
    if found.queue is not None and not found.config.leases_durable:
        raise Failed(
            f"{queue}: a lease would end with this command, which closes the directory: serve the directory, use "
            f"topics work {queue}, or run topics configure {queue} leases_durable=true"
        )


def _tell(hand: Queue, done: str, told: JobsSettled, *, as_json: bool) -> None:
    """What was done and what was not. Raises `Failed` if anything was not."""
    if as_json:
        row = {"topic": hand.name, done: list(told.seqs), "skipped": list(told.skipped)}
        sys.stdout.buffer.write(
            json_line(row | ({} if told.deadline is None else {"deadline": told.deadline}))
        )
    elif told.seqs:
        until = "" if told.deadline is None else f" until {moment(told.deadline)}"
        click.echo(f"{hand.name}: {counted(len(told.seqs), 'job')} {done}{until}")
    if told.skipped:
        why = "" if as_json else _why_skipped(hand, told.skipped)
        raise Failed(f"{hand.name}: skipped {why}", quiet=as_json)


def _why_skipped(hand: Queue, skipped: Sequence[int]) -> str:
    """`2: no job any more …; 3: …`, and where to look."""
    from topics.kernel.errors import Code, Rejected

    no_lease = f"{hand.node} has no such lease (any more)"
    why: dict[str, list[int]] = {}
    try:
        head_seq = hand.state().head_seq
        for seq in skipped:
            is_there = any(job.seq == seq for job in hand.read(from_seq=seq - 1, limit=1).records)
            gone = "no job any more: done, given up or deleted" if seq <= head_seq else "not put yet"
            why.setdefault(no_lease if is_there else gone, []).append(seq)
    except Rejected as refused:
        if refused.code is not Code.FORBIDDEN:  # a key that works need not be one that reads
            raise
        why = {no_lease: list(skipped)}
    told = "; ".join(f"{', '.join(map(str, seqs))}: {words}" for words, seqs in why.items())
    return f"{told} (topics why {hand.name} --job {skipped[0]})"
