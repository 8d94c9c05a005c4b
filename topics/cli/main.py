"""The table of commands, and `main`: one call of `topics`.

Exit codes: 0 done · 1 it could not be done · 2 it was asked wrongly (usage, names, settings) · 130 stopped by Ctrl-C.
A reader of our output that goes away (`topics get … | head`) is no error.

Modules of commands are imported when called; the table carries their one-line help, so that `--help` needs none of
them.
"""

from __future__ import annotations

from topics.cli.core.early import STOPPED, Guard, end_at_ctrl_c

with Guard():
    import os
    import sys
    import time
    from collections.abc import Callable, Sequence
    from contextlib import suppress
    from importlib import import_module
    from keyword import iskeyword
    from typing import Final

    import click

    import topics
    from topics.cli.core.failure import Failed, occupy_standard_streams, quieted, tell_failure
    from topics.cli.core.group import Group
    from topics.cli.core.invocation import Invocation, common_options

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("commands.serve", "Serve a data directory over HTTP."),
    "demo": ("demo.command", "The guided tour, with a crash and its proof."),
    "put": ("commands.write", "Append JSON lines, text or CSV to a topic."),
    "get": ("commands.read", "Print the records of a topic, by seq, time, tag."),
    "tail": ("commands.read", "Print the latest records of topics, and follow them."),
    "ls": ("commands.manage", "List the topics."),
    "state": ("commands.manage", "Show a topic: head, floors, counts, config."),
    "create": ("commands.manage", "Create a topic with its config."),
    "configure": ("commands.manage", "Change the config of a topic."),
    "delete": ("commands.manage", "Delete records, by seq or tag, for good."),
    "rm": ("commands.manage", "Delete topics with everything in them."),
    "export": ("commands.exchange", "Write a topic to a file: JSON lines, CSV or Parquet."),
    "import": ("commands.exchange", "Append such a file to a topic, or take over a directory of ledgerq."),
    "compact": ("commands.manage", "Give back the space of what was deleted from a directory."),
    "queue": ("commands.queues.queue", "Look after job queues: list, peek, claim, ack, pause, purge, drain."),
    "consumer": ("commands.consumer", "Look after durable consumers: list, show, set, commit, rm."),
    "work": ("commands.queues.work", "Do the jobs of a queue, each by a command."),
    "router": ("commands.router", "Copy what comes into one topic into another."),
    "schedule": ("commands.schedule", "Append records when their time comes."),
    "why": ("commands.why", "Tell what became of a record or a job, from the log."),
    "fsck": ("commands.directory.check", "Check that a data directory is whole."),
    "inspect": ("commands.directory.check", "Print what is in a file of a data directory."),
    "backup": ("commands.directory.backup", "Write a backup of a store, while it is used."),
    "verify": ("commands.directory.backup", "Check that a backup is whole."),
    "restore": ("commands.directory.backup", "Make a store of a backup, up to a moment or a seq."),
    "adopt-cold": ("commands.directory.adopt", "Let a copied or moved directory go on with its cold tier."),
    "spark": ("commands.spark_jobs", "Validate, report and export by Spark, where one machine is too slow."),
    "key": ("commands.key", "Make, list and revoke the keys that a server asks for."),
    "bench": ("bench.command", "Measure topics under load, and what else is installed beside it."),
    "pressure": ("commands.serve", "Show how overloaded a server is, and what it leaves off."),
    "doctor": ("commands.doctor", "Look whether this machine can hold what topics promises."),
    "simulate": ("commands.simulate", "Run the store in a simulation, and hold every promise against it."),
    "config": ("commands.about", "Show the settings and where each came from."),
    "version": ("commands.about", "Print the version."),
    "completion": ("commands.about", "Print a completion script for bash, zsh or fish."),
}
_COMPLETING: Final = "_TOPICS_COMPLETE"
_EPILOG: Final = "Try it: topics demo"


class Commands(Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_") + ("_" if iskeyword(cmd_name) else "")
        command = getattr(import_module(f"topics.cli.{COMMANDS[cmd_name][0]}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(topics.__version__, message="topics %(version)s")
@common_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """topics: a durable event log.

    Works on a data directory: --data DIR, or TOPICS_DATA_DIR, or `data` in topics.toml, or ./topics-data; or at a
    server: --url URL, or TOPICS_URL.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """One call of `topics`; returns the exit code."""
    invocation = Invocation()
    try:
        occupy_standard_streams()
        check_clock()
        given = list(sys.argv[1:] if arguments is None else arguments)
        if os.environ.get(_COMPLETING):
            return _complete(invocation)
        code = _run(given, invocation)
        sys.stdout.flush()
    except BrokenPipeError:
        quieted(sys.stdout)
        return 0
    except (KeyboardInterrupt, click.Abort):
        return _told(Failed("stopped", code=STOPPED, quiet=True), invocation)
    except Exception as error:  # noqa: BLE001 -- the one place where every error becomes a line and a code
        return _told(error, invocation)
    finally:
        # The process ends behind this; a second Ctrl-C would be a traceback of its threads.
        if arguments is None:
            end_at_ctrl_c()
    return code


def check_clock(now_s: Callable[[], float] = time.time) -> None:
    """Python's own modules cannot even be imported when it tells no time."""
    try:
        now_s()
    except OverflowError:
        raise Failed(
            "this machine's clock is beyond the year 2262, where Python tells no time: set it right"
        ) from None


def _complete(invocation: Invocation) -> int:
    """What may stand at the cursor, for the shell. Whatever goes wrong, it says nothing: somebody is typing."""
    from click.shell_completion import shell_complete

    from topics.cli.completion import shells  # noqa: F401 -- registers them

    quieted(sys.stderr)
    with suppress(Exception, SystemExit):
        shell_complete(cli, {"obj": invocation}, "topics", _COMPLETING, os.environ[_COMPLETING])
        sys.stdout.flush()
    return 0


def _told(error: Exception, invocation: Invocation) -> int:
    return tell_failure(error, typed=invocation.typed, debug=invocation.debug)


def _run(arguments: list[str], invocation: Invocation) -> int:
    try:
        with cli.make_context("topics", arguments, obj=invocation) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as asked:
        return asked.exit_code
    return 0
