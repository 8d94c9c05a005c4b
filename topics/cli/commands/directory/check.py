"""`fsck` and `inspect`: is a data directory whole, and what is in one of its files.

Neither opens a store or takes a lock, so both work on a directory that a running server owns. Exit codes of `fsck`: 0
nothing is wrong · 1 something is · 2 it could not be looked at.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.core.failure import USAGE, Failed, say
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.paths import PathName, cannot_write, check_overwrites, force_option
from topics.cli.io.quantities import counted, size
from topics.cli.io.terminal import TerminalStyle, has_bar, json_line, progress, safe

if TYPE_CHECKING:
    from topics.audit.fsck import FsckReport
    from topics.audit.repair.repairing import Repair
    from topics.audit.scan.rows import Violation
    from topics.host.cold.segment_stores import SegmentStore

COULD_NOT: Final = 2
ALIKE_MAX: Final = 10  # rows of one check and one file that are printed
NAMED_MAX: Final = 10  # ranges of seqs, or topics, on a line
_COLOURS: Final = {"error": "red", "undecidable": "yellow", "note": "cyan"}


@click.command()
@click.argument("directory", required=False, type=PathName())
@click.option("--repair", "mend", is_flag=True, help="Make it whole: keep what is intact, tell what is lost.")
@click.option(
    "--jobs", type=click.IntRange(1, 64), help="Processes; as many as the machine has, unless given."
)
@click.option(
    "--acks", type=PathName(exists=True, dir_okay=False), metavar="FILE",
    help="What clients were told is stored: JSON lines or Parquet of topic, seq, digest.",
)  # fmt: skip
@click.option("--out", type=PathName(dir_okay=False), metavar="FILE", help="All of it as JSON.")
@force_option
@json_option
@common_options
@pass_invocation
def fsck(
    invocation: Invocation, directory: Path | None, mend: bool, jobs: int | None, acks: Path | None, out: Path | None,
    force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check a data directory, or a backup. Nothing is changed, and nobody is in the way.

    With --repair, of a directory that nobody has open: every intact record is kept, what is gone becomes a lost range
    that readers are told of, and what is taken out of use goes to repaired-TIME/ in the directory. Then it is checked.

    Records in a cold tier are looked at where --cold-dir names it; without it they are an error.

    Exit code 0: nothing is wrong; 1: something is; 2: it could not be looked at.
    """
    from topics.audit.fsck import Options
    from topics.audit.fsck import fsck as look
    from topics.audit.report.violations import document, json_lines
    from topics.host.cold.ownership import NOTE_FILE
    from topics.host.directory.owner import same_boot_at
    from topics.host.system.readonly import ReadOnlyDisk
    from topics.kernel.errors import CannotOpen, TopicsError

    root = root_of(invocation, directory)
    if out is not None:
        check_overwrites("--out", out, force=force)
    try:
        cold, cold_dir = cold_place(invocation)
        if mend:
            _repair(root, cold, why_unseen(invocation), as_json=as_json)
        options = Options(
            same_boot=same_boot_at(root),
            jobs=jobs or os.cpu_count() or 1,
            acks=_load(acks),
            cold=cold,
            cold_dir=cold_dir,
            unseen=why_unseen(invocation),
        )
        with bytes_bar(root.name) as tell:
            report = look(ReadOnlyDisk(root), where=str(root), options=options, progress=tell)
    except (CannotOpen, OSError, TopicsError) as error:
        raise Failed(error, code=COULD_NOT, root=root) from error
    if out is not None:
        try:
            out.write_bytes(document(report))
        except OSError as error:
            raise cannot_write("--out", out, error, code=COULD_NOT) from error
    if as_json:
        for one in json_lines(report):
            sys.stdout.buffer.write(one)
    else:
        print_report(report)
    if cold is None and (root / NOTE_FILE).exists():
        tell_unseen(invocation)
    tell_unsettled(report)
    raise click.exceptions.Exit(report.exit_code)


def _repair(root: Path, cold: SegmentStore | None, unseen: str, *, as_json: bool) -> None:
    from topics.audit.repair.offline import repair_directory
    from topics.host.cold.ownership import NOTE_FILE

    if cold is None and (root / NOTE_FILE).exists():
        raise Failed(
            f"{root} has segments in a cold tier, without which it is not repaired: {unseen}", code=COULD_NOT
        )
    done = repair_directory(root, cold=cold)
    _tell_repaired(done, root)
    if as_json:
        sys.stdout.buffer.write(json_line(_repair_row(done)))


def _tell_repaired(done: Repair, root: Path) -> None:
    """A line on stderr for each topic that has lost something, each hole of the log, and what was made."""
    if not done.aside:
        say(
            "nothing to repair here: what there is, the next start makes good by itself",
            "topics: ",
            colour="cyan",
        )
        return
    for topic, ranges in done.lost.items():
        known, behind = _divided(ranges, done.missing.get(topic, 0))
        if known:
            count = counted(sum(last - first + 1 for first, last in known), "record")
            say(f"topic {topic!r}: {count} cannot be had any more ({_seqs(known)})", "LOST: ", colour="red")
        if behind:
            first, last = behind
            say(
                f"topic {topic!r}: what was written from seq {first} on, if there was anything, is gone with the "
                f"log. Up to seq {last} none is given out again, and readers are told that they are lost: {last} is "
                "an upper bound",
                "LOST: ",
                colour="red",
            )
    for hole in done.holes:
        say(
            f"up to {counted(hole.frames, 'frame')} of the log at {hole.path}, offset {hole.offset}, of which nothing "
            "says what they were: a topic made, a delete or a change of settings there is gone",
            "LOST: ",
            colour="red",
        )
    if done.in_doubt:
        say(
            f"records that were deleted may be back in {_few(list(map(repr, done.in_doubt)))}",
            "LOST: ",
            colour="red",
        )
    for topic, seqs in done.dropped.items():
        what = f"{counted(len(seqs), 'damaged record')} that had been deleted or had expired"
        few = _seqs([(seq, seq) for seq in seqs])
        say(f"topic {topic!r}: {what} ({few}): nobody misses them", "dropped: ", colour="cyan")
    made = counted(done.segments, "segment")
    say(f"{made} written; what was taken out of use is in {root / done.aside}", "repaired: ", colour="cyan")


def _repair_row(done: Repair) -> dict[str, Any]:
    """The same for machines."""
    return {
        "repaired": done.aside,
        "segments": done.segments,
        "lost": {topic: list(ranges) for topic, ranges in done.lost.items()},
        "missing": dict(done.missing),
        "holes": [{"file": one.path, "offset": one.offset, "frames": one.frames} for one in done.holes],
        "in_doubt": list(done.in_doubt),
        "dropped": {topic: list(seqs) for topic, seqs in done.dropped.items()},
    }


def _divided(
    ranges: Sequence[tuple[int, int]], missing: int
) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """The seqs that are surely lost, and those behind the last record, of which nobody knows how many there were."""
    if not missing:
        return list(ranges), None
    first, last = ranges[-1]
    behind = last - missing + 1
    known = [*ranges[:-1], *([(first, behind - 1)] if first < behind else ())]
    return known, (behind, last)


def _seqs(ranges: Sequence[tuple[int, int]]) -> str:
    """`seq 5`, `seqs 5, 7 to 9 …`."""
    word = "seq" if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "seqs"
    return f"{word} {_few([str(a) if a == b else f'{a} to {b}' for a, b in ranges])}"


def _few(texts: Sequence[str]) -> str:
    return ", ".join(texts[:NAMED_MAX]) + (" …" if len(texts) > NAMED_MAX else "")


def root_of(invocation: Invocation, directory: Path | None) -> Path:
    if directory is None and invocation.settings.values["url"].source == "--url":
        raise Failed("this works on a directory, not on a server: give --data DIR", code=USAGE)
    root = directory or invocation.settings.data
    if not root.is_dir():
        field = invocation.typed("data") if directory is None else "DIRECTORY"
        raise Failed(f"{field}: {root} is no directory: name a data directory", code=COULD_NOT)
    return root


def cold_place(invocation: Invocation) -> tuple[SegmentStore | None, str | None]:
    """The cold tier that the settings name, if it is there: nothing is made."""
    from topics.host.cold.place import folder_of, open_cold

    place = invocation.settings.options().cold_dir
    folder = None if place is None else folder_of(place)
    if place is None or (folder is not None and not Path(folder).is_dir()):
        return None, None
    return open_cold(place), place


def why_unseen(invocation: Invocation) -> str:
    """Why the cold tier cannot be looked at, and what to do, if `cold_place` finds none."""
    from topics.audit.checks.coldtier import HOW

    place = invocation.settings.options().cold_dir
    return HOW if place is None else f"{place} is not there: mount it, or {HOW}"


def tell_unseen(invocation: Invocation) -> None:
    """A directory that has a cold tier was looked at without it."""
    say(f"records in the cold tier were not looked at: {why_unseen(invocation)}", "topics: ")


def _load(acks: Path | None) -> Any:
    from topics.audit.checks.acks import load_acks

    return None if acks is None else load_acks(acks)


@contextmanager
def bytes_bar(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar over bytes, on a terminal."""
    if not has_bar():
        yield None
        return
    with progress(total=1, what=name) as bar:
        task = bar.task_ids[0]

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, bytes=f"{size(done)}/{size(total)}")

        yield tell


def tell_unsettled(report: FsckReport) -> None:
    if report.unsettled:
        say("it changed too fast to be looked at as a whole; try again", "topics: ", colour="red")


def _alike(one: Violation) -> tuple[str, str, str]:
    """What one cause makes many of."""
    return one.check, one.file, one.severity.value


def print_report(report: FsckReport) -> None:
    from topics.audit.report.violations import line

    pen = TerminalStyle(sys.stdout)
    told = Counter(_alike(one) for one in report.violations)
    shown: Counter[tuple[str, str, str]] = Counter()
    for one in report.violations:
        shown[_alike(one)] += 1
        if shown[_alike(one)] > ALIKE_MAX + 1:
            continue
        severity = one.severity.value
        head = pen.paint(f"{severity.upper():<11}", _COLOURS[severity], bold=True)
        more = told[_alike(one)] - ALIKE_MAX
        if shown[_alike(one)] <= ALIKE_MAX or more == 1:
            click.echo(f"{head} {one.check}: {safe(line(one))}")
        else:
            click.echo(f"{head} {one.check}: {more:,} more in {safe(one.file)}; --json lists them")
    counts = {name: sum(one.severity.value == name for one in report.violations) for name in _COLOURS}
    files = f"{counted(report.files, 'file')} of segments and log"
    seen = f"{files}, {size(report.bytes)}, {counted(report.frames, 'frame')}"
    found = ", ".join(
        counted(count, name) if name != "undecidable" else f"{count} undecidable"
        for name, count in counts.items()
        if count
    )
    click.echo(f"{report.where}: {seen}: {found or 'nothing is wrong'}")


@click.command()
@click.argument("file", type=PathName(exists=True, dir_okay=False))
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N items.")
@click.option(
    "--seq", "seqs", metavar="SEQ|FIRST-LAST", help="Only what is about these seqs, damaged or unknown."
)
@json_option
@common_options
@pass_invocation
def inspect(invocation: Invocation, file: Path, limit: int | None, seqs: str | None, as_json: bool) -> None:  # noqa: ARG001 -- as every command
    """Print what is in a file of a data directory, damaged places too: log, segment, snapshot, LOCK …"""
    from topics.audit.dump.dumping import dump

    first, last = _seq_range(seqs)
    shown = 0
    for item in dump(file):
        seq = item.get("seq")
        if (
            seqs is not None
            and item["what"] not in ("DAMAGED", "UNKNOWN")
            and not (isinstance(seq, int) and first <= seq <= last)
        ):
            continue
        if as_json:
            sys.stdout.buffer.write(json_line(item))
        else:
            click.echo(_line(item))
        shown += 1
        if shown == limit:
            return
    if seqs is not None and not shown:
        say(
            f"nothing in {file} is about {'seqs' if '-' in seqs else 'seq'} {seqs}", "topics: ", colour="cyan"
        )


def _seq_range(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 0
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
        raise Failed(f"--seq takes a seq or FIRST-LAST, not {text!r}", code=USAGE)
    found = int(first), int(last) if dash else int(first)
    if found[0] > found[1]:
        raise Failed(f"--seq {text}: {found[0]} is above {found[1]}", code=USAGE)
    return found


def _line(item: Mapping[str, Any]) -> str:
    """An item on a line: where, what, and its fields."""
    offset = f"{item['offset']:>10}" if "offset" in item else " " * 10
    fields = " ".join(
        f"{name}={_value(value)}" for name, value in item.items() if name not in ("offset", "what")
    )
    return safe(f"{offset}  {item['what']}  {fields}")


def _value(value: object) -> str:
    import msgspec

    return (
        value
        if isinstance(value, str) and value and " " not in value
        else msgspec.json.encode(value).decode()
    )
