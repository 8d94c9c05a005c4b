"""`consumer`: the durable consumers of a topic, for who looks after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from topics.cli.commands.read import from_option, from_ts_option, read_choice, since_option
from topics.cli.completion.types import CONSUMER, TOPIC
from topics.cli.core.failure import USAGE, Failed
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import moment
from topics.cli.io.terminal import json_line, print_table

if TYPE_CHECKING:
    from topics.calls.blocking import Consumer, Topic, TopicStore
    from topics.engine.replies import ConsumerState

_SHOWN: Final = 10  # names of consumers in a message


@click.group(cls=Group, no_args_is_help=False)
def consumer() -> None:
    """Look after durable consumers: positions in a topic, kept by name for those who read it."""


@consumer.command()
@click.argument("topic", type=TOPIC, required=False)
@click.option("--prefix", default="", help="Only of topics whose name begins so.")
@json_option
@common_options
@pass_invocation
def ls(invocation: Invocation, topic: str | None, prefix: str, as_json: bool) -> None:
    """List the consumers of a topic, or of all: where each stands, how much it has not read, and since when.

    \b
      topics consumer ls
      topics consumer ls quakes
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    if topic is not None and prefix:
        raise Failed("--prefix goes without TOPIC", code=USAGE)
    with invocation.there() as store:
        found = iter(store.topic(topic).consumers()) if topic is not None else _all_consumers(store, prefix)
        if as_json:
            for state in found:
                _print_json(state)
            return
        rows = [_row(state, of_all=topic is None) for state in found]
    if rows:
        heads = (*(["topic"] if topic is None else []), "consumer", "seq", "lag", "since")
        print_table(heads, rows, numbers=("seq", "lag"))
    elif topic is not None:
        click.echo(f"{topic}: no consumers")
    else:
        begin = f" of topics whose name begins with {prefix!r}" if prefix else ""
        click.echo(f"no consumers{begin} in {invocation.place.name}")


def _all_consumers(store: TopicStore, prefix: str) -> Iterator[ConsumerState]:
    """Those of each topic, one topic after another; what is deleted meanwhile has none."""
    from topics.kernel.errors import Code, Rejected

    for row in store.list(prefix):
        try:
            yield from store.topic(row.topic).consumers()
        except Rejected as refused:
            if refused.code is not Code.TOPIC_NOT_FOUND:
                raise


def _row(state: ConsumerState, *, of_all: bool) -> Sequence[str]:
    topic = [state.topic] if of_all else []
    return *topic, state.consumer, f"{state.from_seq:,}", f"{state.lag:,}", moment(state.updated_ts)


@consumer.command()
@click.argument("topic", type=TOPIC)
@click.argument("name", type=CONSUMER)
@json_option
@common_options
@pass_invocation
def show(invocation: Invocation, topic: str, name: str, as_json: bool) -> None:
    """Show where a consumer stands."""
    with invocation.there() as store:
        handle = store.topic(topic)
        _tell(_position(handle, handle.consumer(name)), "", as_json=as_json)


@consumer.command("set")
@click.argument("topic", type=TOPIC)
@click.argument("name", type=CONSUMER)
@from_option
@since_option
@from_ts_option
@click.option("--now", is_flag=True, help="What comes from now on.")
@json_option
@common_options
@pass_invocation
def set_(
    invocation: Invocation, topic: str, name: str, now: bool, as_json: bool, from_seq: int | None, since: str | None,
    from_ts: str | None,
) -> None:  # fmt: skip
    """Have a consumer read next what is said, and make it if it is not there.

    Without any of --from, --since, --from-ts and --now it is made at the beginning, and one that is there stays.

    \b
      topics consumer set quakes billing --from 0
      topics consumer set quakes billing --since 1h
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    if now and (from_seq, since, from_ts) != (None, None, None):
        raise Failed("give one of --from, --since, --from-ts and --now", code=USAGE)
    ts = read_choice(from_seq=from_seq, since=since, from_ts=from_ts).from_ts
    with invocation.there() as store:
        put = store.topic(topic).consumer(name).seek(seq=from_seq, ts=ts, tail=now)
        _tell(put, "made, " if put.created else "", as_json=as_json)


@consumer.command()
@click.argument("topic", type=TOPIC)
@click.argument("name", type=CONSUMER)
@click.argument("seq", type=click.IntRange(0))
@json_option
@common_options
@pass_invocation
def commit(invocation: Invocation, topic: str, name: str, seq: int, as_json: bool) -> None:
    """Say that a consumer has read up to a seq. It goes forward only: `set` moves it back."""
    with invocation.there() as store:
        handle = store.topic(topic)
        one = handle.consumer(name)
        _position(handle, one)  # or it is told which there are
        committed = one.commit(seq)
        _tell(committed, "" if committed.moved else "not moved, ", as_json=as_json)


@consumer.command()
@click.argument("topic", type=TOPIC)
@click.argument("names", type=CONSUMER, nargs=-1, required=True, metavar="NAME…")
@json_option
@common_options
@pass_invocation
def rm(invocation: Invocation, topic: str, names: tuple[str, ...], as_json: bool) -> None:
    """Delete consumers. What they have read stays, and so does what they have not."""
    with invocation.there() as store:
        handle = store.topic(topic)
        found = [handle.consumer(name) for name in dict.fromkeys(names)]
        for one in found:
            _position(handle, one)  # all are, or none goes
        for one in found:
            deleted = one.delete()
            if as_json:
                _print_json({"topic": topic, "consumer": one.name, "deleted": deleted})
            else:
                click.echo(f"{topic}: {one.name} deleted")


def _position(topic: Topic, asked: Consumer) -> ConsumerState:
    """Where it stands. Raises `Failed`, with those that there are."""
    from topics.kernel.errors import Code, Rejected

    try:
        return asked.position()
    except Rejected as refused:
        if refused.code is not Code.CONSUMER_NOT_FOUND:
            raise
        there = [state.consumer for state in topic.consumers()]
        more = " …" if len(there) > _SHOWN else ""
        has = f"it has {', '.join(there[:_SHOWN])}{more} (topics consumer ls {topic.name})"
        none = f"it has none; topics consumer set {topic.name} {asked.name} makes it"
        raise Failed(
            f"topic {topic.name!r} has no consumer {asked.name!r}: {has if there else none}"
        ) from refused


def _tell(state: ConsumerState, what: str, *, as_json: bool) -> None:
    if as_json:
        _print_json(state)
        return
    click.echo(
        f"{state.topic}: {state.consumer} {what}at seq {state.from_seq:,}, {state.lag:,} behind the head, since "
        f"{moment(state.updated_ts)}"
    )


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(json_line(msgspec.to_builtins(value)))
