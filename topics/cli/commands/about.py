"""What is set, which version this is, and completion for the shell."""

from __future__ import annotations

import platform
import sys

import click

import topics
from topics.cli.core.failure import Failed
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, common_options, json_option, pass_invocation
from topics.cli.io.terminal import json_line, print_table

SHELLS = ("bash", "zsh", "fish")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """The settings of this machine and directory."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@config.command()
@click.option("--defaults", is_flag=True, help="Each as it is if nobody sets it.")
@json_option
@common_options
@pass_invocation
def show(invocation: Invocation, defaults: bool, as_json: bool) -> None:
    """Print each setting, its value, and where it came from.

    A flag is stronger than TOPICS_* in the environment, that than topics.toml, that than the default.
    """
    from topics.cli.config.settings import TABLE, by_default

    settings = by_default() if defaults else invocation.settings  # of those, one may be wrong
    if as_json:
        shown = {
            key: {"value": TABLE[key].told(value.value), "source": value.source}
            for key, value in settings.values.items()
        }
        sys.stdout.buffer.write(json_line(shown))
        return
    rows = [
        (
            key,
            TABLE[key].shown(value.value),
            value.source,
            TABLE[key].variable,
        )
        for key, value in settings.values.items()
    ]
    print_table(("setting", "value", "from", "variable"), rows)


@click.command()
@json_option
@common_options
@pass_invocation
def version(invocation: Invocation, as_json: bool) -> None:
    """Print the version; with --url, the server's too."""
    fields = {"topics": topics.__version__, "python": platform.python_version(), "system": platform.system()}
    server = _server_version(invocation) if "url" in invocation.flags else None
    if as_json:
        sys.stdout.buffer.write(json_line(fields | ({"server": server} if server else {})))
        return
    click.echo(f"topics {topics.__version__} (Python {platform.python_version()}, {platform.system()})")
    if server is not None:
        click.echo(f"topics {server} at {invocation.place.name}")


def _server_version(invocation: Invocation) -> str:
    with invocation.there() as store:
        assert isinstance(store, topics.Client)
        return str(store.health().get("version", "of an unknown version"))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a completion script, for a file in a directory that must be there (mkdir -p).

    \b
      bash: topics completion bash > ~/.local/share/bash-completion/completions/topics
      zsh:  topics completion zsh > ~/.zfunc/_topics   (a directory of $fpath)
      fish: topics completion fish > ~/.config/fish/completions/topics.fish
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from click.shell_completion import get_completion_class

    from topics.cli.completion import shells  # noqa: F401 -- registers them
    from topics.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise Failed(f"click has no completion for {shell}")
    click.echo(found(cli, {}, "topics", "_TOPICS_COMPLETE").source())
