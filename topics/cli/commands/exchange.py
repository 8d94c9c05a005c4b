"""`export` and `import`: topics into files, JSON lines, CSV or Parquet, and into directories of ledgerq; and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from topics.cli.commands.manage import parse_fields
from topics.cli.commands.read import (
    from_option,
    from_ts_option,
    match_option,
    pages,
    parse_match,
    read_choice,
    since_option,
)
from topics.cli.completion.types import FILE, TOPIC
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import (
    Invocation,
    common_options,
    file_options,
    format_option,
    json_option,
    pass_invocation,
)
from topics.cli.exchange.exporting import FORMATS, Exported, export_to, format_of, format_to_write
from topics.cli.exchange.importing import FORMATS as IMPORTS
from topics.cli.exchange.importing import ImportedFile
from topics.cli.exchange.outlet import is_standard_output
from topics.cli.exchange.putting import PutRules, Putting, check_key, line_max, put_all
from topics.cli.io.interrupts import stopping_gently
from topics.cli.io.paths import check_overwrites, force_option
from topics.cli.io.quantities import counted, seqs
from topics.cli.target.place import is_missing

if TYPE_CHECKING:
    from topics.log.floors import Gap

_SHOWN_MAX: Final = 20
_BATCH: Final = 5000

_directory_option = click.option(
    "--ledgerq", "directory", metavar="DIR", type=click.Path(path_type=Path),
    help="Instead of a file, the directory of a queue of ledgerq.",
)  # fmt: skip


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("file", type=FILE, required=False, metavar="[FILE|-]")
@format_option(FORMATS, "Where the file's name does not say it; --csv is short for --format csv.")
@force_option
@_directory_option
@from_option
@since_option
@from_ts_option
@match_option
@json_option
@common_options
@pass_invocation
def export(
    invocation: Invocation, topic: str, file: str | None, form: str | None, directory: Path | None,
    from_seq: int | None, since: str | None, from_ts: str | None, match: str | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write the records of a topic to a file, up to its head as it is now.

    The name says how: .jsonl, .csv or .parquet, the first two with .gz as well. A file is there whole or not at all;
    one that was there before stays, unless --force is given.
    What was lost is told on stderr, which and why; it is not in the file.

    With --ledgerq a new directory is made, in the dialect of ledgerq's architecture page; of a data directory or a
    backup.

    \b
      topics export quakes quakes.parquet
      topics export quakes - --match us | jq .data.properties.mag
      topics export mail --ledgerq mail-out --data my-data
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    choice = read_choice(from_seq=from_seq, since=since, from_ts=from_ts)
    reading = attrs.evolve(choice, match=parse_match(match))
    if directory is not None:
        from topics.cli.exchange.ledgerq import export_directory

        if force or (file, form) != (None, None) or {from_seq, since, from_ts, match} != {None}:
            raise Failed("--ledgerq takes a whole topic, and its directory instead of a file", code=USAGE)
        export_directory(invocation, directory, topic, as_json=as_json)
        return
    if file is None:
        raise Failed(f"say where to: topics export {topic} FILE, or - for standard output", code=USAGE)
    form = format_to_write(file, form)
    if not is_standard_output(file):
        check_overwrites("FILE", Path(file), force=force)
    tell = _LossTeller(is_quiet=as_json)
    with invocation.there() as store:
        state = store.topic(topic).state()
        done = Exported(topic=topic, file=file, format=form, epoch=state.epoch, head_seq=state.head_seq)
        found = pages(store, store.topic(topic), reading, stop_seq=state.head_seq)
        export_to(file, found, done, tell)
    _print_exported(done, as_json=as_json)


class _LossTeller:
    """Each loss on stderr, as long as there are not too many."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._left = 0 if is_quiet else _SHOWN_MAX

    def __call__(self, gap: Gap) -> None:
        from topics.cli.io.lines import gap_text

        if self._left:
            say(gap_text(gap), colour="red")
            self._left -= 1


def _print_exported(done: Exported, *, as_json: bool) -> None:
    import msgspec

    is_err = is_standard_output(done.file)
    if as_json:
        click.echo(msgspec.json.encode(attrs.asdict(done)).decode(), err=is_err)
        return
    of = (
        "" if done.first_seq is None or done.last_seq is None else f" ({seqs(done.first_seq, done.last_seq)})"
    )
    where = "standard output" if is_err else done.file
    click.echo(f"{done.topic}: {counted(done.records, 'record')}{of} written to {where}", err=is_err)
    if done.lost:
        total = sum(done.lost.values())
        why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(done.lost.items()))
        say(
            f"{counted(total, 'record')} of {done.topic} before these or between ({why})",
            "LOST: ",
            colour="red",
        )


@click.command("import")
@click.argument("topic", type=TOPIC)
@click.argument("given", type=FILE, nargs=-1, metavar="[FILE|-] [FIELD=VALUE]…")
@format_option(
    IMPORTS,
    "Whatever the file's name says; --csv is short for --format csv. kafka-json: as kcat -J writes it.",
)
@_directory_option
@file_options
@click.option(
    "--read-position", "read_id", type=click.IntRange(1), metavar="ID",
    help="Of ledgerq: what is below this id is consumed. Default: as the directory says.",
)  # fmt: skip
@click.option(
    "--new-timestamps", "is_now", is_flag=True,
    help="Of ledgerq: records get the time of this import, where their own cannot be kept.",
)  # fmt: skip
@json_option
@common_options
@pass_invocation
def import_(
    invocation: Invocation, topic: str, given: tuple[str, ...], form: str | None, directory: Path | None,
    idempotency_key: str | None, from_line: int, read_id: int | None, is_now: bool, as_json: bool,
) -> None:  # fmt: skip
    """Append what an export has written to a topic, made (with these fields of its config) if it is not there.

    Data, node, tag, key, content type and meta come back as they were; seq and time are new, for those a topic gives
    itself. Each write is all or nothing; at a bad line it stops, with everything before it stored.

    With --kafka-json each line is a message of Kafka: key, value and headers become key, data and meta, and partition,
    offset and time are in meta, too.

    With --ledgerq a directory of ledgerq becomes a new topic: a queue, unless type=log says otherwise. Seqs are its
    ids, headers are meta, and in a queue what is consumed is gone. The directory is only read; entries that are damaged
    are left out and told, and the exit code is 1.

    \b
      topics import quakes quakes.parquet durability=fsync
      kcat -C -J -e -t orders -b broker | topics import orders - --kafka-json
      topics import mail --ledgerq /var/lib/mail --data new-data
      topics import mail-failed --ledgerq /var/lib/mail-dlq type=log --data new-data
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.kernel.ids import check_topic_name

    check_topic_name(topic)
    if directory is not None:
        from topics.cli.exchange.ledgerq import import_directory

        if form is not None or idempotency_key is not None or from_line > 1:
            raise Failed("--ledgerq takes a whole directory, and no flag of files", code=USAGE)
        config = parse_fields(given)
        import_directory(
            invocation, directory, topic, config, read_id=read_id, is_now=is_now, as_json=as_json
        )
        return
    if not given:
        raise Failed(f"say where from: topics import {topic} FILE, or - for standard input", code=USAGE)
    if read_id is not None or is_now:
        raise Failed("--read-position and --new-timestamps go with --ledgerq only", code=USAGE)
    file, *fields = given
    if Path(file).is_dir():
        raise Failed(
            f"{file} is a directory: name a file; a directory of ledgerq by --ledgerq {file}", code=USAGE
        )
    form = format_of(file, form, IMPORTS)
    unit = "row" if form == "parquet" else "line"
    rules = PutRules(batch=_BATCH, idempotency_key=idempotency_key, from_line=from_line, unit=unit)
    _import_file(invocation, topic, file, form, parse_fields(tuple(fields)), rules, as_json=as_json)


def _import_file(
    invocation: Invocation, topic: str, name: str, form: str, config: dict[str, Any], rules: PutRules, *, as_json: bool
) -> None:  # fmt: skip
    check_key(rules, invocation.settings.values["max_idempotency_key_chars"].value)
    file = ImportedFile(name, form)
    try:
        with invocation.writing() as store, stopping_gently() as gently:
            is_new = bool(config) and is_missing(store, topic)
            handle = store.create(topic, **config) if config else store.topic(topic)
            records = file.records(line_max=line_max(store), from_line=rules.from_line)
            putting = Putting(store, handle, records, file.origin, rules, gently)
            putting.is_created = is_new
            put_all(putting, as_json=as_json)
    finally:
        file.close()
        for note in file.notes():
            say(note, "note: ", colour="cyan")
