"""The command line as click knows it, and the settings as their table has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from topics.cli.config.settings import TABLE
from topics.cli.main import cli

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def command_page() -> str:
    context = click.Context(cli, info_name="topics")
    common = {option.name for option in cli.params if isinstance(option, click.Option)}
    parts = [
        "# The command line\n",
        *said(cli),
        "\nExit codes: 0 done, 1 it could not be done, 2 it was asked wrongly, 130 Ctrl-C.\n",
        "Settings come from options, then from [variables and `topics.toml`](settings.md).\n",
        "\n## Options of every command\n\nAs far as they make sense to it; `--help` of the command says which.\n",
        *option_lines(cli.params),
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += section(command, context, name, common=common, level=2)
    return "\n".join(parts) + "\n"


def section(
    command: click.Command, parent: click.Context, name: str, *, common: set[str | None], level: int
) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"\n{'#' * level} {context.command_path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield from said(command)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from section(found, context, below, common=common, level=level + 1)
    else:
        own = [one for one in command.params if isinstance(one, click.Option) and one.name not in common]
        yield from option_lines(own)


def said(command: click.Command) -> Iterator[str]:
    """Its help: paragraphs, and what click is told not to wrap as it stands."""
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        else:
            yield escaped(" ".join(paragraph.split())) + "\n"


def option_lines(options: Iterable[click.Parameter]) -> Iterator[str]:
    context = click.Context(cli, info_name="topics")
    for option in options:
        record = option.get_help_record(context)
        if record is not None:  # else it is hidden
            names, text = record
            yield f"- `{names}`: {escaped(text)}" if text else f"- `{names}`"


def escaped(text: str) -> str:
    """Text of a terminal as Markdown, which has no marks of its own there."""
    return re.sub(r"([\\*_<>\[\]#|~^])", r"\\\1", text)


def settings_page() -> str:
    """Each setting; what it does is said by the table of docs/operations.md, which a test holds against this one."""
    rows = re.findall(
        r"^\| `([a-z_0-9]+)` \| [^|]+ \| ([^|]+) \|$", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE
    )
    what = dict(rows)
    parts = [
        "# Settings\n",
        "How they are given, and which is the strongest, is in [Running the server](../operations.md#settings).\n",
        "`topics config show` prints each with its value and source.\n",
    ]
    for key, setting in TABLE.items():
        described = what[key].replace("](keys.md)", "](../keys.md)")
        parts.append(f"\n## {key}\n\n{described[0].upper()}{described[1:]}.\n")
        parts.append(
            f"Default `{setting.shown(setting.default)}`; {setting.allowed}. Variable `{setting.variable}`.\n"
        )
    return "\n".join(parts)
