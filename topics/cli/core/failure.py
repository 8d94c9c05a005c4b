"""What can go wrong in a call of `topics`, said in one line on stderr; and standard streams that are not there.

`Failed` is the command line's own error. Errors of the store say in their own words what to do; a field that they
name is called here as the user wrote it. What the system refused gets its words in `host.system.refusals`. A traceback
is shown only with `--debug`.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from topics.cli.io.quantities import duration, parse_duration_ms
from topics.cli.io.terminal import is_coloured, safe

if TYPE_CHECKING:
    from pathlib import Path

    from topics.kernel.errors import TopicsError

USAGE: Final = 2
# Of click, whose words for a range are a formula.
_OUT_OF_RANGE: Final = re.compile(
    r"Invalid value for (?:'\S+' / )?'(\S+)': (\S+) is not in the range (?:x>=)?([\d.]+)(?:<=x<=([\d.]+))?"
)
_ROUND: Final = "[]\u2026"  # the name of an argument
_SEQS: Final = frozenset(("--seq", "--from-seq", "--offset"))  # what others call a place in a topic


class Failed(Exception):
    """It cannot be done; the message says what to do. `quiet`: the user knows already, so only the code is told.

    Instead of a message it may have the error that ended it, and the data directory `root` that was worked on: that
    error's words, with another code.
    """

    def __init__(
        self, why: str | Exception, *, code: int = 1, quiet: bool = False, root: Path | None = None
    ) -> None:
        super().__init__(str(why))
        self.error = why if isinstance(why, Exception) else None
        self.code = code
        self.quiet = quiet
        self.root = root


def asked_ms(option: str, text: str, low: int = 0, high: int | None = None) -> int:
    """The time that an option was given. Raises `Failed`, naming the option."""
    try:
        asked = parse_duration_ms(text)
    except ValueError as error:
        raise Failed(f"{option}: {error}", code=USAGE) from None
    if asked < low or (high is not None and asked > high):
        bounds = f"at least {duration(low)}" if high is None else f"from {duration(low)} to {duration(high)}"
        raise Failed(f"{option}: must be {bounds}, not {text}", code=USAGE)
    return asked


def tell_moved(asked: Mapping[str, Any], held: Mapping[str, Any], within: str) -> None:
    """Say which numbers were out of range, for a config's are not refused (semantics 3). `asked`, `held`: by field, as
    given and as answered; `within`: what these are fields of.
    """
    for field, number in asked.items():
        holds = held.get(field)
        if isinstance(number, Mapping) and isinstance(holds, Mapping):
            tell_moved(number, holds, f"{within}{field}.")
        elif type(number) in (int, float) and holds is not None and holds != number:
            unit = " ms" if field.endswith("_ms") else ""
            say(
                f"{within}{field}: {number}{unit} is out of range, and was moved to {holds}{unit}", "topics: "
            )


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def tell_failure(error: Exception | Failed, *, typed: Callable[[str], str], debug: bool) -> int:
    """One line on stderr; the exit code. `typed`: how the user wrote a field that an error names."""
    line, code = _described(error, typed)
    if debug:
        traceback.print_exception(error)
    if not (isinstance(error, Failed) and error.quiet):
        say(line, "topics: ", colour="red")
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return code
    quieted(sys.stdout)
    return code


def say(line: str, prefix: str = "", *, colour: str = "yellow") -> None:
    """A line on stderr. Nobody there to read it is no reason to fail."""
    with suppress(OSError, ValueError):
        if prefix and is_coloured(sys.stderr):
            prefix = click.style(prefix, fg=colour, bold=True)
        sys.stderr.write(f"{prefix}{safe(line)}\n")
        sys.stderr.flush()


def _described(error: Exception, typed: Callable[[str], str], root: Path | None = None) -> tuple[str, int]:
    from topics.kernel.errors import Corrupt, TopicsError

    match error:
        case Failed(error=None):
            return str(error), error.code
        case Failed():
            assert error.error is not None
            return _described(error.error, typed, error.root)[0], error.code
        case click.UsageError():
            return _usage(error), USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case Corrupt() if "next_from_seq" in error.detail:
            return f"{error.message} (--from {error.detail['next_from_seq']})", code_of(error)
        case TopicsError():
            return as_typed(error, typed), code_of(error)
        case OSError():
            from topics.host.system.refusals import refusal_line

            return refusal_line(error, root), 1
        case MemoryError():
            return "out of memory", 1
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"this is a fault of topics itself ({why}); run it again with --debug and report what it prints", 1


def as_typed(error: TopicsError, typed: Callable[[str], str]) -> str:
    """The message, with the field at its beginning as the user wrote it."""
    field = error.detail.get("field")
    if not isinstance(field, str) or not error.message.startswith(f"{field}: "):
        return error.message
    return typed(field) + error.message.removeprefix(field)


def code_of(error: TopicsError) -> int:
    """The exit code of an error of the store."""
    from topics.kernel.errors import CannotOpen, Code, Unusable

    no_store = (Unusable.FOREIGN, Unusable.NOT_A_DIRECTORY)
    asks_wrongly = error.code is Code.INVALID_REQUEST or (
        isinstance(error, CannotOpen) and error.reason in no_store
    )
    return USAGE if asks_wrongly else 1


def _usage(error: click.UsageError) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    message = message.replace(
        "a valid integer range", "a whole number"
    )  # click's word for what it is bounded by
    message = _OUT_OF_RANGE.sub(_bounds, message)
    path = error.ctx.command_path if error.ctx is not None else "topics"
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        message = _meant_by(error.option_name, error.ctx.command) or message
    return f"{message} (see {path} --help)"


def _meant_by(option: str, command: click.Command) -> str:
    """What a word that looks like an option, and is none of this command, was perhaps meant to be; or nothing."""
    for one in command.params if option[1:].isdecimal() else ():
        if isinstance(one, click.Argument) and isinstance(one.type, click.IntRange):
            return f"{one.human_readable_name.strip(_ROUND)}: must be at least {one.type.min}, not negative"
    if option in _SEQS and any("--from" in one.opts for one in command.params):
        return f"No such option '{option}'; did you mean --from?"
    if _takes_fields(command):
        from topics.kernel.config import FIELDS

        field = option.lstrip("-").replace("-", "_")
        if field in FIELDS:
            return f"{option} is a field of the config: write {field}=VALUE"
    return ""


def _bounds(refused: re.Match[str]) -> str:
    """In the words in which a time out of range is refused."""
    option, given, low, high = refused.groups()
    return f"{option.strip(_ROUND)}: must be {f'from {low} to {high}' if high else f'at least {low}'}, not {given}"


def _takes_fields(command: click.Command) -> bool:
    return any((option.metavar or "").endswith("[FIELD=VALUE]\u2026") for option in command.params)


class _StandardOutput(io.FileIO):
    """It says its name in what it cannot write."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


def _name_standard_output() -> None:
    """Let an error of it have its name. Whoever put another stream there keeps that."""
    before = sys.stdout
    if before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
        return
    raw = _StandardOutput(before.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),
        encoding=before.encoding, errors=before.errors, line_buffering=before.line_buffering,
        write_through=before.write_through,
    )  # fmt: skip


def occupy_standard_streams() -> None:
    """Descriptors 0 to 2 that were closed point to nothing: no data file may ever get such a number."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8", closefd=False))
    _name_standard_output()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def quieted(stream: TextIO) -> None:
    """Point the stream to nothing, so that what is left in its buffer makes no noise when the interpreter ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
