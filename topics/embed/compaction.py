"""Checkpoints and other background work of an embedded store, in a thread of its own: it holds up no writer.

The engine's lock is held between the steps of a work, where they look at the engine, and not in what blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from topics.embed.driver import LocalEngine
from topics.embed.lock import Reentered, is_held
from topics.host.checkpointer import Checkpointer
from topics.host.heldup import LeftOut
from topics.host.steps import AGAIN_S, LOOK_S, Blocking, GoOn, Propose, Steps, Swap, Wait, rest_after, told
from topics.kernel.errors import Corrupt, Fatal, Rejected, TopicsError


class Compactor:
    """A daemon thread over a `LocalEngine`; `carry_out` is for any thread, and one work is under way at a time.

    `failures`: in a row, since the last whole round. The log has everything all the same, and the thread tries again,
    less and less often.
    """

    def __init__(self, local: LocalEngine, checkpointer: Checkpointer) -> None:
        self.failures = 0
        self._local = local
        self._checkpointer = checkpointer
        self._turn = threading.RLock()  # never taken twice by one thread: it knows its owner
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

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
        """Run the steps of what `choose` gives when it is this work's turn; it is asked under the lock. True if any.

        Raises:
            Rejected: no room in the log, or it is read-only, or the store is closing.
            LeftOut: a topic is held up by damage in the log; everything else is done.
            Fatal: the disk failed. Nothing is lost; another call tries again at once, the thread later.
        """
        if self.is_inside or self._local.is_inside:
            raise Reentered
        with self._turn:
            with self._local.lock:
                steps = choose()
            if steps is None:
                return False
            rounds = self._checkpointer.rounds
            try:
                self._run_steps(steps)
            except LeftOut:
                raise  # the round has done all else
            except (OSError, Corrupt, Fatal) as error:
                raised = told(error)
                self.failures += isinstance(raised, Fatal)
                raise raised from error
            if self._checkpointer.rounds != rounds:
                self.failures = 0
            return True

    def _run_steps(self, steps: Steps) -> None:
        local = self._local
        try:
            while True:
                with local.lock:
                    local.check_open()
                    step = next(steps, None)
                    if isinstance(step, Swap):
                        step.call()
                    elif isinstance(step, Wait):
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
            try:
                self.carry_out(self._checkpointer.due)
            except Rejected:
                self._closing.wait(AGAIN_S)  # there may be room then
            except Fatal:
                self._closing.wait(rest_after(self.failures))
