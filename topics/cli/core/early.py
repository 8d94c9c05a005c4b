"""Ctrl-C before `main` is there to answer it, and after it has: then it ends the process without a word.

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


def end_at_ctrl_c() -> bool:
    """From here on, where Ctrl-C would be a KeyboardInterrupt. False: it is not, and a handler stays."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # not the main thread
        return False
    return True


class Guard:
    """`with`: only where Ctrl-C would be a KeyboardInterrupt. A handler of somebody who imports us stays."""

    def __init__(self) -> None:
        self._set = False

    def __enter__(self) -> None:
        self._set = end_at_ctrl_c()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._set:
            signal.signal(signal.SIGINT, signal.default_int_handler)
