"""What a terminal gets and a pipe does not: colours, tables that fit, progress. rich is imported only for these.

Without rich (the extra of that name) a table's columns are as wide as what is in them, and no bar is drawn.

Text from records is shown with its control characters spelled out: stored data must not be able to drive a terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
WIDTH_PIPED: Final = 100
TABLE_WIDTH_PIPED: Final = 1000  # a row stays on its line, whatever grep looks for in it
_WIDTH: Final = re.compile(r"0*[1-9][0-9]{0,8}")


def is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def is_coloured(stream: IO[str] | None) -> bool:
    """On a terminal, unless NO_COLOR is set (to anything but nothing) or the terminal is dumb."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def safe(text: str) -> str:
    """The text on one line, its control characters spelled out in hex."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


class TerminalStyle:
    """Colours for one stream, or none."""

    def __init__(self, stream: IO[str]) -> None:
        self.coloured = is_coloured(stream)
        self.width = shutil.get_terminal_size().columns if is_terminal(stream) else 0

    def paint(self, text: str, colour: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
        return click.style(text, fg=colour, bold=bold or None, dim=dim or None) if self.coloured else text


def console(stream: IO[str] | None = None) -> Console:
    """A rich console. Without a terminal it keeps to a fixed width, and to no colour.

    A COLUMNS that is no width (0, say) is as good as none.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `main`, which knows that a reader who goes away is no error."""
            raise BrokenPipeError

    stream = stream or sys.stdout
    environment = dict(os.environ)
    if not _WIDTH.fullmatch(environment.get("COLUMNS", "")):
        environment.pop("COLUMNS", None)
    return Piped(
        file=stream, width=None if is_terminal(stream) else WIDTH_PIPED, highlight=False,
        color_system="auto" if is_coloured(stream) else None, _environ=environment,
    )  # fmt: skip


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()) -> None:
    """A plain table on stdout: columns named in `numbers` to the right."""
    right = set(numbers)
    if not has_rich():
        _print_plain(heads, rows, right)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", show_header=any(heads)
    )
    for head in heads:
        table.add_column(
            head, justify="right" if head in right else "left", no_wrap=head in right, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))
    screen = console()
    if not is_terminal(sys.stdout):
        screen.width = TABLE_WIDTH_PIPED
    screen.print(table)


def has_rich() -> bool:
    try:
        import rich  # noqa: F401 -- whether it is there
    except ModuleNotFoundError:
        return False
    return True


def has_bar() -> bool:
    """Whether somebody would see what `progress` draws."""
    return is_terminal(sys.stderr) and has_rich()


def _print_plain(heads: Sequence[str], rows: Iterable[Sequence[str]], right: set[str]) -> None:
    lines = [*([heads] if any(heads) else []), *([safe(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))] if lines else []
    for line in lines:
        cells = zip(heads, line, widths, strict=True)
        padded = (cell.rjust(width) if head in right else cell.ljust(width) for head, cell, width in cells)
        click.echo("  ".join(padded).rstrip())


def json_line(value: object) -> bytes:
    """A line of JSON. What is no text (a file may be named by any bytes) has those bytes spelled out."""
    import msgspec

    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_spelled(value)) + b"\n"


def _spelled(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_spelled(key): _spelled(one) for key, one in value.items()}
        case list():
            return [_spelled(one) for one in value]
    return value


def progress(*, total: int | None, what: str) -> Progress:
    """A bar on stderr over bytes, with records and their rate. Advance its one task."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn() if total else TimeElapsedColumn(),
        TextColumn("{task.fields[bytes]}  {task.fields[records]}  {task.fields[rate]}"),
        console=console(sys.stderr),
        transient=True,
    )
    bar.add_task(what, total=total, bytes="", records="", rate="")
    return bar
