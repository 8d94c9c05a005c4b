"""`put`: a file or standard input into a topic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from topics.cli.completion.types import FILE, TOPIC
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import (
    Invocation,
    common_options,
    file_options,
    format_option,
    json_option,
    milliseconds,
    pass_invocation,
)
from topics.cli.exchange.putting import (
    BATCH_DEFAULT,
    PlacedRecord,
    PutRules,
    Putting,
    check_key,
    line_max,
    put_all,
)
from topics.cli.io.feed import FORMATS, Payloads, field_text, format_of, payloads
from topics.cli.io.interrupts import stopping_gently
from topics.cli.io.quantities import counted
from topics.cli.io.source import STDIN, BadLine, InputSource
from topics.kernel.limits import TTL_MS_MAX

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore

_BATCHES_A_SECOND: Final = 10


@attrs.frozen(kw_only=True)
class RecordFlags:
    """What the flags say of every record."""

    tag: str | None
    tag_field: tuple[str, ...]
    key: str | None
    key_field: tuple[str, ...]
    of_a_job: dict[str, Any]


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("file", type=FILE, default=STDIN, metavar="[FILE|-]")
@format_option(
    FORMATS, "Default: as the file's name says; JSON lines on stdin. --csv is short for --format csv."
)
@click.option("--tag", help="Tag of every record.")
@click.option(
    "--tag-field", metavar="PATH", help="Take each record's tag from this field, as in properties.net."
)
@click.option("--node", help="Origin of every record.")
@click.option("--key", help="Key of every record.")
@click.option("--key-field", metavar="PATH", help="Take each record's key from this field.")
@click.option("--priority", type=click.IntRange(0, 9), help="Of every job: 9 is handed out first, 0 last.")
@click.option(
    "--delay", "delay_ms", callback=milliseconds(0, TTL_MS_MAX), metavar="TIME",
    help="Hand out no job before this has passed, as in 5m.",
)  # fmt: skip
@click.option(
    "--dedup-id", metavar="ID", help="Of the only record: one with this id that is there already stays."
)
@click.option(
    "--batch", type=click.IntRange(1), default=BATCH_DEFAULT, show_default=True, help="Records a write."
)
@click.option(
    "--rate", "per_second", type=click.FloatRange(0), default=0, help="At most so many records a second."
)
@click.option(
    "--durability", type=click.Choice(["ephemeral", "memory", "disk", "fsync"]), help="Of a topic this makes."
)
@file_options
@json_option
@common_options
@pass_invocation
def put(
    invocation: Invocation, /, topic: str, file: str, as_json: bool, durability: str | None, **flags: Any
) -> None:
    """Append a file to a topic, made if it is not there.

    JSON lines are stored byte for byte; a line of text becomes a JSON string, a CSV row an object of strings. Files may
    be gzip. Each write is all or nothing; at a bad line it stops, with everything before it stored.

    \b
      topics put quakes earthquakes.jsonl --tag-field properties.net
      tail -F app.log | topics put logs - --format text --tag web-1
      echo '{"to": "ann"}' | topics put mails --priority 5 --delay 10m
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.cli.target.place import is_missing
    from topics.kernel.ids import check_topic_name

    check_topic_name(topic)
    source = InputSource(file)
    try:
        form, labels, rules = _wish(file, **flags)
        check_key(rules, invocation.settings.values["max_idempotency_key_chars"].value)
        with invocation.writing() as store, stopping_gently() as gently:
            is_new = is_missing(store, topic)
            if is_new and labels.of_a_job.keys() & {"priority", "delay_ms"}:
                raise Failed(
                    f"topic {topic!r} does not exist, and only a queue takes --priority and --delay: make it first, "
                    f"topics create {topic} type=queue"
                )
            handle = _topic(store, topic, durability)
            read = payloads(source, form, line_max=line_max(store))
            found: Counter[str] = Counter()
            records = _records(read, labels, found, from_line=rules.from_line)
            putting = Putting(store, handle, records, source, rules, gently)
            putting.typed = invocation.typed
            putting.is_created = is_new and durability is not None
            putting.hint = "for plain text give --format text" if form == "jsonl" else ""
            try:
                put_all(putting, as_json=as_json)
            finally:
                _tell_unlabelled(labels, found)
    finally:
        source.close()


def _wish(
    file: str, *, form: str | None, tag: str | None, tag_field: str | None, key: str | None, key_field: str | None,
    node: str | None, priority: int | None, delay_ms: int | None, dedup_id: str | None, batch: int, per_second: float,
    idempotency_key: str | None, from_line: int,
) -> tuple[str, RecordFlags, PutRules]:  # fmt: skip
    for one, other in (("tag", tag and tag_field), ("key", key and key_field)):
        if other:
            raise Failed(f"give --{one} or --{one}-field, not both", code=USAGE)
    if not math.isfinite(per_second):
        raise Failed(
            "--rate takes a finite number of records a second; leave it out for no limit", code=USAGE
        )
    if per_second:
        batch = min(batch, max(1, int(per_second / _BATCHES_A_SECOND)))
    given = {"priority": priority, "delay_ms": delay_ms, "dedup_id": dedup_id}
    of_a_job = {name: value for name, value in given.items() if value is not None}
    form = form or format_of(file)
    rules = PutRules(
        batch=batch, rate=per_second, node=node, idempotency_key=idempotency_key, from_line=from_line,
        unit="item" if form == "json" else "line",
    )  # fmt: skip
    labels = RecordFlags(
        tag=tag, tag_field=_path(tag_field), key=key, key_field=_path(key_field), of_a_job=of_a_job
    )
    return form, labels, rules


def _path(field: str | None) -> tuple[str, ...]:
    return tuple(field.split(".")) if field else ()


def _topic(store: TopicStore, name: str, durability: str | None) -> Topic:
    topic = store.topic(name)
    if durability is None:
        return topic
    config = store.config(name)
    if config is None:
        return store.create(name, durability=durability)
    if config.durability.value != durability:
        raise Failed(
            f"topic {name!r} is there already with durability {config.durability.value}; leave --durability out, or"
            f" change it first: topics configure {name} durability={durability}"
        )
    return topic


def _tell_unlabelled(labels: RecordFlags, found: Counter[str]) -> None:
    """A field that is not where it was said to be may be a slip."""
    for label, path in (("tag", labels.tag_field), ("key", labels.key_field)):
        if path and found[label] < found["records"]:
            missing, total = found["records"] - found[label], counted(found["records"], "record")
            have = "has" if missing == 1 else "have"
            said = f"{missing:,} of {total} {have} no value in field {'.'.join(path)}, and so no {label}"
            say(said, "topics: ")


def _records(
    read: Payloads, labels: RecordFlags, found: Counter[str], *, from_line: int
) -> Iterator[PlacedRecord]:
    """Payloads as records with their labels; of what stands before `from_line` nothing is asked. Counted are the
    records, and those that have a tag or a key.
    """
    from msgspec import Raw

    has_id = "dedup_id" in labels.of_a_job
    for line, payload in read:
        if line < from_line:
            yield line, len(payload), Raw(payload)
            continue
        tag = field_text(line, payload, labels.tag_field) if labels.tag_field else labels.tag
        key = field_text(line, payload, labels.key_field) if labels.key_field else labels.key
        if has_id and found["records"]:
            raise BadLine(line, "is another record, and --dedup-id is the id of one")
        found["records"] += 1
        if labels.tag_field or labels.key_field:
            found["tag"] += tag is not None
            found["key"] += key is not None
        if tag is None and key is None and not labels.of_a_job:
            yield line, len(payload), Raw(payload)
        else:
            yield line, len(payload), {"data": Raw(payload), "tag": tag, "key": key, **labels.of_a_job}
