"""What every command takes."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from topics.cli.main import cli

WITHOUT = {"serve", "completion"}  # one ends with the server, the other prints a script


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


@pytest.mark.rule("O2.25")
def test_every_command_but_two_prints_for_machines() -> None:
    without = {
        name for name, one in commands(cli) if not any("--json" in option.opts for option in one.params)
    }

    assert without == WITHOUT
