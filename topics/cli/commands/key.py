"""`key`: who may ask a server what, in a file of keys that holds digests only (decision 72)."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from topics.cli.core.failure import USAGE, Failed, near, say
from topics.cli.core.group import Group
from topics.cli.core.invocation import Invocation, json_option, local_options, pass_invocation
from topics.cli.io.quantities import counted
from topics.cli.io.terminal import json_line, print_table

if TYPE_CHECKING:
    from topics.server.auth.keyfile import KeyFile

KEY_BYTES: Final = 32  # of chance in a key
ID_CHARS_MIN: Final = 6
_OPTION: Final = "--api-keys-file"
F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group, no_args_is_help=False)
def key() -> None:
    """Make, list and revoke the keys that a server asks for.

    They are in the file that --api-keys-file, TOPICS_API_KEYS_FILE or `api_keys_file` in topics.toml names, by their
    digests: nobody can read a key out of it. A server that serves the data directory is told to read it again.
    """


def file_option(command: F) -> F:
    return click.option(_OPTION, "file", metavar="FILE", help="The file of keys.")(command)


@key.command()
@click.argument("name")
@click.option(
    "--scopes",
    default="",
    metavar="SCOPES",
    help="read, write, delete, admin, joined by +; all if not given.",
)
@click.option("--prefix", multiple=True, help="Only names that begin so; may be given several times.")
@file_option
@json_option
@local_options
@pass_invocation
def new(
    invocation: Invocation, name: str, scopes: str, prefix: tuple[str, ...], file: str | None, as_json: bool
) -> None:
    """Make a key, and print it: once, for it is not kept.

    NAME is for people, to tell it from others.

    \b
      topics key new dashboards --scopes read --prefix orders. > dashboards.key
    """  # noqa: D301 -- \b is click's mark of lines to be kept as they are
    from topics.server.auth.lines import Malformed, check_name, parse_key, parse_prefixes, parse_scopes

    secret = f"topics_{secrets.token_urlsafe(KEY_BYTES)}"
    try:
        check_name(name, where="NAME")
        line = parse_key(secret, where="the new key")
        if scopes:
            line = attrs.evolve(line, scopes=parse_scopes(scopes, where=f"--scopes: {scopes!r} is none of"))
        if prefix:
            given = "|".join(prefix)
            line = attrs.evolve(line, prefixes=parse_prefixes(given, where=f"--prefix: {given!r} is none of"))
    except Malformed as malformed:
        raise Failed(str(malformed), code=USAGE) from None
    if not name.strip():
        raise Failed("NAME is empty: say whose key it is, or what for", code=USAGE)
    keys = _opened(invocation, file, create=True)
    if any(known.name == name.strip() for known in keys.keys):
        raise Failed(f"{keys.path} has a key {name.strip()!r}: give another name, or revoke that one first")
    line = attrs.evolve(line, name=name.strip())
    keys.add(line)
    if as_json:
        sys.stdout.buffer.write(json_line({"key": secret, **line.fields()}))
    else:
        click.echo(secret)
        say(
            f"this is the key {line.name!r}; it is printed this once, {keys.path} has its digest",
            "topics: ",
            colour="cyan",
        )
    _tell_server(invocation.settings.data, keys.path)


@key.command()
@file_option
@json_option
@local_options
@pass_invocation
def ls(invocation: Invocation, file: str | None, as_json: bool) -> None:
    """List the keys: what they may, and what they are called. Never a key."""
    keys = _opened(invocation, file)
    if as_json:
        for line in keys.keys:
            sys.stdout.buffer.write(json_line(line.fields()))
        return
    if not keys.keys:
        click.echo(f"no keys in {keys.path}")
        return
    rows = [
        (one["id"], one["name"], "+".join(one["scopes"]), " ".join(one["prefixes"]) or "any name")
        for one in (line.fields() for line in keys.keys)
    ]
    print_table(("id", "name", "scopes", "names that begin with"), rows)


@key.command()
@click.argument("which")
@file_option
@json_option
@local_options
@pass_invocation
def revoke(invocation: Invocation, which: str, file: str | None, as_json: bool) -> None:
    """Take a key away: WHICH is its name, or the beginning of its id.

    Within a second of the server's reading the file again, connections, streams and sessions of the key end.
    """
    keys = _opened(invocation, file)
    found = [line for line in keys.keys if line.name == which]
    if not found and len(which) >= ID_CHARS_MIN:
        found = [line for line in keys.keys if line.id.startswith(which.lower())]
    if not found:
        meant = near(which, [line.name for line in keys.keys if line.name])
        raise Failed(f"{keys.path} has no key {which!r}{meant or '; topics key ls lists them'}")
    if len(found) > 1:
        raise Failed(f"{which!r} may be any of {', '.join(line.id for line in found)}: give an id")
    keys.remove(found[0])
    if as_json:
        sys.stdout.buffer.write(json_line(found[0].fields()))
    else:
        name = f" {found[0].name!r}" if found[0].name else ""
        left = counted(len(keys.keys), "key")
        say(f"revoked the key{name} ({found[0].id}); {keys.path} has {left} left", "topics: ")
    _tell_server(invocation.settings.data, keys.path)


def _opened(invocation: Invocation, given: str | None, *, create: bool = False) -> KeyFile:
    from topics.server.auth.keyfile import KeyFile

    if given is not None:
        invocation.flags["api_keys_file"] = given
        invocation.options["api_keys_file"] = _OPTION
    named = invocation.settings.values["api_keys_file"].value
    if named is None:
        raise Failed(
            f"name the file of keys: {_OPTION} FILE, or TOPICS_API_KEYS_FILE, as the server is told",
            code=USAGE,
        )
    if not create and not Path(named).exists():
        raise Failed(f"{named} does not exist; topics key new NAME makes it, with a first key")
    return KeyFile(Path(named))


def _tell_server(root: Path, file: Path) -> None:
    """Have the server of the directory read its keys again, if there is one here."""
    pid = _server_of(root)
    if pid is None:
        say(
            f"no server of {root} runs here (--data names another). One that has {file} knows the keys it had until it"
            f" reads it again, at SIGHUP; one asks for keys if it is started with {_OPTION} {file}",
            "topics: ",
        )
        return
    os.kill(pid, signal.SIGHUP)
    say(
        f"told the server of {root} (process {pid}) to read its keys again: it asks for them if it was started with"
        f" {_OPTION} {file}",
        "topics: ",
    )


def _server_of(root: Path) -> int | None:
    """The process that serves the directory, if it surely is that one: what it is sent would end another."""
    from topics.host.directory.owner import LOCK_NAME, check_unowned
    from topics.kernel.errors import CannotOpen

    try:
        check_unowned(root)
    except CannotOpen as in_use:
        pid = in_use.detail["owner_pid"]
        if in_use.detail["owner_url"] is not None and _has_open(pid, root / LOCK_NAME):
            assert isinstance(pid, int)
            return pid
    except OSError:
        pass
    return None


def _has_open(pid: object, path: Path) -> bool:
    """Whether that process of this machine has that file open: its number may be one of another container's."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as held:
        wanted = path.stat()
        for one in held:
            with suppress(OSError):
                if os.path.samestat(one.stat(), wanted):
                    return True
    return False
