"""`topics serve`: the server in the foreground, until SIGTERM or Ctrl-C drains it; `topics pressure`: how overloaded a
running server is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

import topics
from topics.cli.core.failure import USAGE, Failed
from topics.cli.core.invocation import (
    Invocation,
    common_options,
    json_option,
    local_options,
    pass_invocation,
)
from topics.cli.io.paths import cannot_write
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line, print_table
from topics.cli.target.place import check_cold_dir
from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from topics.calls.messages import Pressure
    from topics.cli.config.settings import Settings
    from topics.server.main import Home
    from topics.server.settings import ServerSettings

LEFT_OFF: Final = {
    "nothing": "nothing",
    "coalesce": "news of a topic waits for more of it",
    "widen": "news waits for more, and synced writes wait for each other",
    "hold": "news waits, synced writes wait, and watchers of topics below 0 are told nothing",
    "refuse": "all of that, and writes are refused while too many wait",
}


@click.command()
@click.option("--host", metavar="HOST", help="Where to listen; 127.0.0.1 unless given.")
@click.option("--port", metavar="N", help="On which port; 4000 unless given, 0 = any free one.")
@click.option("--port-file", metavar="FILE", help="Write the port there once requests are served.")
@click.option(
    "--memory", is_flag=True, help="Keep everything in memory: no disk, and nothing outlives the server."
)
@click.option("--certfile", metavar="FILE", help="TLS: the certificate chain, PEM.")
@click.option("--keyfile", metavar="FILE", help="TLS: its key, PEM.")
@click.option("--api-keys-file", metavar="FILE", help="Who may ask what; written by: topics key.")
@click.option("--access-log", is_flag=True, help="A line in the log for each request.")
@click.option("--shards", metavar="N", help="Logs written side by side; as in the directory unless given.")
@click.option(
    "--while-stdin", is_flag=True, hidden=True, help="End, as by SIGTERM, when standard input does."
)
@local_options
@pass_invocation
def serve(
    invocation: Invocation,
    host: str | None,
    port: str | None,
    port_file: str | None,
    memory: bool,
    certfile: str | None,
    keyfile: str | None,
    api_keys_file: str | None,
    access_log: bool,
    shards: str | None,
    while_stdin: bool,
) -> None:
    """Serve a data directory over HTTP.

    SIGTERM and Ctrl-C drain: requests under way are answered, everything is synced; a second one waits for nobody.
    SIGHUP reads the keys, the log level and the certificates again, and the log names what else has changed and waits
    for a restart. See also: topics config show.
    """
    if memory and "data" in invocation.flags:
        raise Failed("--memory keeps no data directory: leave out --data, or --memory", code=USAGE)
    if "url" in invocation.flags:
        raise Failed("a server serves a directory, not another server: leave out --url", code=USAGE)
    for key, option, given in (
        ("host", "--host", host),
        ("port", "--port", port),
        ("certfile", "--certfile", certfile),
        ("keyfile", "--keyfile", keyfile),
        ("api_keys_file", "--api-keys-file", api_keys_file),
        ("access_log", "--access-log", "true" if access_log else None),
        ("wal_shards", "--shards", shards),
    ):
        if given is not None:
            invocation.flags[key] = given
            invocation.options[key] = option
    with Needs("topics serve", "server"):
        from topics.server.listener import CannotListen
        from topics.server.main import Announcements
        from topics.server.main import serve as run
    settings = invocation.settings
    server_settings, options = settings.server(), settings.options()  # refused before anything is touched
    if not memory:
        check_cold_dir(options, settings.data)
    claim = _claim(settings, memory=memory)  # first: the file may be that of whoever has the directory
    target = Path(port_file) if port_file is not None else None
    if target is not None:
        _forget_port(target)

    where = _where(settings, memory=memory)
    urls: list[str] = []

    def ready(number: int) -> None:
        write_port(target, number)
        _tell(urls[-1], where)  # not before: who is shown a URL asks there

    told = Announcements(
        listening=urls.append,
        storage=lambda _: None,
        ready=ready,
        reread=lambda: _reread(invocation, settings),
    )
    if while_stdin:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        run(server_settings, options, claim, told)
    except CannotListen as error:
        raise Failed(str(error)) from error


def _reread(invocation: Invocation, before: Settings) -> tuple[ServerSettings, list[str]]:
    found = invocation.reread()
    return found.server(), found.changed_since(before)


def _claim(settings: Settings, *, memory: bool) -> Callable[[], Home]:
    """How to get what is served. A directory in use is refused here, before the port is tried: its owner most likely
    has that too, and his pid and URL say more than "in use".
    """
    from topics.store.directory import ClaimedDirectory, MemoryDirectory

    if memory:
        return MemoryDirectory
    from topics.cli.target.place import check_no_backup
    from topics.host.directory.owner import check_unowned

    check_no_backup(settings.data)
    with suppress(OSError):  # missing, or unreadable, which claiming it tells
        check_unowned(settings.data)
    return partial(ClaimedDirectory.claim, settings.data)


def _end_with_stdin() -> None:
    """Whoever started us holds the other end, and it closes however he ends."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _where(settings: Settings, *, memory: bool) -> str:
    """Where the data will be. A directory that is made for it is called new: its name may have been mistyped."""
    if memory:
        return "in memory; it ends with the server"
    return f"{settings.data.absolute()}{'' if settings.data.exists() else ' (new)'}"


def _tell(url: str, where: str) -> None:
    """Where everything is. Nobody there to read it is no reason to fail."""
    try:
        click.echo(
            f"topics {topics.__version__}\n  URL        {url}\n  dashboard  {url}/\n  data       {where}"
        )
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _forget_port(target: Path) -> None:
    """A file of an earlier server must not be taken for ours."""
    try:
        target.unlink(missing_ok=True)
    except OSError as error:
        raise Failed(f"--port-file: {target} cannot be replaced: {error.strerror}") from None


def write_port(target: Path | None, port: int) -> None:
    """Whole or not at all: a reader sees no half of a number."""
    if target is None:
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(f"{port}\n", encoding="ascii")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write("--port-file", target, error) from None


@click.command()
@json_option
@common_options
@pass_invocation
def pressure(invocation: Invocation, as_json: bool) -> None:
    """Show how overloaded a server is, and what it leaves off.

    From 0, where all is told at once, to 1. No record is lost at any pressure. The server is the one that is named by
    --url, or that serves the data directory; its key, if it asks for one, needs `admin` and no prefixes.
    """
    import attrs

    from topics.calls import topics as calls

    with invocation.place.at_server() as store:
        found = store.do(calls.PressureCall())
    if as_json:
        sys.stdout.buffer.write(json_line(attrs.asdict(found)))
        return
    print_table(("", ""), _rows(found))


def _rows(found: Pressure) -> list[tuple[str, str]]:
    waiting = ", ".join(f"{count} in {band}" for band, count in found.bands.items() if count)
    return [
        ("pressure", f"{found.pressure:.2f}"),
        ("left off", LEFT_OFF.get(found.step, found.step)),
        ("topics that wait to be told", waiting or "none"),
        ("how long they wait", f"{found.signals.scheduling_latency_ms:.1f} ms"),
        ("the server is busy", f"{found.signals.busy:.0%} of the time"),
        ("held back (priority below 0)", counted(found.held_topics, "topic")),
        ("news waits for more", f"{found.coalesce_ms:.1f} ms"),
        ("synced writes wait for each other", f"{found.commit_ms:.1f} ms"),
    ]
