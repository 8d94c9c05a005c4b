"""`schedule`: records that are appended when their time comes; put, looked at, ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import attrs
import click

from topics.cli.completion.types import SCHEDULE, TOPIC
from topics.cli.core.failure import USAGE, Failed
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, milliseconds, pass_invocation
from topics.cli.io.quantities import duration, moment
from topics.cli.io.terminal import json_line, print_table
from topics.kernel.limits import EVERY_MS_MIN, JITTER_MS_MAX, TTL_MS_MAX

if TYPE_CHECKING:
    from topics.calls.definitions.schedules import Schedule

COMING_DEFAULT: Final = 5


@click.group(cls=Group, no_args_is_help=False)
def schedule() -> None:
    """Append records when their time comes.

    \b
      topics schedule put nightly --topic jobs --cron "0 3 * * *" --timezone Europe/Berlin --record '{"do": "backup"}'
      topics schedule put tick --topic beats --every 10s
      topics schedule next nightly
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are


@schedule.command()
@click.argument("name", type=SCHEDULE)
@click.option(
    "--topic",
    type=TOPIC,
    metavar="TOPIC",
    required=True,
    help="Where its records go; it is there before, and stays the same.",
)
@click.option(
    "--cron",
    metavar="EXPR",
    help="Minute, hour, day of month, month, day of week, as in '0 3 * * 1-5', or a word as @daily.",
)
@click.option(
    "--every", "every_ms", callback=milliseconds(EVERY_MS_MIN, TTL_MS_MAX), metavar="TIME",
    help="Instead: so often, a second at least, as in 10s or 1h.",
)  # fmt: skip
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Where --cron is local time."
)
@click.option(
    "--record", default="null", show_default=True, metavar="JSON",
    help="The data of what is appended, any JSON; its tag, key … have options of their own.",
)  # fmt: skip
@click.option("--tag", help="The record's tag.")
@click.option("--node", help="The record's node.")
@click.option("--key", help="The record's key.")
@click.option(
    "--ttl", "ttl_ms", callback=milliseconds(0, TTL_MS_MAX), metavar="TIME",
    help="The record expires so long after it was appended.",
)  # fmt: skip
@click.option("--priority", type=click.IntRange(0, 9), help="Of a job.")
@click.option(
    "--delay", "delay_ms", callback=milliseconds(0, TTL_MS_MAX), metavar="TIME",
    help="Of a job: not before so long.",
)  # fmt: skip
@click.option(
    "--jitter", "jitter_ms", callback=milliseconds(0, JITTER_MS_MAX), default="0ms", metavar="TIME",
    help="Fire up to so much later."
)  # fmt: skip
@click.option(
    "--catch-up", type=click.Choice(["last", "all", "none"]), default="last", show_default=True,
    help="Of instants that were missed by more than a minute: fire the last, all (the newest 1000), or none.",
)  # fmt: skip
@json_option
@common_options
@pass_invocation
def put(
    invocation: Invocation, /, name: str, topic: str, cron: str | None, every_ms: int | None, timezone: str,
    jitter_ms: int, catch_up: str, record: str, as_json: bool, **of_record: Any,
) -> None:  # fmt: skip
    """Make a schedule, or change it.

    Each of its instants is one record, once, whatever stops the store; the record's meta says which instant it is.
    """
    import topics

    if (cron is None) == (every_ms is None):
        raise Failed("give either --cron or --every", code=USAGE)
    if cron is None and timezone != "UTC":
        raise Failed("--timezone goes with --cron: --every counts since 1970 in UTC", code=USAGE)
    is_job = (of_record["priority"], of_record["delay_ms"]) != (None, None)
    with invocation.there() as store, _named_as_here(topic, is_job=is_job):
        # Its topic is there before, so no directory is made for it.
        made = store.put_schedule(
            name, topic, topics.Raw(record.encode()), cron=cron, every_ms=every_ms, timezone=timezone,
            jitter_ms=jitter_ms, catch_up=catch_up, **of_record,
        )  # fmt: skip
    _print_one(made, as_json=as_json)


@contextmanager
def _named_as_here(topic: str, *, is_job: bool) -> Iterator[None]:
    """A field of the record by its option, and what a topic that is not there is made by."""
    from topics.kernel.errors import Code, Rejected

    try:
        yield
    except Rejected as refused:
        field = str(refused.detail.get("field"))
        if field.startswith("record."):
            option = "record" if field == "record.data" else field.removeprefix("record.")
            message = option + refused.message.removeprefix(field)
            if option == "record" and "is not JSON" in message:
                message += "; a text is JSON in quotes, as in '\"text\"'"
            raise Rejected(refused.code, message, **{**refused.detail, "field": option}) from refused
        if refused.code is not Code.TOPIC_NOT_FOUND:
            raise
        make = f"topics create {topic}{' type=queue' if is_job else ''}"
        raise Rejected(
            refused.code, f"{refused.message}; make it first: {make}", **refused.detail
        ) from refused


@schedule.command()
@click.option("--prefix", default="", help="Only schedules whose name begins so.")
@json_option
@common_options
@pass_invocation
def ls(invocation: Invocation, prefix: str, as_json: bool) -> None:
    """List the schedules, by name."""
    with invocation.there() as store:
        found = store.schedules(prefix)
    if as_json:
        for one in found:
            _print_one(one, as_json=True)
        return
    if not found:
        begin = f" whose name begins with {prefix!r}" if prefix else ""
        click.echo(f"no schedules{begin} in {invocation.place.name}")
        return
    print_table(
        ("schedule", "topic", "when", "last fired", "next"),
        [
            (one.schedule, one.topic, _when(one), moment(one.last_fired), moment(one.next_fire))
            for one in found
        ],
    )


@schedule.command()
@click.argument("name", type=SCHEDULE)
@json_option
@common_options
@pass_invocation
def show(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show a schedule, what it has fired and what comes."""
    with invocation.there() as store:
        _print_one(store.schedule(name), as_json=as_json)


@schedule.command(name="next")
@click.argument("name", type=SCHEDULE)
@click.option(
    "-n", "--count", type=click.IntRange(1, 100), default=COMING_DEFAULT, show_default=True, help="So many."
)
@json_option
@common_options
@pass_invocation
def coming(invocation: Invocation, name: str, count: int, as_json: bool) -> None:
    """Print the next instants of a schedule, in its time zone and in UTC."""
    with invocation.there() as store:
        found = store.schedule(name, coming=count)
    for instant_ms in found.coming:
        if as_json:
            sys.stdout.buffer.write(json_line({"schedule": name, "instant": instant_ms}))
        else:
            click.echo(f"{_local(instant_ms, found.timezone)}  {moment(instant_ms)}")
    if not found.coming and not as_json:
        click.echo(f"{name}: no instant comes")


@schedule.command()
@click.argument("names", type=SCHEDULE, nargs=-1, required=True, metavar="NAME…")
@json_option
@common_options
@pass_invocation
def rm(invocation: Invocation, names: tuple[str, ...], as_json: bool) -> None:
    """End schedules: behind that nothing of them is appended. What they have appended stays."""
    with invocation.there() as store:
        for name in [store.schedule(name).schedule for name in dict.fromkeys(names)]:  # all, or none goes
            deleted = store.delete_schedule(name)
            if as_json:
                sys.stdout.buffer.write(json_line({"schedule": name, "deleted": deleted}))
            else:
                click.echo(f"{name}: ended")


def _print_one(found: Schedule, *, as_json: bool) -> None:
    from topics import Raw
    from topics.cli.io.lines import on_one_line

    is_json = "content_type" not in found.record
    if as_json:
        fields = attrs.asdict(
            found, recurse=False, filter=lambda field, _: field.name not in ("coming", "raw")
        )
        if is_json:
            fields["record"] = {**found.record, "data": Raw(on_one_line(found.raw))}
        sys.stdout.buffer.write(json_line(fields))
        return
    rows = [
        ("schedule", found.schedule),
        ("topic", found.topic),
        ("when", _when(found)),
        ("jitter", f"up to {duration(found.jitter_ms)}" if found.jitter_ms else "none"),
        ("catch up", found.catch_up),
        ("last fired", moment(found.last_fired)),
        ("next", moment(found.next_fire)),
    ]
    shown = {name: json_line(value).rstrip(b"\n") for name, value in found.record.items()}
    if is_json:
        shown["data"] = on_one_line(found.raw)
    rows += [(name, text.decode()) for name, text in shown.items()]
    print_table(("", ""), rows)


def _when(found: Schedule) -> str:
    return f"{found.cron} ({found.timezone})" if found.cron else f"every {duration(found.every_ms or 0)}"


def _local(instant_ms: int, timezone: str) -> str:
    when = datetime.fromtimestamp(instant_ms // 1000, ZoneInfo(timezone))
    return when.strftime("%a %Y-%m-%d %H:%M:%S %Z")
