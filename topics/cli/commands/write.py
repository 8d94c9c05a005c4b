"""`put`: a file or standard input into a topic, in batches, each of them all or nothing.

A line that cannot be stored ends the command; everything before it is stored, nothing after it. With an idempotency
key the batches must be the same on every run, so then only whole batches are stored.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from topics.cli.core.failure import USAGE, Failed, code_of
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.feed import FORMATS, field_text, format_of, payloads
from topics.cli.io.interrupts import Interrupts, stopping_gently
from topics.cli.io.quantities import counted, parse_duration_ms, rate, size
from topics.cli.io.source import STDIN, BadLine, InputSource
from topics.cli.io.terminal import has_bar, json_line, progress

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore
    from topics.engine.replies import Appended

BATCH_DEFAULT: Final = 500
_BATCHES_A_SECOND: Final = 10
_SLEEP_MAX: Final = 3600.0
_KEY_SUFFIX: Final = len("/999999999")  # the number of the batch, which makes the key of each batch its own
_BLAMED: Final = re.compile(r"records\[(\d+)\](?:\.data)?:? ?(.*)", re.DOTALL)


@attrs.frozen(kw_only=True)
class Wish:
    """What the flags asked for."""

    form: str
    batch: int
    rate: float
    tag: str | None
    tag_field: tuple[str, ...]
    key: str | None
    key_field: tuple[str, ...]
    node: str | None
    of_a_job: dict[str, Any]
    idempotency_key: str | None
    from_line: int


@click.command()
@click.argument("topic")
@click.argument("file", default=STDIN, metavar="[FILE|-]")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Default: as the file's name says; JSON lines on stdin.",
)
@click.option("--tag", help="Tag of every record.")
@click.option(
    "--tag-field", metavar="PATH", help="Take each record's tag from this field, as in properties.net."
)
@click.option("--node", help="Origin of every record.")
@click.option("--key", help="Key of every record.")
@click.option("--key-field", metavar="PATH", help="Take each record's key from this field.")
@click.option("--priority", type=click.IntRange(0, 9), help="Of every job: 9 is handed out first, 0 last.")
@click.option("--delay", metavar="TIME", help="Hand out no job before this has passed, as in 5m.")
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
@click.option("--idempotency-key", metavar="KEY", help="The same file with the same key is stored once.")
@click.option("--from-line", type=click.IntRange(1), default=1, help="Begin at this line.")
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
        wish = _wish(file, **flags)
        _check_key(wish.idempotency_key, invocation.settings.values["max_idempotency_key_chars"].value)
        with invocation.writing() as store, stopping_gently() as gently:
            is_new = is_missing(store, topic)
            if is_new and wish.of_a_job.keys() & {"priority", "delay_ms"}:
                raise Failed(
                    f"topic {topic!r} does not exist, and only a queue takes --priority and --delay: make it first, "
                    f"topics create {topic} type=queue"
                )
            putting = Putting(store, _topic(store, topic, durability), source, wish, gently)
            putting.is_created = is_new and durability is not None
            _run(putting, as_json=as_json)
    finally:
        source.close()


def _wish(
    file: str, *, form: str | None, tag: str | None, tag_field: str | None, key: str | None, key_field: str | None,
    node: str | None, priority: int | None, delay: str | None, dedup_id: str | None, batch: int, per_second: float,
    idempotency_key: str | None, from_line: int,
) -> Wish:  # fmt: skip
    for one, other in (("tag", tag and tag_field), ("key", key and key_field)):
        if other:
            raise Failed(f"give --{one} or --{one}-field, not both", code=USAGE)
    if idempotency_key is not None and from_line > 1:
        raise Failed("--idempotency-key needs the whole file, so it does not go with --from-line", code=USAGE)
    if not math.isfinite(per_second):
        raise Failed(
            "--rate takes a finite number of records a second; leave it out for no limit", code=USAGE
        )
    if idempotency_key == "":
        raise Failed("--idempotency-key is empty; give a key, or leave it out", code=USAGE)
    if per_second:
        batch = min(batch, max(1, int(per_second / _BATCHES_A_SECOND)))
    try:
        delay_ms = None if delay is None else parse_duration_ms(delay)
    except ValueError as error:
        raise Failed(f"--delay: {error}", code=USAGE) from None
    of_a_job = {"priority": priority, "delay_ms": delay_ms, "dedup_id": dedup_id}
    return Wish(
        form=form or format_of(file), batch=batch, rate=per_second, tag=tag, tag_field=_path(tag_field), key=key,
        key_field=_path(key_field), node=node, idempotency_key=idempotency_key, from_line=from_line,
        of_a_job={name: value for name, value in of_a_job.items() if value is not None},
    )  # fmt: skip


def _check_key(key: str | None, limit: int) -> None:
    """Before anything is made: the number of the batch that is put behind the key needs room too."""
    room = max(limit - _KEY_SUFFIX, 0)
    if key is not None and len(key) > room:
        raise Failed(
            f"--idempotency-key takes at most {room} characters ({limit}, less what the number of the batch takes),"
            f" not {len(key)}",
            code=USAGE,
        )


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


class Putting:
    """One run: gathers batches, puts them, and keeps count."""

    def __init__(
        self, store: TopicStore, topic: Topic, source: InputSource, wish: Wish, gently: Interrupts
    ) -> None:
        self.topic = topic
        self.source = source
        self.wish = wish
        self.gently = gently
        self.limits = store.limits
        self.batch_max = min(wish.batch, store.limits.records_per_write)
        self.stored = self.duplicates = self.bytes = self.batches = 0
        self.is_created = self.is_deduped = False
        self.first_seq: int | None = None
        self.last: Appended | None = None
        self.started = time.monotonic()
        self._batch: list[Any] = []
        self._lines: list[int] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def steps(self) -> Iterator[None]:
        """Put everything; one step a batch.

        Raises:
            BadLine: that line, with everything before it stored.
        """
        try:
            for number, payload in payloads(self.source, self.wish.form, line_max=self.limits.record_bytes):
                if number < self.wish.from_line:
                    continue
                self._batch.append(self._record(number, payload))
                self._lines.append(number)
                if len(self._batch) >= self.batch_max or (
                    not self.wish.idempotency_key and self.source.is_waiting
                ):
                    self._put()
                    yield
        except BadLine:
            if self._batch and not self.wish.idempotency_key:
                self._put()
            raise
        if self._batch:
            self._put()
            yield

    def _record(self, number: int, payload: bytes) -> Any:
        from msgspec import Raw

        wish = self.wish
        tag = field_text(number, payload, wish.tag_field) if wish.tag_field else wish.tag
        key = field_text(number, payload, wish.key_field) if wish.key_field else wish.key
        if "dedup_id" in wish.of_a_job and (self.stored or self.duplicates or self._batch):
            raise BadLine(number, "is another record, and --dedup-id is the id of one")
        if tag is None and key is None and not wish.of_a_job:
            return Raw(payload)
        return {"data": Raw(payload), "tag": tag, "key": key, **wish.of_a_job}

    def _put(self) -> None:
        from topics.kernel.errors import Rejected

        batch, lines = self._batch, self._lines
        self._batch, self._lines = [], []
        self.gently.check()
        bad: BadLine | None = None
        while batch:
            try:
                self._put_many(batch)
                break
            except Rejected as refused:
                blamed = _BLAMED.match(refused.message)
                if blamed is None:
                    raise
                index = int(blamed[1])
                assert index < len(batch)
                bad = BadLine(lines[index], blamed[2].removeprefix("."))
                batch = (
                    [] if self.wish.idempotency_key else batch[:index]
                )  # what is before it, if that is good
        if bad is not None:
            raise bad
        self.gently.check()
        while self.wish.rate and (left := self.stored / self.wish.rate - self.seconds) > 0:
            time.sleep(min(left, _SLEEP_MAX))

    def _put_many(self, batch: list[Any]) -> None:
        key = self.wish.idempotency_key
        batch_key = None if key is None else f"{key}/{self.batches}"
        with self.gently.busy():
            reply = self.topic.put_many(
                batch, node=self.wish.node, idempotency_key=batch_key, require_same_body=False
            )
        if reply.same_body is False:
            raise Failed(
                f"the key {key!r} was used lately for other records; nothing of this batch is stored: choose another"
            )
        self.batches += 1
        self.is_created = self.is_created or reply.created
        self.is_deduped = self.is_deduped or reply.deduped
        self.last = reply
        if not reply.deduped:
            self.stored += len(batch)
            self.first_seq = self.first_seq or reply.first_seq
        else:
            self.duplicates += len(batch)


def _run(putting: Putting, *, as_json: bool) -> None:
    """All steps, under a bar if somebody looks, then what became of it."""
    error: BaseException | None = None
    try:
        _watched(putting)
    except BaseException as raised:  # noqa: BLE001 -- raised again below, once it is told what is stored
        error = raised
    failure = _failure(putting, error)
    if as_json:
        _print_json(putting, failure)
    elif putting.stored or error is None:
        _print_summary(putting)
    if failure is not None:
        raise failure


def _watched(putting: Putting) -> None:
    if not has_bar():
        for _ in putting.steps():
            pass
        return
    source, topic = putting.source, putting.topic.name
    with progress(total=source.bytes_total, what=topic) as bar:
        task = bar.task_ids[0]
        for _ in putting.steps():
            total = f"/{size(source.bytes_total)}" if source.bytes_total else ""
            bar.update(
                task,
                completed=source.bytes_read,
                bytes=f"{size(source.bytes_read)}{total}",
                records=counted(putting.stored, "record"),
                rate=rate(putting.stored, putting.seconds, "record"),
            )


def _failure(putting: Putting, error: BaseException | None) -> BaseException | None:
    from topics.kernel.errors import Rejected, TopicsError

    stored = (
        f"{counted(putting.stored, 'record')} stored before it" if putting.stored else "nothing is stored"
    )
    if isinstance(error, BadLine):
        where = "item" if putting.wish.form == "json" else "line"
        is_new_start = putting.wish.idempotency_key or not putting.stored
        again = "run it again" if is_new_start else f"go on with --from-line {error.place}"
        hint = "; for plain text give --format text" if _looks_like_text(putting, error) else ""
        return Failed(
            f"{putting.source.name} {where} {error.place}: {error.why}{hint};"
            f" {stored}: mend the {where} and {again}"
        )
    if isinstance(error, Failed):
        return Failed(f"{error}; {stored}", code=error.code)
    if isinstance(error, TopicsError):
        if not isinstance(error, Rejected) and getattr(error, "sent", True):
            stored += ", and whether the last batch is there too cannot be told"
        failure = Failed(f"{error.message}; {stored}", code=code_of(error))
        failure.__cause__ = error
        return failure
    return error


def _looks_like_text(putting: Putting, error: BadLine) -> bool:
    return putting.wish.form == "jsonl" and putting.stored == 0 and "not JSON" in error.why


def _seqs(putting: Putting) -> str:
    if putting.last is None or putting.first_seq is None:
        return ""
    return f" (seqs {putting.first_seq}\u2013{putting.last.last_seq})"


def _print_summary(putting: Putting) -> None:
    name, seconds = putting.topic.name, putting.seconds
    if putting.last is None:
        click.echo(f"{name}: no records in {putting.source.name}, nothing stored")
        return
    parts = [f"{counted(putting.stored, 'record')} stored{_seqs(putting)}"]
    if putting.duplicates:
        parts.append(f"{counted(putting.duplicates, 'record')} had been stored before with this key")
    parts.append(f"{size(putting.source.bytes_read)} in {seconds:.2f} s")
    if putting.stored > BATCH_DEFAULT:
        parts.append(rate(putting.stored, seconds, "record"))
    click.echo(f"{name}: {', '.join(parts)}")


def _print_json(putting: Putting, failure: BaseException | None) -> None:
    last = putting.last
    result: dict[str, Any] = {
        "topic": putting.topic.name,
        "count": putting.stored,
        "duplicates": putting.duplicates,
        "first_seq": putting.first_seq,
        "last_seq": last.last_seq if last is not None and putting.stored else None,
        "head_seq": last.head_seq if last is not None else None,
        "durable_seq": last.durable_seq if last is not None else None,
        "created": putting.is_created,
        "bytes": putting.source.bytes_read,
        "seconds": round(putting.seconds, 6),
    }
    if failure is not None:
        result["error"] = str(failure) or type(failure).__name__
    sys.stdout.buffer.write(json_line(result))
