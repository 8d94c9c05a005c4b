"""Ctrl-C before `main` is there to answer it: while modules are imported it ends the process without a word."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPED: Final = 130


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(STOPPED)


@contextmanager
def guarded() -> Iterator[None]:
    """Only where Ctrl-C would be a KeyboardInterrupt: a handler of somebody who imports us stays."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
