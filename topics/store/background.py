"""Background work of an open store: checkpoints, rewriting, relocation, backups' cuts; one at a time (storage 5).

A driver asks every `LOOK_S` what is due and carries it out. Whatever fails, the log has everything all the same, and it
is tried again, less and less often.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from topics.host.checkpoint.blocked_topics import CheckpointIncomplete
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Step, Steps, disk_full
from topics.host.system.refusals import refusal_line as refusal
from topics.host.wal.archive import ArchiveFull
from topics.kernel.errors import Code, Corrupt, Fatal, Rejected

LOOK_S: Final = 1.0  # a driver asks so often what is due
AGAIN_S: Final = 10.0  # after a refusal: what had been copied without a mark is copied again
FAILED_S: Final = 60.0  # after a failure; twice as long after each that follows,
FAILED_MAX_S: Final = 3600.0  # up to this


class BackgroundWork:
    """What is common to all drivers. A driver sees to it that one work is under way at a time.

    `check` raises what ends a work between two of its steps. `failures`: in a row, since the last whole round.
    """

    def __init__(self, checkpointer: Checkpointer, check: Callable[[], None] | None = None) -> None:
        self.failures = 0
        self._checkpointer = checkpointer
        self._check = check or _go_on

    def work(self, choose: Callable[[], Steps | None]) -> Generator[Step, None, bool]:
        """The steps of what `choose` gives; it is asked when it is this work's turn. Returns True if it gave any.

        Raises:
            Rejected: no room in the log, or it is read-only, or the store is closing.
            CheckpointIncomplete: a topic is held up by damage in the log; everything else is done.
            Fatal: the disk failed. Nothing is lost; another call tries again at once, a driver later.
        """
        steps = choose()
        if steps is None:
            return False
        rounds = self._checkpointer.rounds
        try:
            self._check()
            for step in steps:
                yield step
                self._check()
        except CheckpointIncomplete:
            raise  # the round has done all else
        except (OSError, Corrupt, Fatal) as error:
            raised = _told(error)
            self.failures += isinstance(raised, Fatal)
            raise raised from error
        finally:
            steps.close()  # batches are given out again, whatever happened
        if self._checkpointer.rounds != rounds:
            self.failures = 0
        return True

    def rest_after(self, error: Rejected | Fatal) -> float:
        """For how many seconds a driver rests after a work that has ended so, before it asks again what is due."""
        if isinstance(error, Rejected):
            return AGAIN_S  # there may be room then
        before = max(self.failures - 1, 0)  # none, if a round of somebody else has been whole meanwhile
        return min(FAILED_S * (1 << min(before, 16)), FAILED_MAX_S)


def _told(error: OSError | Corrupt | Fatal) -> Rejected | Fatal:
    """What is raised of an error that has ended a work; if it is Fatal, the next one had better wait longer."""
    if isinstance(error, ArchiveFull):
        return Rejected(Code.DISK_LOW, str(error))
    if disk_full(error):
        return Rejected(Code.DISK_LOW, f"no space for a checkpoint: {error}; free some")
    going_on = "" if isinstance(error, Fatal) else "; reads and writes go on, it is tried again: see the disk"
    why = refusal(error) if isinstance(error, OSError) else error
    return Fatal(f"a checkpoint failed: {why}{going_on}")


def _go_on() -> None:
    """Nothing ends a work before its end."""
