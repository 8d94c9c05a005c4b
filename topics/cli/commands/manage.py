"""Topics themselves: `create`, `configure`, `state`, `ls`, `rm`, `delete` for their records, `compact` for the space.

A config is given as `field=value`; times may be written `5m`, sizes `10MiB`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from topics.cli.commands.read import parse_match
from topics.cli.completion.types import FIELD, TOPIC
from topics.cli.core.failure import USAGE, Failed, near, say, tell_moved
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.quantities import counted, moment, parse_duration_ms, parse_size, size
from topics.cli.io.terminal import is_terminal, json_line, print_table

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore
    from topics.calls.messages import TopicSummary
    from topics.engine.replies import TopicState
    from topics.kernel.config import TopicConfig

fields_argument = click.argument("fields", type=FIELD, nargs=-1, metavar="[FIELD=VALUE]…")


@click.command()
@click.argument("topic", type=TOPIC)
@fields_argument
@click.option("--exist-ok", is_flag=True, help="Take a topic that is there as it is, whatever its config.")
@json_option
@common_options
@pass_invocation
def create(
    invocation: Invocation, topic: str, fields: tuple[str, ...], exist_ok: bool, as_json: bool
) -> None:
    """Create a topic. (`put` makes one too, with the default config.)

    One that is there is never changed: it is refused, unless every field that is given has that value there.

    \b
      topics create quakes durability=fsync cap_records=10000
      topics create sessions ttl_ms=1d compression=zstd
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.kernel.ids import check_topic_name

    check_topic_name(topic)
    config = parse_fields(fields)
    with invocation.writing() as store:
        is_new = store.config(topic) is None
        what = "created" if is_new else "is there already, as it was"
        with _naming_options(shlex.join(["topics", "configure", topic, *fields])):
            made = store.create(topic, exist_ok=exist_ok, **config)
        _print_config(
            topic, made.state().config, what, config if is_new or not exist_ok else {}, as_json=as_json
        )


@contextmanager
def _naming_options(configure: str) -> Iterator[None]:
    """What is advised for a topic that is there is named as here."""
    from topics.kernel.errors import Rejected

    try:
        yield
    except Rejected as refused:
        message = refused.message.replace("(exist_ok)", "(--exist-ok)")
        message = message.replace("(configure, PATCH)", f"({configure})")
        raise Rejected(refused.code, message, **refused.detail) from refused


@click.command()
@click.argument("topic", type=TOPIC)
@fields_argument
@click.option("--replace", is_flag=True, help="Set every field that is not given back to its default.")
@json_option
@common_options
@pass_invocation
def configure(
    invocation: Invocation, topic: str, fields: tuple[str, ...], replace: bool, as_json: bool
) -> None:
    """Change fields of a topic's config and keep the rest.

    A lower cap or ttl evicts at once, and no later change brings back what it evicted.
    """
    changes = parse_fields(fields)
    if not changes and not replace:
        raise Failed(f"say what to change, as in: topics configure {topic} ttl_ms=1d", code=USAGE)
    with invocation.there() as store:
        handle = store.topic(topic)
        if replace:
            handle.state()  # it must be there; a replacement alone would make it
        config = handle.configure(replace=replace, **changes)
        _print_config(topic, config, "configured", changes, as_json=as_json)


@click.command()
@click.argument("topic", type=TOPIC)
@json_option
@common_options
@pass_invocation
def state(invocation: Invocation, topic: str, as_json: bool) -> None:
    """Show a topic: its head, its floors, what it holds, its config."""
    with invocation.there() as store:
        found = store.topic(topic).state()
    if as_json:
        _print_json(attrs.asdict(found, recurse=False) | {"config": found.config.echo()})
        return
    rows = [
        ("topic", f"{found.topic} ({found.type}, epoch {found.epoch})"),
        ("records", f"{found.count:,} live, {size(found.bytes)}"),
        ("head_seq", f"{found.head_seq} (durable up to {found.durable_seq})"),
        ("earliest_seq", str(found.earliest_seq)),
        ("evict_floor", f"{found.evict_floor} ({_floor_words(found)})"),
        ("last write", moment(found.last_write_ts)),
    ]
    rows += [(name, config_value(value)) for name, value in _changed(found.config).items()]
    print_table(("", ""), rows)


@click.command()
@click.option("--prefix", default="", help="Only topics whose name begins so.")
@json_option
@common_options
@pass_invocation
def ls(invocation: Invocation, prefix: str, as_json: bool) -> None:
    """List the topics, by name."""
    with invocation.there() as store:
        found = store.list(prefix)
    if as_json:
        for row in found:
            _print_json(attrs.asdict(row))
        return
    if not found:
        begin = f" whose name begins with {prefix!r}" if prefix else ""
        click.echo(f"no topics{begin} in {invocation.place.name}")
        return
    print_table(
        tuple(_COLUMNS),
        [tuple(show(row) for show in _COLUMNS.values()) for row in found],
        numbers=("records", "bytes", "earliest", "head"),
    )


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC…")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--if-empty", is_flag=True, help="Only a topic without live records.")
@json_option
@common_options
@pass_invocation
def rm(invocation: Invocation, topics: tuple[str, ...], yes: bool, if_empty: bool, as_json: bool) -> None:
    """Delete topics, with everything in them; routers and schedules of theirs end. Asks first."""
    with invocation.there() as store:
        states = [store.topic(name).state() for name in dict.fromkeys(topics)]  # all are there, or none goes
        for found in states:
            going = ", ".join([counted(found.count, "record"), *_of_topic(store, found.topic)])
            if not yes:
                _ask("rm", f"delete {found.topic!r} with {going}", found.topic)
            deleted = store.delete(found.topic, if_empty=if_empty)
            if as_json:
                _print_json({"topic": found.topic, "deleted": deleted})
            else:
                click.echo(f"{found.topic}: deleted, with {going}")


@click.command(context_settings={"allow_extra_args": True})
@click.argument("topic", type=TOPIC)
@click.option("--before", type=click.IntRange(0), metavar="SEQ", help="The records below this seq.")
@click.option(
    "--match",
    metavar="TAG",
    help='The records with this tag; or \'["tag", "Glob", "us*"]\': with those that begin so.',
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@common_options
@pass_invocation
def delete(
    invocation: Invocation, topic: str, before: int | None, match: str | None, yes: bool, as_json: bool
) -> None:
    """Delete records of a topic, for good: below a seq, with a tag, or both at once.

    Readers get no tombstone for these: what is deleted on purpose is not lost. Asks first if --before leaves nothing.
    """
    if others := click.get_current_context().args:
        which = f"--before {others[0]} deletes those below that seq, " if others[0].isdecimal() else ""
        raise Failed(
            f"say by an option which records: {which}--match {others[0]} deletes those with that tag",
            code=USAGE,
        )
    if before is None and match is None:
        raise Failed("say which records: --before SEQ, --match TAG, or both", code=USAGE)
    with invocation.there() as store:
        handle = store.topic(topic)
        if before is not None and match is None and not yes:
            _ask_for_all(handle, before)
        reply = handle.delete(before_seq=before, match=parse_match(match))
    if as_json:
        _print_json(attrs.asdict(reply))
        return
    left = f"{counted(reply.count, 'record')} left" if reply.count else "none left"
    click.echo(f"{topic}: {counted(reply.deleted, 'record')} deleted, {left}")


@click.command()
@json_option
@common_options
@pass_invocation
def compact(invocation: Invocation, as_json: bool) -> None:
    """Give back the space of deleted, expired and evicted records: of a directory all of it, now.

    A server does that by itself, and so does a store that stays open; one that is only used by commands does not. A
    server is asked for checkpoints now, and gives back the rest while it serves. A segment that is damaged stays as it
    is, and the exit code is 1.
    """
    from topics.cli.target.known import known_damages
    from topics.embed.store import Store
    from topics.kernel.errors import Rejected

    with invocation.there() as store:
        found: list[str] = []
        if isinstance(store, Store):
            told = len(store.damages)
            result = store.compact()
            found = [str(damage) for damage in store.damages[told:]]
            done = attrs.asdict(result)
            removed = counted(result.segments_removed, "segment")
            words = f"{size(result.bytes_freed)} of segments given back, {removed} removed"
        else:
            # A full disk has no room for all of it, and gives some back with the next one.
            with suppress(Rejected):
                store.checkpoint()
            store.checkpoint()  # the first keeps a snapshot, and what the one before it needs
            done = {"checkpoints": 2}
            words = (
                "2 checkpoints taken, and segments in which nothing lives went with them; those that are half"
                " dead the server writes anew from now on, beside its work (topics_segment_freed_bytes_total of"
                " /metrics tells how much that was)"
            )
        known = known_damages(store)
    if as_json:
        _print_json({**done, "damages": [one.text for one in known]})
    else:
        click.echo(f"{store.where}: {words}")
    for damage in found:
        say(f"{damage}; it stays as it is, see topics fsck {store.where}", "DAMAGED: ", colour="red")
    if known:
        raise click.exceptions.Exit(1)


# What `ls` shows, by head.
_COLUMNS: Final[Mapping[str, Callable[[TopicSummary], str]]] = {
    "topic": lambda row: row.topic,
    "type": lambda row: row.type,
    "class": lambda row: row.durability,
    "records": lambda row: f"{row.count:,}",
    "bytes": lambda row: size(row.bytes),
    "earliest": lambda row: str(row.earliest_seq),
    "head": lambda row: str(row.head_seq),
}


def parse_fields(pairs: tuple[str, ...]) -> dict[str, Any]:
    from topics.kernel.config import FIELDS, unknown_field

    config: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise Failed(f"a field of the config is written FIELD=VALUE, not {pair!r}", code=USAGE)
        if any("\ud800" <= sign <= "\udfff" for sign in pair):
            raise Failed(f"a field of the config is written in UTF-8; {pair!r} is not", code=USAGE)
        config[name.strip()] = _parse_value(name.strip(), text.strip())
    for name in config:
        if name not in FIELDS:  # here: "replace" is a parameter of the call
            if hint := near(name, FIELDS):
                raise Failed(f"config.{name}: unknown field{hint}", code=USAGE)
            raise unknown_field(name)
    return config


def _parse_value(name: str, text: str) -> Any:
    """JSON where it is JSON (numbers, true, null, objects), a time or a size where the field is one, else a string."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise Failed(f"config.{name}: JSON nested too deep", code=USAGE) from None
    parse = parse_duration_ms if name.endswith("_ms") else parse_size if name.endswith("_bytes") else None
    if parse is None:
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise Failed(f"config.{name}: {error}", code=USAGE) from None


def _of_topic(store: TopicStore, topic: str) -> list[str]:
    """The routers and schedules that end with it. A key that may delete need not be one that may look."""
    from topics.kernel.errors import Code, Rejected

    try:
        found = [f"router {one.router}" for one in store.routers() if topic in (one.source, one.dest)]
        return found + [f"schedule {one.schedule}" for one in store.schedules() if one.topic == topic]
    except Rejected as refused:
        if refused.code is not Code.FORBIDDEN:
            raise
        return []


def _ask_for_all(topic: Topic, before: int) -> None:
    """Where nothing would be left, as `rm` does. A key that may delete need not be one that may look."""
    from topics.kernel.errors import Code, Rejected

    try:
        found = topic.state()
        leaves_some = before <= found.head_seq and topic.read(from_seq=max(before - 1, 0), limit=1).records
    except Rejected as refused:
        if refused.code is not Code.FORBIDDEN:
            raise
        return
    if found.count and not leaves_some:
        what = f"delete every record of {topic.name!r}, {found.count:,} up to its head, {found.head_seq}"
        _ask("delete", what, topic.name)


def _ask(command: str, what: str, topic: str) -> None:
    if not is_terminal(sys.stdin):
        raise Failed(f"stdin is no terminal, so {command} cannot ask: pass --yes to {what}", code=USAGE)
    if not click.confirm(f"{what}?", err=True):
        raise Failed(f"{topic!r} is kept")


def _print_config(
    topic: str, config: TopicConfig, what: str, asked: Mapping[str, Any], *, as_json: bool
) -> None:
    tell_moved(asked, config.echo(), "config.")
    for idle in _idle(topic, config, asked):
        say(idle, "topics: ")
    if as_json:
        _print_json({"topic": topic, "config": config.echo()})
        return
    changed = ", ".join(f"{name}={config_value(value)}" for name, value in _changed(config).items())
    click.echo(f"{topic}: {what} ({changed})")


def _idle(topic: str, config: TopicConfig, asked: Mapping[str, Any]) -> Iterator[str]:
    """What was given, was taken, and does nothing as the topic is."""
    from topics.kernel.config import QUEUE_FIELDS, TopicType

    if config.type is not TopicType.QUEUE:
        if of_queues := ", ".join(name for name in asked if name in QUEUE_FIELDS and asked[name]):
            yield f"{topic} is a log, so {of_queues} does nothing; a queue is made with type=queue, under another name"
    elif config.max_deliveries and config.dead_letter is None and asked.get("max_deliveries"):
        yield f"{topic}: max_deliveries gives up no job as long as no dead_letter names the topic for it"
    elif config.dead_letter is not None and not config.max_deliveries and asked.get("dead_letter"):
        yield f"{topic}: nothing comes to {config.dead_letter} by itself as long as max_deliveries is 0: no limit"


def _changed(config: TopicConfig) -> dict[str, Any]:
    """The fields that are not at their default, and always the class."""
    from topics.kernel.config import TopicConfig

    default = TopicConfig().echo()
    return {
        name: value
        for name, value in config.echo().items()
        if name == "durability" or (value != default[name] and name != "durable")
    }


def config_value(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _floor_words(found: TopicState) -> str:
    return (
        "nothing is lost at the front"
        if found.evict_floor == 1
        else f"everything up to seq {found.evict_floor - 1} is lost"
    )


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json_line(value))
