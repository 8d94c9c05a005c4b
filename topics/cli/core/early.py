"""Ctrl-C before `main` is there to answer it: while modules are imported it ends the process without a word.

Nothing is imported here that the interpreter has not imported already, or nearly nothing: until the handler is there,
Ctrl-C is a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

STOPPED = 130


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(STOPPED)


class Guard:
    """`with`: only where Ctrl-C would be a KeyboardInterrupt. A handler of somebody who imports us stays."""

    def __init__(self) -> None:
        self._set = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, _end)
                self._set = True
            except ValueError:  # not the main thread
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._set:
            signal.signal(signal.SIGINT, signal.default_int_handler)
