"""`backup`, `verify` and `restore`: a copy of a store that is being used, whether it is whole, and a store made of it.

A backup reads bytes, not records, so what is damaged comes along. What the store knows of that is told when the backup
is written, and the code is 1 then, as for a restore; the rest is for `verify`.

Exit codes of `verify`: 0 it is whole · 1 it is not · 2 it could not be looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.commands.directory.check import (
    COULD_NOT,
    bytes_bar,
    cold_place,
    print_report,
    tell_unseen,
    why_unseen,
)
from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.paths import PathName
from topics.cli.io.quantities import counted, moment, parse_moment, size
from topics.cli.io.terminal import TerminalStyle, json_line, print_table

if TYPE_CHECKING:
    from topics.cli.target.known import KnownDamage
    from topics.codec.manifest import Manifest, Written
    from topics.host.wal.cutting import Goal
    from topics.store.restore import Restored

_TOPICS_SHOWN: Final = 20
_SPANS_SHOWN: Final = 10
_NAME_BACKUP: Final = "name what topics backup has written"
_NAME_LOG: Final = "name the data directory that the backup was taken of, or a copy of its archive/ or wal/"


@click.command()
@click.argument("dest", type=PathName())
@click.option("--with-cold", is_flag=True, help="Copy what is in the cold tier too.")
@click.option(
    "--verify", "look", is_flag=True, help="Then look at every record in it, as topics verify does."
)
@json_option
@common_options
@pass_invocation
def backup(invocation: Invocation, dest: Path, with_cold: bool, look: bool, as_json: bool) -> None:
    """Write a backup to the directory DEST, which must not be there.

    Of a data directory that nobody has open, or of a server's (--url), while it serves. It holds every record that was
    acknowledged before, and is a data directory itself.

    Exit code 0: it is written; 1: records in it are damaged, or it failed, and then DEST is not there. With --verify
    those of topics verify.
    """
    from topics.cli.target.known import known_damages

    with invocation.there() as store, bytes_bar("backup") as tell:
        known = known_damages(store)
        with _telling_parents(dest):
            written = store.backup(dest, with_cold=with_cold, tell=tell)
    if as_json:
        _print_json(_written_fields(dest, written, known))
    else:
        _print_written(dest, written)
        if not look:
            hint = f"whether every record in it is whole: topics verify {dest}"
            click.echo(TerminalStyle(sys.stdout).paint(hint, dim=True))
    _tell_known(dest, known)
    code = _look_at(invocation, dest, as_json=as_json) if look else 0
    raise click.exceptions.Exit(max(code, 1 if known else 0))


@contextmanager
def _telling_parents(dest: Path) -> Iterator[None]:
    """Directories above `dest` are made with it, as above a data directory; it may have been a slip, so it is said."""
    parent = dest.parent
    is_there = parent.is_dir()
    yield
    if not is_there:
        say(f"made the directory {parent} too", "topics: ", colour="cyan")


def _tell_known(dest: Path, known: Sequence[KnownDamage]) -> None:
    for topic in dict.fromkeys(one.topic for one in known):
        its = [one for one in known if one.topic == topic]
        spans = [str(one.first) if one.first == one.last else f"{one.first}–{one.last}" for one in its]
        few = ", ".join(spans[:_SPANS_SHOWN]) + (" …" if len(spans) > _SPANS_SHOWN else "")
        say(
            f"topic {topic!r}: records of seq {few} are damaged in the store, and in {dest}",
            "DAMAGED: ",
            colour="red",
        )


def _written_fields(dest: Path, written: Written, known: Sequence[KnownDamage]) -> dict[str, Any]:
    manifest = written.manifest
    return {
        "backup": str(dest),
        "ts": manifest.ts,
        "bytes": manifest.size,
        "linked_bytes": written.linked,
        "files": len(manifest.files),
        "cold_segments": len(manifest.cold),
        "topics": _heads_of(manifest),
        "damages": [one.text for one in known],
    }


def _print_written(dest: Path, written: Written) -> None:
    manifest = written.manifest
    linked = f", {size(written.linked)} of it linked" if written.linked else ""
    _print_heads(_heads_of(manifest))
    click.echo(
        f"{dest}: {counted(len(manifest.topics), 'topic')} as of {moment(manifest.ts)}, "
        f"{size(manifest.size)} in {counted(len(manifest.files), 'file')}{linked}"
    )
    if manifest.cold:
        data = size(sum(segment.size for segment in manifest.cold))
        click.echo(
            f"{counted(len(manifest.cold), 'segment')} ({data}) of it stay in the cold tier: "
            "keep that as long as this backup, or take one --with-cold"
        )


@click.command()
@click.argument("directory", metavar="BACKUP", type=PathName())
@json_option
@common_options
@pass_invocation
def verify(invocation: Invocation, directory: Path, as_json: bool) -> None:
    """Check that a backup is whole: every file by its checksum, what a start would make of it, and all that fsck does.

    What the backup has left in the cold tier is looked at where --cold-dir names it; without it that is an error.

    Exit code 0: it is; 1: it is not; 2: it could not be looked at.
    """
    raise click.exceptions.Exit(_look_at(invocation, directory, as_json=as_json))


def _look_at(invocation: Invocation, directory: Path, *, as_json: bool) -> int:
    """Look at every record of a backup and say what is found. The exit code.

    Raises:
        Failed: it is no backup, or could not be looked at.
    """
    from topics.audit.fsck import Options, fsck_of_backup
    from topics.audit.report.violations import json_lines
    from topics.audit.scan.rows import Severity, Violation
    from topics.codec.manifest import MANIFEST_FILE
    from topics.host.backup.verifying import verify_backup
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import TopicsError

    if not directory.is_dir():
        raise Failed(f"BACKUP: {directory} is no directory: {_NAME_BACKUP}", code=COULD_NOT)
    disk, where = ReadOnlyDisk(directory), str(directory)
    try:
        with bytes_bar(directory.name) as tell:
            verified = verify_backup(disk, where, damages=False, tell=tell)
        findings = [
            Violation("", finding.file, "backup", Severity.ERROR, None, None, finding.what)
            for finding in verified.findings
        ]
        if verified.manifest is None:
            is_there = (directory / MANIFEST_FILE).exists()
            hint = "" if is_there else f"; of a data directory: topics fsck {directory}"
            raise Failed(f"{directory}: {verified.findings[0].what}{hint}")
        with bytes_bar(directory.name) as tell:
            cold, cold_dir = cold_place(invocation)
            options = Options(settled=True, cold=cold, cold_dir=cold_dir, unseen=why_unseen(invocation))
            report = fsck_of_backup(disk, where, options, findings=findings, progress=tell)
    except (TopicsError, OSError) as error:
        raise Failed(error, code=COULD_NOT, root=directory) from error
    if as_json:
        for line in json_lines(report):
            sys.stdout.buffer.write(line)
    else:
        print_report(report)
    if cold is None and verified.manifest.cold:
        tell_unseen(invocation)
    return report.exit_code


@click.command()
@click.argument("directory", metavar="BACKUP", type=PathName())
@click.argument("dest", type=PathName())
@click.option(
    "--archive", "logs", type=PathName(), multiple=True, metavar="DIR",
    help="The log behind the backup: a data directory, whose archive/ and wal/ are read, or a copy of either. "
    "May be given again.",
)  # fmt: skip
@click.option(
    "--to-ts", "--to-time", "to_time", metavar="TIME",
    help="Up to this moment: ms since 1970, or as 2026-11-21T14:30.",
)  # fmt: skip
@click.option(
    "--to-seq",
    "seqs",
    multiple=True,
    metavar="TOPIC=SEQ",
    help="Up to this seq. May be given again, for other topics.",
)
@json_option
@common_options
@pass_invocation
def restore(
    invocation: Invocation,  # noqa: ARG001 -- as every command
    directory: Path,
    dest: Path,
    logs: tuple[Path, ...],
    to_time: str | None,
    seqs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a store of a backup, in the directory DEST, which must not be there.

    With --archive the log behind the backup is added, all of it or up to a moment or a seq, at whole writes. The backup
    and the log are not changed. A log that is damaged or not complete before that is refused, and the message says what
    can be had. CUT: an end of it that no sync is known to have covered, and that is not whole.

    \b
      topics restore nightly data --archive old-data
      topics restore nightly data --archive old-data --to-time 2026-11-21T14:30
      topics restore nightly data --archive old-data --to-seq orders=18250
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.codec.manifest import MANIFEST_FILE
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import Corrupt
    from topics.store.restore import restore as rebuild

    goal = _goal(to_time, seqs)
    for field, place, what in (
        ("BACKUP", directory, _NAME_BACKUP),
        *(("--archive", log, _NAME_LOG) for log in logs),
    ):
        if not place.is_dir():
            raise Failed(f"{field}: {place} is no directory: {what}", code=COULD_NOT)
    try:
        with bytes_bar(dest.name) as tell, _telling_parents(dest):
            disks = [ReadOnlyDisk(log) for log in logs]
            names = [str(log) for log in logs]
            restored = rebuild(ReadOnlyDisk(directory), dest, logs=disks, names=names, goal=goal, tell=tell)
    except Corrupt as error:
        if error.message.startswith(MANIFEST_FILE):
            raise Failed(f"{directory}: {error.message}") from error
        raise
    if as_json:
        _print_json(_restored_fields(dest, restored))
    else:
        _print_restored(dest, restored)
    short = _falls_short(restored, goal, logs)
    if short:
        say(short, "topics: ", colour="red")
    for cut in _cuts_of(restored):
        say(cut, "CUT: ", colour="yellow")
    for damage in restored.damages:
        say(f"{damage}", "DAMAGED: ", colour="red")
    for path in restored.changed:
        say(f"{path} is not as the backup was written: topics verify {directory}", "DAMAGED: ", colour="red")
    raise click.exceptions.Exit(1 if short or restored.damages or restored.changed else 0)


def _cuts_of(restored: Restored) -> list[str]:
    """What of the log was left out although no goal asked for that: what nobody knows to have been durable."""
    lost = [
        f"{name} has lost its end: what was written last in it is not restored" for name in restored.unclosed
    ]
    return [*map(str, restored.cuts), *lost]


def _falls_short(restored: Restored, goal: Goal, logs: Sequence[Path]) -> str:
    """Why it is not what was asked for: no log where one was named, or one that ends before the moment. A log that goes
    on behind the moment, be it by a mark alone, has reached it.
    """
    places = ", ".join(map(str, logs))
    if logs and restored.log_end_ts is None:
        return f"--archive: nothing behind the backup was found in {places}: {_NAME_LOG}"
    end = max(restored.manifest.ts, restored.log_end_ts or 0)
    if goal.until_ms is None or restored.cut or goal.until_ms <= end:
        return ""
    what = f"the log in {places}" if logs else "the backup, without a log behind it (--archive),"
    return f"--to-time: {moment(goal.until_ms)} is not reached: {what} ends at {moment(end)}"


def _goal(to_time: str | None, seqs: Sequence[str]) -> Goal:
    from topics.host.wal.cutting import Goal

    if to_time is not None and seqs:
        raise Failed("give --to-time or --to-seq, not both", code=USAGE)
    if to_time is not None:
        try:
            return Goal(until_ms=parse_moment(to_time))
        except ValueError as error:
            raise Failed(f"--to-time: {error}", code=USAGE) from None
    wanted: dict[str, int] = {}
    for text in seqs:
        topic, _, seq = text.rpartition("=")
        if not topic or not (seq.isascii() and seq.isdigit()) or len(seq) > 20:
            raise Failed(f"--to-seq takes TOPIC=SEQ, not {text!r}", code=USAGE)
        if topic in wanted:
            raise Failed(
                f"--to-seq: {topic!r} is given twice, as {wanted[topic]} and {int(seq)}: give one", code=USAGE
            )
        wanted[topic] = int(seq)
    return Goal(seqs=wanted)


def _restored_fields(dest: Path, restored: Restored) -> dict[str, Any]:
    return {
        "store": str(dest),
        "backup_ts": restored.manifest.ts,
        "last_ts": restored.last_ts,
        "log_end_ts": restored.log_end_ts,
        "cut": restored.cut,
        "tails_cut": _cuts_of(restored),
        "topics": dict(restored.heads),
        "damages": [str(damage) for damage in restored.damages],
        "changed": list(restored.changed),
    }


def _print_restored(dest: Path, restored: Restored) -> None:
    _print_heads(restored.heads)
    what = "cut at the goal" if restored.cut else "all that there was"
    # Without a log behind the backup only its records tell when: an ack or a delete in it may be later than they.
    last = "record" if restored.log_end_ts is None else "change"
    changed = (
        f"the last {last} at {moment(restored.last_ts)}" if restored.last_ts else "no record was ever written"
    )
    click.echo(
        f"{dest}: {counted(len(restored.heads), 'topic')}, {changed} ({what}; "
        f"the backup was taken at {moment(restored.manifest.ts)})"
    )
    if restored.manifest.cold:
        click.echo(
            f"in the cold tier of its original: {counted(len(restored.manifest.cold), 'segment')} of it; "
            "keep that, and name it with --cold-dir: it is only read"
        )


def _heads_of(manifest: Manifest) -> dict[str, int]:
    return {topic.name: topic.head_seq for topic in manifest.topics}


def _print_heads(heads: Any) -> None:
    shown = sorted(heads.items())[:_TOPICS_SHOWN]
    if shown:
        print_table(("topic", "head"), [(name, str(head)) for name, head in shown], numbers=("head",))
    if len(heads) > len(shown):
        click.echo(f"and {counted(len(heads) - len(shown), 'topic')} more")


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json_line(fields))
    sys.stdout.flush()
