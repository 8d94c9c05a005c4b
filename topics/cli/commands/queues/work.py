"""`work`: the jobs of a queue, each done by a command: ack where it ends with 0, nack with its last words where not."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.completion.types import QUEUE
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, milliseconds, pass_invocation
from topics.cli.io.quantities import counted, moment
from topics.cli.io.terminal import json_line
from topics.kernel.extras import Needs
from topics.kernel.limits import LEASE_MS_MAX, LEASE_MS_MIN

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore
    from topics.cli.work.shift import JobOutcome, WorkRules
    from topics.engine.replies import QueueState
    from topics.kernel.config import TopicConfig

CONCURRENCY_MAX = 256
_LOOKED_AT: Final = 20  # jobs at most: a peek brings their payloads


@click.command()
@click.argument("queue", type=QUEUE)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.option(
    "--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), default=1, show_default=True, metavar="N",
    help="Commands that run at the same time.",
)  # fmt: skip
@click.option("--node", help="Who works here, in leases. Default: a name of its own.")
@click.option(
    "--lease", "lease_ms", callback=milliseconds(LEASE_MS_MIN, LEASE_MS_MAX), metavar="TIME",
    help="Of each lease, as in 30s. Default: as the queue says.",
)  # fmt: skip
@click.option(
    "--grace", "grace_ms", callback=milliseconds(), metavar="TIME", default="30s", show_default=True,
    help="How long commands may go on after SIGTERM or Ctrl-C.",
)  # fmt: skip
@click.option(
    "--until-empty",
    is_flag=True,
    help="End when no job is ready. What is left, between two attempts too, is told on stderr.",
)
@json_option
@common_options
@pass_invocation
def work(
    invocation: Invocation,
    /,
    queue: str,
    command: tuple[str, ...],
    node: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Take jobs of a queue and run COMMAND for each.

    The payload is its standard input, as stored; TOPICS_JOB_SEQ, _TOPIC, _DELIVERIES, _KEY, _TAG, _META_… are in its
    environment. If it ends with 0 the job is done. Else it failed, and the end of its stderr is the reason; it is
    handed out again as the queue's retry_backoff says, without one after 1 s, 2 s, 4 s … up to a minute.

    The lease is extended as long as the command runs. If it is lost all the same, the command is stopped (SIGTERM, 5 s
    later SIGKILL): another worker has the job.

    SIGTERM and Ctrl-C end it: no more jobs are taken, commands may go on for --grace and are stopped then, and their
    jobs given back, which counts as a delivery: one at its last goes to the dead letters. A second one stops them at
    once. A server that goes away is waited for. Exit codes: 0 ended as asked · 1 it could not go on.

    \b
      topics work mails --concurrency 4 -- ./send-mail
      topics work thumbs -- sh -c 'convert - "$TOPICS_JOB_KEY.png"'
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    if shutil.which(command[0]) is None:
        raise Failed(f"there is no command {command[0]!r} that can be run; name its path", code=USAGE)
    with Needs("topics work", "worker"):
        import anyio  # noqa: F401 -- what workers stand on

    with invocation.there(fires=True) as store:
        from topics.cli.commands.queues.queue import queue_state
        from topics.cli.work.running import JobProcess
        from topics.cli.work.shift import Shift

        found, counts = queue_state(store, queue)
        rules = _rules(found.config, **flags)
        if not (as_json or rules.until_empty) and (counts.paused or not counts.ready):
            of = f"{queue}, which is paused," if counts.paused else queue
            say(f"waiting for jobs of {of} at {store.where}; Ctrl-C ends this", "topics: ", colour="cyan")
        report = _Report(queue, as_json=as_json)
        shift = Shift(
            store.queue(queue, node=node),
            lambda job: JobProcess(command, job, keep_stdout=as_json),
            rules,
            tell=report.tell,
            say=lambda line: say(line, "topics: "),
        )
        left = ""
        try:
            shift.run()
            left = _left(store, queue) if flags["until_empty"] else ""
        finally:
            report.end(left)


def _left(store: TopicStore, queue: str) -> str:
    """`left: 2 in flight, 1 delayed`, if they are few `the first until …`: jobs for which a worker does not wait."""
    from topics.kernel.errors import TopicsError

    with suppress(TopicsError):  # all else went well, and this was not asked for
        counts = _arrived(store, queue)
        parts = [f"{counts.ready:,} ready{', for it is paused' if counts.paused else ''}"] * bool(
            counts.ready
        )
        parts += [f"{counts.in_flight:,} in flight"] * bool(counts.in_flight)
        if counts.delayed:
            resting = store.queue(queue).peek("delayed", limit=_LOOKED_AT)
            known = [job.ready_at for job in resting if job.ready_at] if len(resting) < _LOOKED_AT else []
            parts.append(
                f"{counts.delayed:,} delayed" + (f", the first until {moment(min(known))}" if known else "")
            )
        return f"left: {', '.join(parts)}" if parts else ""
    return ""


def _arrived(store: TopicStore, queue: str) -> QueueState:
    """How the jobs stand when dead letters have arrived: in a directory they are moved by whoever has it open. Where
    there is no room for them, after a while: the next command goes on.
    """
    from topics.cli.commands.queues.queue import LOOK_FIRST_S, MOVE_S, queue_state
    from topics.embed.store import Store

    if isinstance(store, Store):
        store.sync()  # so it is published which of them go
    until_s = time.monotonic() + MOVE_S
    while True:
        counts = queue_state(store, queue)[1]
        held = store.queue(queue).peek("in_flight", limit=_LOOKED_AT) if counts.in_flight else []
        is_leased = bool(held) and all(job.deadline for job in held)
        if not counts.in_flight or is_leased or time.monotonic() >= until_s:
            return counts
        time.sleep(LOOK_FIRST_S)


def _rules(
    config: TopicConfig, *, concurrency: int, lease_ms: int | None, grace_ms: int, until_empty: bool
) -> WorkRules:
    from topics.cli.work.shift import WorkRules

    return WorkRules(
        concurrency=concurrency, lease_ms=lease_ms or config.lease_ms, grace_s=grace_ms / 1000,
        backs_off=config.retry_backoff is not None, until_empty=until_empty,
    )  # fmt: skip


class _Report:
    """What became of the jobs: failures on stderr; with --json each of them on stdout."""

    def __init__(self, queue: str, *, as_json: bool) -> None:
        self._queue = queue
        self._as_json = as_json
        self._lock = threading.Lock()
        self._counts = {"acked": 0, "nacked": 0, "lost": 0}

    def tell(self, ended: JobOutcome) -> None:
        job = ended.job
        with self._lock:
            self._counts[ended.state] += 1
            if self._as_json:
                row = {
                    "topic": self._queue, "seq": job.seq, "state": ended.state, "deliveries": job.deliveries,
                    "reason": ended.reason, "seconds": round(ended.seconds, 6),
                }  # fmt: skip
                sys.stdout.buffer.write(json_line(row))
                sys.stdout.buffer.flush()
            elif ended.state != "acked":
                what = "failed" if ended.state == "nacked" else "lost"
                say(
                    f"{self._queue}: job {job.seq} {what}, delivery {job.deliveries}: {ended.reason}",
                    "topics: ",
                )

    def end(self, left: str) -> None:
        with self._lock:
            words = [left] if left else []
            if not self._as_json:
                done, failed, lost = self._counts.values()
                lost_too = f", {lost:,} lost" if lost else ""
                words.insert(0, f"{counted(done, 'job')} done, {failed:,} failed{lost_too}")
            if words:
                say(f"{self._queue}: {'; '.join(words)}", "topics: ", colour="cyan")
