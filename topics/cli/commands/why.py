"""`why`: what became of a record or a job, or what a reader has not got, by the log of a data directory."""

from __future__ import annotations

import sys
import time

import click

from topics.cli.commands.check import root_of
from topics.cli.commands.read import parse_match
from topics.cli.core.failure import Failed
from topics.cli.core.invocation import Invocation, json_option, local_options, pass_invocation
from topics.cli.io.quantities import moment
from topics.cli.io.terminal import safe


@click.command()
@click.argument("topic")
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option("--job", type=click.IntRange(1), metavar="SEQ", help="A job of the queue TOPIC.")
@click.option("--reader", type=click.IntRange(0), metavar="FROM", help="All that is above a reader's cursor.")
@click.option("--to", "to_seq", type=click.IntRange(1), metavar="N", help="With --reader: up to this seq.")
@click.option(
    "--node", "nodes", multiple=True, metavar="NODE", help="With --reader: who reads; may be repeated."
)
@click.option("--match", metavar="TAG", help="With --reader: the match that it asks with.")
@json_option
@local_options
@pass_invocation
def why(
    invocation: Invocation, topic: str, seq: int | None, job: int | None, reader: int | None, to_seq: int | None,
    nodes: tuple[str, ...], match: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Tell what became of a record (TOPIC SEQ), a job (QUEUE --job SEQ), or of all that a reader has not got yet.

    It reads the files of a directory, which a server may be using. The log goes back as far as checkpoints have left
    it, or as wal_archive keeps it; what it does not say any more is said. With --json one object.

    \b
      topics why orders 17
      topics why mail --job 17
      topics why orders --reader 40 --to 90
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    import msgspec

    from topics.audit.why.asking import why as why_one
    from topics.audit.why.asking import why_range
    from topics.audit.why.standing import Reader
    from topics.audit.why.values import Why, WhyRange
    from topics.audit.why.words import told
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen, TopicsError
    from topics.kernel.limits import U64_MAX
    from topics.log.reads.match import parse_match as match_of

    if (seq is not None) + (job is not None) + (reader is not None) != 1:
        raise click.UsageError(
            "name one record, job or reader: topics why TOPIC SEQ, topics why QUEUE --job SEQ, or topics why TOPIC"
            " --reader FROM"
        )
    if reader is None and (to_seq is not None or nodes or match is not None):
        raise click.UsageError("--to, --node and --match go with --reader")
    root = root_of(invocation, None)
    disk, where, now_ms = ReadOnlyDisk(root), str(root), time.time_ns() // 1_000_000
    found: Why | WhyRange
    try:
        if reader is None:
            wanted = seq if job is None else job
            assert wanted is not None
            found = why_one(disk, where, topic, wanted, now_ms=now_ms, of_job=job is not None)
        else:
            asked = parse_match(match)
            parsed = None if asked is None else match_of(asked, tag_bytes_max=U64_MAX)
            who = Reader(frozenset(node.encode() for node in nodes), parsed)
            found = why_range(disk, where, topic, reader, to_seq, now_ms=now_ms, reader=who)
    except (CannotOpen, OSError, TopicsError) as error:
        raise Failed(error, root=root) from error
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    for line in told(found, moment):
        click.echo(safe(line))
