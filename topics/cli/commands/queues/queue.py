"""`queue`: job queues, for who looks after them. Work by hand is in `leases`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import click

from topics.cli.commands.manage import config_value
from topics.cli.commands.queues.leases import ack, claim, extend, nack
from topics.cli.completion.types import QUEUE, TOPIC
from topics.cli.core.failure import USAGE, Failed, asked_ms, say
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import counted, moment
from topics.cli.io.terminal import is_terminal, json_line, print_table

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore
    from topics.calls.queues.values import PeekedJob
    from topics.engine.replies import QueueState, Redriven, TopicState

PEEK_DEFAULT: Final = 20
REDRIVE_MAX: Final = 1000
LOOK_FIRST_S: Final = 0.05
_LOOK_S: Final = 1.0
MOVE_S: Final = 5.0
_TELL_S: Final = 10.0  # between two lines of progress where nobody sees one change


@click.group(cls=Group, no_args_is_help=False)
def queue() -> None:
    """Look after job queues.

    A queue is made by `topics create NAME type=queue`, filled by `topics put`, worked on by `topics work`, and deleted
    by `topics rm`.
    """


for command in (claim, ack, nack, extend):
    queue.add_command(command)


@queue.command()
@click.option("--prefix", default="", help="Only queues whose name begins so.")
@json_option
@common_options
@pass_invocation
def ls(invocation: Invocation, prefix: str, as_json: bool) -> None:
    """List the queues, and how their jobs stand."""
    with invocation.there() as store:
        names = [row.topic for row in store.list(prefix) if row.type == "queue"]
        found = [(name, queue_state(store, name)[1]) for name in names]
    if as_json:
        for name, counts in found:
            _print_json({"topic": name, **attrs.asdict(counts)})
        return
    if not found:
        begin = f" whose name begins with {prefix!r}" if prefix else ""
        click.echo(f"no queues{begin} in {invocation.place.name}")
        return
    heads = ("queue", "ready", "in flight", "delayed", "given up", "")
    rows = [
        (name, *(f"{count:,}" for count in _numbers(counts)), "paused" if counts.paused else "")
        for name, counts in found
    ]
    print_table(heads, rows, numbers=heads[1:5])


@queue.command()
@click.argument("queue", type=QUEUE)
@json_option
@common_options
@pass_invocation
def stats(invocation: Invocation, queue: str, as_json: bool) -> None:
    """Show how the jobs of a queue stand, and by which rules they are handed out."""
    with invocation.there() as store:
        found, counts = queue_state(store, queue)
    config = found.config
    rules = {
        name: config.echo()[name]
        for name in ("lease_ms", "max_deliveries", "dead_letter", "retry_backoff", "max_in_flight",
                     "max_in_flight_per_key", "rate_limit")
    }  # fmt: skip
    if as_json:
        _print_json({"topic": queue, **attrs.asdict(counts), "config": rules})
        return
    ready, in_flight, delayed, given_up = _numbers(counts)
    rows = [
        ("queue", queue + (" (paused: nothing is handed out)" if counts.paused else "")),
        ("ready", f"{ready:,}"),
        ("in flight", f"{in_flight:,}"),
        ("delayed", f"{delayed:,}"),
        ("given up", f"{given_up:,} in all" + (f", to {config.dead_letter}" if config.dead_letter else "")),
        ("last job put", moment(found.last_write_ts)),
    ]
    rows += [(name, config_value(value)) for name, value in rules.items() if value]
    print_table(("", ""), rows)


@queue.command()
@click.argument("queue", type=QUEUE)
@click.option(
    "--state", type=click.Choice(["ready", "in_flight", "delayed"]), default="ready", show_default=True,
    help="Which jobs: ready ones in the order in which they would be handed out, the others by seq.",
)  # fmt: skip
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=PEEK_DEFAULT,
    show_default=True,
    help="At most so many.",
)
@json_option
@common_options
@pass_invocation
def peek(
    invocation: Invocation,
    queue: str,
    state: Literal["ready", "in_flight", "delayed"],
    limit: int,
    as_json: bool,
) -> None:
    """Print jobs without taking them: who has them, how often they failed, and why."""
    with invocation.there() as store:
        jobs = store.queue(queue).peek(state, limit=limit)
    if as_json:
        for job in jobs:
            sys.stdout.buffer.write(_peeked_line(job))
        return
    if not jobs:
        click.echo(f"{queue}: no jobs are {state}")
        return
    print_table(
        tuple(_PEEKED), [tuple(show(job) for show in _PEEKED.values()) for job in jobs], numbers=("seq",)
    )


@queue.command()
@click.argument("queues", type=QUEUE, nargs=-1, required=True, metavar="QUEUE…")
@json_option
@common_options
@pass_invocation
def pause(invocation: Invocation, queues: tuple[str, ...], as_json: bool) -> None:
    """Hand out no more jobs, until `resume`. Jobs may be put, and those in flight done. It lasts over a restart."""
    _set_paused(invocation, queues, paused=True, as_json=as_json)


@queue.command()
@click.argument("queues", type=QUEUE, nargs=-1, required=True, metavar="QUEUE…")
@json_option
@common_options
@pass_invocation
def resume(invocation: Invocation, queues: tuple[str, ...], as_json: bool) -> None:
    """Hand out jobs again."""
    _set_paused(invocation, queues, paused=False, as_json=as_json)


@queue.command()
@click.argument("queue", type=QUEUE)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@common_options
@pass_invocation
def purge(invocation: Invocation, queue: str, yes: bool, as_json: bool) -> None:
    """Delete all jobs that are ready or delayed, for good. Those in flight stay. Asks first."""
    with invocation.there() as store:
        _, counts = queue_state(store, queue)
        if not yes:
            _ask(queue, counts)
        purged = store.queue(queue).purge()
    if as_json:
        _print_json({"topic": queue, "purged": purged})
    else:
        click.echo(f"{queue}: {counted(purged, 'job')} deleted")


@queue.command()
@click.argument("queue", type=QUEUE)
@click.argument("source", type=TOPIC, required=False)
@click.option(
    "--seq",
    "seqs",
    type=click.IntRange(1),
    multiple=True,
    metavar="SEQ",
    help="Of SOURCE; more than once for several. Default: the first ones.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, REDRIVE_MAX),
    default=REDRIVE_MAX,
    show_default=True,
    help="At most so many.",
)
@json_option
@common_options
@pass_invocation
def redrive(
    invocation: Invocation, queue: str, source: str | None, seqs: tuple[int, ...], limit: int, as_json: bool
) -> None:  # fmt: skip
    """Put dead letters of SOURCE back as fresh jobs of QUEUE. Default: the queue's own dead_letter.

    They go from SOURCE, keep their priority, and their meta still says where they failed. When this returns they are on
    their way, and will arrive whatever happens. Of more than 1000 the first go; it is said that there are others.

    A SEQ that may not go is told: no dead letter, or on its way already. Exit code 1: all of them were such.
    """
    with invocation.there() as store:
        found = store.queue(queue).redrive(seqs or None, source=source, limit=limit)
        _let_arrive(store, found)
        if not seqs and len(found.seqs) == limit and _holds_more(store, found):
            say(f"{found.source} holds more: ask again for the next", "topics: ")
    skipped = [seq for seq in dict.fromkeys(seqs) if seq not in found.seqs] if len(found.seqs) < limit else []
    if as_json:
        _print_json(
            {"topic": queue, "source": found.source, "redriven": list(found.seqs), "skipped": skipped}
        )
    elif found.seqs or not skipped:
        click.echo(f"{queue}: {counted(len(found.seqs), 'job')} on the way from {found.source}")
    if skipped:
        _tell_skipped(queue, skipped, found, as_json=as_json)


@queue.command()
@click.argument("queue", type=QUEUE)
@click.option("--timeout", metavar="TIME", help="Fail after so long, as in 10m. Default: wait for ever.")
@json_option
@common_options
@pass_invocation
def drain(invocation: Invocation, queue: str, timeout: str | None, as_json: bool) -> None:
    """Wait until no job is ready or in flight: the workers are through. Changes nothing.

    Delayed jobs, those between two attempts too, are not waited for; what is left of them is said. Exit codes: 0 it is
    drained · 1 it is not, in that time.
    """
    limit_s = None if timeout is None else asked_ms("--timeout", timeout) / 1000
    with invocation.there() as store:
        counts, is_drained = _wait_for_workers(store, queue, limit_s)
    if as_json:
        _print_json({"topic": queue, "drained": is_drained, **attrs.asdict(counts)})
    elif is_drained:
        click.echo(f"{queue}: drained" + (f", {counts.delayed:,} delayed" if counts.delayed else ""))
    if not is_drained:
        raise Failed(f"{queue}: not drained within {timeout}: {_words(counts)}", quiet=as_json)


def queue_state(store: TopicStore, name: str) -> tuple[TopicState, QueueState]:
    """Raises `Rejected`: topic_not_found, not_a_queue."""
    from topics.kernel.errors import not_a_queue

    found = store.topic(name).state()
    if found.queue is None:
        raise not_a_queue(name)
    return found, found.queue


def _tell_skipped(name: str, skipped: Sequence[int], found: Redriven, *, as_json: bool) -> None:
    """Raises `Failed` if nothing else was named."""
    seqs = ", ".join(map(str, skipped))
    why = f"{name}: skipped {seqs}: no dead letter of {found.source} that waits there (topics get {found.source})"
    if not found.seqs:
        raise Failed(why, quiet=as_json)
    if not as_json:
        say(why, "topics: ")


def _let_arrive(store: TopicStore, redriven: Redriven) -> None:
    """A directory is moved in by whoever has it open. Where there is no room, for a while: the next command goes on."""
    from topics.embed.store import Store

    source, until_s = store.topic(redriven.source), time.monotonic() + MOVE_S
    left = sorted(redriven.seqs if isinstance(store, Store) else ())
    while left and time.monotonic() < until_s:
        if any(record.seq == left[-1] for record in source.read(from_seq=left[-1] - 1, limit=1).records):
            time.sleep(LOOK_FIRST_S)
        else:
            left.pop()


def _holds_more(store: TopicStore, redriven: Redriven) -> bool:
    """The first ones go, so the others are behind them."""
    return bool(store.topic(redriven.source).read(from_seq=max(redriven.seqs), limit=1).records)


def _wait_for_workers(store: TopicStore, name: str, limit_s: float | None) -> tuple[QueueState, bool]:
    """(how its jobs stand, whether it is drained), when that is so or the time is over."""
    from topics.embed.store import Store

    began, told_at, look_s = time.monotonic(), 0.0, LOOK_FIRST_S
    while True:
        counts = queue_state(store, name)[1]
        if not counts.ready and not counts.in_flight:
            return counts, True
        if isinstance(store, Store):
            raise Failed(
                f"{name}: {_words(counts)}, and no worker can run: this process has the directory open; use "
                f"topics work {name} --until-empty, or serve the directory"
            )
        passed_s = time.monotonic() - began
        if limit_s is not None and passed_s >= limit_s:
            return counts, False
        if passed_s >= told_at:
            say(f"{name}: {_words(counts)}", "topics: ", colour="cyan")
            told_at = passed_s + _TELL_S
        time.sleep(look_s if limit_s is None else min(look_s, limit_s - passed_s))
        look_s = min(2 * look_s, _LOOK_S)


def _set_paused(invocation: Invocation, queues: tuple[str, ...], *, paused: bool, as_json: bool) -> None:
    with invocation.there() as store:
        for name in dict.fromkeys(queues):
            handle = store.queue(name)
            handle.pause() if paused else handle.resume()
            if as_json:
                _print_json({"topic": name, "paused": paused})
            else:
                click.echo(f"{name}: {'paused' if paused else 'resumed'}")


def _ask(name: str, counts: QueueState) -> None:
    if not is_terminal(sys.stdin):
        raise Failed(
            f"stdin is no terminal, so purge cannot ask: pass --yes to delete the jobs of {name!r}",
            code=USAGE,
        )
    if not click.confirm(f"delete {counted(counts.ready + counts.delayed, 'job')} of {name}?", err=True):
        raise Failed(f"the jobs of {name!r} are kept")


def _numbers(counts: QueueState) -> tuple[int, int, int, int]:
    return counts.ready, counts.in_flight, counts.delayed, counts.dead_lettered


def _words(counts: QueueState) -> str:
    paused = ", and it is paused" if counts.paused else ""
    return f"{counts.ready:,} ready, {counts.in_flight:,} in flight, {counts.delayed:,} delayed{paused}"


# What `peek` shows, by head.
_PEEKED: Final[Mapping[str, Callable[[PeekedJob], str]]] = {
    "seq": lambda job: str(job.seq),
    "prio": lambda job: str(job.priority),
    "deliveries": lambda job: str(job.deliveries),
    "until": lambda job: moment(job.deadline or job.ready_at) if job.deadline or job.ready_at else "",
    "worker": lambda job: job.worker or "",
    "key": lambda job: job.key or "",
    "reason": lambda job: job.reason,
    "data": lambda job: job.raw[:200].decode(errors="replace"),
}


def _peeked_line(job: PeekedJob) -> bytes:
    from topics.cli.io.lines import job_line

    told = {
        "state": job.state, "deliveries": job.deliveries, "priority": job.priority, "reason": job.reason,
        "node": job.worker, "deadline": job.deadline, "ready_at": job.ready_at,
    }  # fmt: skip
    return job_line(job, told)


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json_line(value))
