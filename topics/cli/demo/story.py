"""How the demo is told: steps, proofs as they are made, and a closing table. As JSON it is silent until its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

import topics
from topics.cli.io.terminal import console, is_terminal, json_line

if TYPE_CHECKING:
    from rich.text import Text

    from topics.cli.demo.input import Input

_HOLDS: Final = "\u2713"
_FAILS: Final = "\u2717"


@attrs.frozen(kw_only=True)
class Check:
    """One proof: what must hold, what was expected, what was found."""

    step: str
    what: str
    expected: str
    found: str
    holds: bool


class Story:
    """The teller. `is_silent`: only the checks are kept."""

    def __init__(self, *, is_silent: bool) -> None:
        self.checks: list[Check] = []
        self.step = ""
        self._steps = 0
        self._silent = is_silent
        self._console = console(sys.stdout)

    def open(self, given: Input, home: Path) -> None:
        from rich.panel import Panel

        about = (
            f"[bold]topics {topics.__version__}[/bold]: a durable event log.\n"
            f"Input: {_escaped(given.name)}, {len(given.rows):,} records"
            f"{f' ({given.note})' if given.note else ''}.\n"
            f"[dim]All of this happens in {_escaped(str(home))}.[/dim]"
        )
        self._print(Panel(about, border_style="cyan", padding=(0, 2)))

    def begin(self, step: str, why: str) -> None:
        """A step, with what it is about."""
        self.step = step
        self._steps += 1
        self._print()
        self._print(f"[bold cyan]{self._steps}  {step}[/bold cyan]")
        self.say(why)

    def say(self, text: str) -> None:
        from rich.padding import Padding

        self._print(Padding(f"[dim]{_escaped(text)}[/dim]", (0, 0, 0, 3), expand=False))

    def show(self, text: Text) -> None:
        from rich.padding import Padding

        self._print(Padding(text, (0, 0, 0, 5), expand=False))

    def prove(self, what: str, *, expected: object, found: object, holds: bool | None = None) -> None:
        """A proof, told at once; by equality, unless the caller says whether it holds."""
        check = Check(
            step=self.step,
            what=what,
            expected=_worded(expected),
            found=_worded(found),
            holds=expected == found if holds is None else holds,
        )
        self.checks.append(check)
        from rich.padding import Padding

        mark = f"[green]{_HOLDS}[/green]" if check.holds else f"[bold red]{_FAILS}[/bold red]"
        tail = f"[bold]{_escaped(check.found)}[/bold]"
        if not check.holds:
            tail += f" [red]but expected {_escaped(check.expected)}[/red]"
        self._print(Padding(f"{mark} {_escaped(what)}: {tail}", (0, 0, 0, 3), expand=False))

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar that is gone when its work is done; nothing without a terminal."""
        if self._silent or not is_terminal(sys.stdout):
            yield lambda _done: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        with Progress(
            TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(),
            console=self._console, transient=True,
        ) as bar:  # fmt: skip
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)

    def close(self, seconds: float, *, kept: Path | None) -> None:
        """The table of all proofs, and where to go on."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.ROUNDED, border_style="cyan", header_style="bold", expand=False)
        table.add_column("step", no_wrap=True)
        table.add_column("what was proved", overflow="fold")
        table.add_column("expected", justify="right", no_wrap=True)
        table.add_column("found", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        step = ""
        for check in self.checks:
            if step and step != check.step:
                table.add_section()
            mark = Text(_HOLDS, "green") if check.holds else Text(_FAILS, "bold red")
            name = "" if step == check.step else check.step
            table.add_row(name, Text(check.what), Text(check.expected), Text(check.found), mark)
            step = check.step
        self._print()
        self._print(table)
        failed = sum(not check.holds for check in self.checks)
        if failed:
            self._print(
                f"[bold red]{failed} of {len(self.checks)} proofs failed[/bold red] in {seconds:.1f} s"
            )
        else:
            self._print(f"[bold green]All {len(self.checks)} proofs hold[/bold green] in {seconds:.1f} s.")
        if kept is not None:
            self._print(f"Kept. Look around: topics --data {_escaped(str(kept))} ls")
        else:
            self._print(
                "[dim]With your own data: topics demo FILE.jsonl, or topics put TOPIC FILE, then topics ls[/dim]"
            )

    def print_json(self, *, seconds: float, directory: str | None) -> None:
        """One line."""
        result = {
            "holds": all(check.holds for check in self.checks),
            "seconds": round(seconds, 3),
            "directory": directory,
            "checks": [attrs.asdict(check) for check in self.checks],
        }
        sys.stdout.buffer.write(json_line(result))

    def _print(self, *what: object) -> None:
        if not self._silent:
            self._console.print(*what)


def _escaped(text: str) -> str:
    from rich.markup import escape

    from topics.cli.io.terminal import safe

    return escape(safe(text))


def _worded(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
