"""SIGTERM for the workers of a process: the first one stops them all, the second one ends the process as ever.

Signals belong to the program: where it handles SIGTERM itself nothing is changed, nor by a worker that is outside the
main thread, where Python takes no handler.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

from anyio.lowlevel import current_token

_stops: Final[list[Callable[[], object]]] = []  # of workers in the main thread


@contextmanager
def stopping_at_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """The first SIGTERM in this block calls `stop`, amid whatever the main thread does."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, _stop_all):
        yield
        return
    _stops.append(stop)
    signal.signal(signal.SIGTERM, _stop_all)
    try:
        yield
    finally:
        _stops.remove(stop)
        if not _stops and signal.getsignal(signal.SIGTERM) is _stop_all:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def soon(call: Callable[[], object]) -> Callable[[], object]:
    """What has it called by the loop that runs here, from a handler of a signal too."""
    loop: Any = current_token().native_token
    return partial(getattr(loop, "run_sync_soon", None) or loop.call_soon_threadsafe, call)


def _stop_all(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stop in _stops:
        stop()
