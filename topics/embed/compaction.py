"""Checkpoints of an embedded store, in a thread of their own: copying and syncing them holds up no writer.

The engine's lock is held between the steps of a round, where they look at the engine, and not in what blocks.
"""

from __future__ import annotations

import threading
from typing import Final

from topics.embed.driver import LocalEngine
from topics.embed.lock import Reentered, is_held
from topics.host.checkpointer import Blocking, Checkpointer, GoOn, Propose, Wait, disk_full
from topics.kernel.errors import Code, Corrupt, Fatal, Rejected, TopicsError

LOOK_S: Final = 1.0
AGAIN_S: Final = 30.0  # after a refusal: what had been copied without a mark is copied again


class Compactor:
    """A daemon thread over a `LocalEngine`; `checkpoint` is one round of its work, for any thread.

    `failed`: why there are no more rounds until the store is opened again. The log has everything all the same.
    """

    def __init__(self, local: LocalEngine, checkpointer: Checkpointer) -> None:
        self.failed: OSError | TopicsError | None = None
        self._local = local
        self._checkpointer = checkpointer
        self._turn = threading.RLock()  # never taken twice by one thread: it knows its owner
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="topics-compaction", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing of a round is under way any more in any thread: the present one ends at its next step."""
        assert not self.is_inside
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._turn:
            pass

    @property
    def is_inside(self) -> bool:
        """True in a thread that a signal handler or finalizer has taken out of a round."""
        return is_held(self._turn)

    def checkpoint(self) -> None:
        """One whole round.

        Raises:
            Rejected: no room in the log, or it is read-only, or the store is closing.
            Fatal: the disk failed; no checkpoint is taken until the store is opened again.
        """
        if self.is_inside or self._local.is_inside:
            raise Reentered
        with self._turn:
            if self.failed is not None:
                raise Fatal(f"checkpoints have ended: {self.failed}")
            try:
                self._round()
            except (OSError, Corrupt, Fatal) as error:
                if disk_full(error):
                    raise Rejected(Code.DISK_LOW, f"no space for a checkpoint: {error}; free some") from error
                self.failed = error
                raise Fatal(f"a checkpoint failed: {error}") from error

    def _round(self) -> None:
        local = self._local
        steps = self._checkpointer.round()
        try:
            while True:
                with local.lock:
                    local.check_open()
                    step = next(steps, None)
                    if isinstance(step, Wait):
                        local.wait_idle()
                    elif isinstance(step, GoOn):
                        local.appoint()
                if step is None:
                    return
                if isinstance(step, Blocking):
                    step.call()
                elif isinstance(step, Propose):
                    local.call(step.command)
        finally:
            with local.lock:
                steps.close()  # batches are given out again, whatever happened
                local.appoint()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            with self._local.lock:
                due = self._checkpointer.is_due()
            if due and self.failed is None:
                try:
                    self.checkpoint()
                except Rejected:
                    self._closing.wait(AGAIN_S)  # there may be room then
                except Fatal:
                    return
