"""The server's log: events with fields, one a line on stderr (operations 6, style 29).

    log.info("wal.synced", shard=0, frames=41, fsync_ms=0.3)

The first argument names what happened, as `noun.verb`, and never varies; everything that does is a field. On a
terminal a line is for people, elsewhere it is one JSON object. What must not be in a log does not get there: a field
with the name of a secret or of a payload is refused, tracebacks show no values of variables, and names and messages
that a client chose are spelled out, so that nobody forges a line. A reader of stderr who is gone ends no server, and
one who has stopped reading stops none: lines that do not fit are left out, and how many they were is told.

`log` may be used at any time; `set_up` may be called again (SIGHUP), and holds from then on everywhere. A call below
the level costs 0.1 us: the methods are those of a logger of that level, found without a lookup of the configuration.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog

from topics.embed.aio.events import Say

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
LEVEL_DEFAULT: Final = "info"
_PIECE_BYTES: Final = 4096  # what a pipe with any room takes whole (PIPE_BUF), and sockets and terminals too
_SELECT_MAX: Final = 1024
FORBIDDEN_FIELDS: Final = frozenset(
    {
        "api_key",
        "authorization",
        "body",
        "cookie",
        "data",
        "meta",
        "password",
        "payload",
        "query",
        "secret",
        "token",
    }
)


class Log:
    """The log, one method a level. `exception` is an error with the traceback of what is being handled."""

    __slots__ = ("debug", "error", "exception", "info", "level", "warning")
    debug: Say
    info: Say
    warning: Say
    error: Say
    exception: Say
    level: str

    def set_up(self, level: str, stream: TextIO | None = None) -> None:
        """From now on at this level (a key of LEVELS), to the stream (stderr)."""
        stream = stream or sys.stderr
        logger = structlog.wrap_logger(
            _LineWriter(stream),
            processors=_processors(for_people=stream.isatty()),
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
            context_class=dict,
        ).bind()
        self.debug, self.info, self.warning = logger.debug, logger.info, logger.warning
        self.error, self.exception = logger.error, logger.exception
        self.level = level


def take_over_libraries() -> None:
    """What libraries tell the standard logging goes to this log too, from warnings on."""
    root = logging.getLogger()
    if not any(isinstance(handler, _Libraries) for handler in root.handlers):
        root.addHandler(_Libraries(logging.WARNING))


class _LineWriter:
    """Where finished lines go. Not being able to write one is no reason to fail, nor to wait: the loop is who logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = -1  # of a file, terminal, pipe or socket
        with suppress(OSError, ValueError):
            self._fd = stream.fileno()
        self._left_out = 0
        self._torn = False  # the last line has no end

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            if self._fd < 0:
                self._stream.write(line + "\n")
                self._stream.flush()
            elif not self._fits():
                self._left_out += 1
            else:
                if self._left_out:
                    count, self._left_out = self._left_out, 0
                    log.warning("log.left_out", lines=count)
                self._write(line)

    def _fits(self) -> bool:
        """Whether some KiB can be written without waiting. There is a limit on what `select` can watch."""
        return self._fd >= _SELECT_MAX or bool(select.select((), (self._fd,), (), 0)[1])

    def _write(self, line: str) -> None:
        """In pieces that fit, for nobody waits within a line either."""
        self._stream.flush()  # what others have printed there comes first
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        if self._torn:
            data = b"\n" + data
        for at in range(0, len(data), _PIECE_BYTES):
            self._torn = not self._fits()
            if self._torn:
                self._left_out += 1
                return
            os.write(self._fd, data[at : at + _PIECE_BYTES])

    debug = info = warning = error = msg


class _Libraries(logging.Handler):
    """The standard logging's records as events."""

    def emit(self, record: logging.LogRecord) -> None:
        say = log.error if record.levelno >= logging.ERROR else log.warning
        say("library.said", logger=record.name, message=record.getMessage(), exc_info=record.exc_info)


def _processors(*, for_people: bool) -> list[structlog.typing.Processor]:
    shared: list[structlog.typing.Processor] = [
        _keep_secrets,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if for_people:
        renderer = structlog.dev.ConsoleRenderer(
            pad_event_to=24,
            repr_native_str=True,
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,  # the pretty ones print the values of variables
        )
        return [*shared, renderer]
    return [*shared, _add_traceback, structlog.processors.JSONRenderer(default=str)]


def _keep_secrets(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A forbidden field keeps its name and loses its value: the event is told, and that somebody logged too much."""
    for name in FORBIDDEN_FIELDS.intersection(event):
        event[name] = "(not logged)"
    return event


def _add_traceback(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """`exc_info` as text."""
    given = event.pop("exc_info", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event["exception"] = "".join(traceback.format_exception(error))
    return event


log: Final = Log()
log.set_up(LEVEL_DEFAULT)
