"""Ctrl-C while something is written: never in the middle of a write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Ctrl-C between two writes stops at once; during one, after it."""

    def __init__(self) -> None:
        self.is_asked = False
        self.is_busy = False

    def asked(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_asked = True
        if not self.is_busy:
            raise KeyboardInterrupt

    def check(self) -> None:
        if self.is_asked:
            raise KeyboardInterrupt

    @contextmanager
    def busy(self) -> Iterator[None]:
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False


@contextmanager
def stopping_gently() -> Iterator[Interrupts]:
    gently = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield gently
        return
    before = signal.signal(signal.SIGINT, gently.asked)
    try:
        yield gently
    finally:
        signal.signal(signal.SIGINT, before)
