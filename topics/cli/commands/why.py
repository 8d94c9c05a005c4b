"""`why`: what became of a record or job, or what a reader has not got: by a directory's log, or through a server."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from topics.cli.commands.directory.check import COULD_NOT, cold_place, root_of
from topics.cli.commands.read import parse_match
from topics.cli.completion.types import TOPIC
from topics.cli.core.failure import Failed
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import moment
from topics.cli.io.terminal import safe

if TYPE_CHECKING:
    from topics.codec.why import Why, WhyRange


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option("--job", type=click.IntRange(1), metavar="SEQ", help="A job of the queue TOPIC.")
@click.option("--reader", type=click.IntRange(0), metavar="FROM", help="All that is above a reader's cursor.")
@click.option("--to", "to_seq", type=click.IntRange(1), metavar="N", help="With --reader: up to this seq.")
@click.option("--node", metavar="NODE", help="With --reader: who reads.")
@click.option("--match", metavar="TAG", help="With --reader: the match that it asks with.")
@json_option
@common_options
@pass_invocation
def why(
    invocation: Invocation, topic: str, seq: int | None, job: int | None, reader: int | None, to_seq: int | None,
    node: str | None, match: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Tell what became of a record (TOPIC SEQ), a job (QUEUE --job SEQ), or of all that a reader has not got yet.

    It reads the files of a directory, which a server may be using, or asks a server that is named. The log goes back as
    far as checkpoints have left it, or as wal_archive keeps it; what it does not say any more is said. With --json one
    object.

    \b
      topics why orders 17
      topics why mail --job 17
      topics why orders --reader 40 --to 90
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    import msgspec

    from topics.audit.why.words import why_lines
    from topics.cli.target.place import ServerTarget
    from topics.kernel.errors import not_a_queue

    if (seq is not None) + (job is not None) + (reader is not None) != 1:
        raise click.UsageError(
            "name one record, job or reader: topics why TOPIC SEQ, topics why QUEUE --job SEQ, or topics why TOPIC"
            " --reader FROM"
        )
    if reader is None and (to_seq is not None or node is not None or match is not None):
        raise click.UsageError("--to, --node and --match go with --reader")
    asked = {
        "seq": seq if job is None else job, "from_seq": reader, "to_seq": to_seq, "node": node, "match": match,
    }  # fmt: skip
    given = {name: str(value) for name, value in asked.items() if value is not None}
    if invocation.settings.values["url"].value is not None and isinstance(invocation.place, ServerTarget):
        found = _by_server(invocation, topic, given)
    else:
        found = _by_files(invocation, topic, given)
    if job is not None and found.type != "queue":
        raise Failed(not_a_queue(topic))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    for line in why_lines(found, moment):
        click.echo(safe(line))


def _by_files(invocation: Invocation, topic: str, asked: dict[str, str]) -> Why | WhyRange:
    from topics.audit.why.asking import why as why_one
    from topics.audit.why.asking import why_range
    from topics.audit.why.standing import Reader
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen, TopicsError
    from topics.kernel.limits import U64_MAX
    from topics.log.reads.match import parse_match as match_of

    root = root_of(invocation, None)
    disk, where, now_ms = ReadOnlyDisk(root), str(root), time.time_ns() // 1_000_000
    try:
        if "seq" in asked:
            cold, _ = cold_place(invocation)
            return why_one(disk, where, topic, int(asked["seq"]), now_ms=now_ms, cold=cold)
        match = parse_match(asked.get("match"))
        reader = Reader(
            frozenset(name.encode() for field, name in asked.items() if field == "node"),
            None if match is None else match_of(match, tag_bytes_max=U64_MAX),
        )
        to_seq = int(asked["to_seq"]) if "to_seq" in asked else None
        return why_range(disk, where, topic, int(asked["from_seq"]), to_seq, now_ms=now_ms, reader=reader)
    except CannotOpen as error:
        raise Failed(error, code=COULD_NOT, root=root) from error
    except (OSError, TopicsError) as error:
        raise Failed(error, root=root) from error


def _by_server(invocation: Invocation, topic: str, asked: dict[str, str]) -> Why | WhyRange:
    from topics.calls import topics as calls

    with invocation.there() as store:
        if "seq" in asked:
            return store.do(calls.WhyCall(topic, int(asked["seq"])))
        to_seq = int(asked["to_seq"]) if "to_seq" in asked else None
        match = parse_match(asked.get("match"))
        return store.do(
            calls.WhyRangeCall(topic, int(asked["from_seq"]), to_seq, asked.get("node", ""), match)
        )
