"""Checkpoints and other background work of an embedded store, in a thread of its own: it holds up no writer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from topics.embed.driver import LocalEngine
from topics.embed.lock import Reentered, is_held
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Steps
from topics.kernel.errors import Fatal, Rejected, TopicsError
from topics.store.background import LOOK_S, BackgroundWork


class CompactorThread:
    """A daemon thread over a `LocalEngine`; `carry_out` is for any thread, and one work is under way at a time."""

    def __init__(self, local: LocalEngine, checkpointer: Checkpointer) -> None:
        self._local = local
        self._checkpointer = checkpointer
        self._work = BackgroundWork(checkpointer, local.check_open)
        self._turn = threading.RLock()  # never taken twice by one thread: it knows its owner
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def failures(self) -> int:
        """In a row, since the last whole round."""
        return self._work.failures

    def start(self) -> None:
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="topics-compaction", daemon=True)
        self._thread.start()

    def catch_up(self) -> None:
        """A round if one is due by what was written: a store that is open for a moment has no other time for it."""
        if not self.failures and self._checkpointer.is_full():
            with suppress(TopicsError):  # the log has it all; the next one tries again
                self.checkpoint()

    def close(self) -> None:
        """Nothing is under way any more in any thread: the present work ends at its next step."""
        assert not self.is_inside
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._turn:
            pass

    @property
    def is_inside(self) -> bool:
        """True in a thread that a signal handler or finalizer has taken out of a work."""
        return is_held(self._turn)

    def checkpoint(self) -> None:
        """One whole round, as `carry_out`."""
        self.carry_out(self._checkpointer.round)

    def carry_out(self, choose: Callable[[], Steps | None]) -> bool:
        """As `BackgroundWork.work`, when it is this work's turn."""
        if self.is_inside or self._local.is_inside:
            raise Reentered
        with self._turn, self._local.lock:
            try:
                return self._local.carry_out(self._work.work(choose))
            finally:
                self._local.appoint()  # batches are given out again, whatever happened

    def _run(self) -> None:
        rest_s = 0.0
        while not self._closing.wait(LOOK_S + rest_s):
            rest_s = 0.0
            try:
                self.carry_out(self._checkpointer.due)
            except (Rejected, Fatal) as error:
                rest_s = self._work.rest_after(error)
