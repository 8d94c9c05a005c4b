"""The steps of background work: what its generator asks of a driver between looks at the engine.

A generator touches the engine only between its steps, so a driver holds its lock there and lets go of it in `Blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import attrs

from topics.engine.commands import Command
from topics.host.archive import ArchiveFull
from topics.host.refusals import FULL
from topics.host.refusals import told as refusal
from topics.kernel.errors import Code, Corrupt, Fatal, Rejected

LOOK_S: Final = 1.0  # a driver asks so often what is due
AGAIN_S: Final = 10.0  # after a refusal: what had been copied without a mark is copied again
FAILED_S: Final = 60.0  # after a failure; twice as long after each that follows,
FAILED_MAX_S: Final = 3600.0  # up to this


@attrs.frozen
class Blocking:
    """Call this without the lock. If it raises, the round ends: close it."""

    call: Callable[[], None]


@attrs.frozen
class Propose:
    """Propose this and wait for its end. If it is refused or fails, the round ends: close it."""

    command: Command


@attrs.frozen
class Swap:
    """Call this where nobody else touches the engine: a rename or two, and a change of where records lie.

    If it raises, the work ends: close it.
    """

    call: Callable[[], None]


@attrs.frozen
class Wait:
    """A batch is in flight: go on when one has ended."""


@attrs.frozen
class GoOn:
    """Batches are given out again."""


Step = Blocking | Propose | Swap | Wait | GoOn
Steps = Generator[Step, None, None]


def disk_full(error: Exception) -> bool:
    """True if a work failed for want of space only: the next one writes the same bytes again."""
    return isinstance(error, OSError) and error.errno in FULL


def rest_after(failures: int) -> float:
    """For how many seconds background work rests after so many failures in a row."""
    assert failures >= 1
    return min(FAILED_S * (1 << min(failures - 1, 16)), FAILED_MAX_S)


def told(error: OSError | Corrupt | Fatal) -> Rejected | Fatal:
    """What a driver raises of an error that has ended a work; if it is Fatal, the next one had better wait longer."""
    if isinstance(error, ArchiveFull):
        return Rejected(Code.DISK_LOW, str(error))
    if disk_full(error):
        return Rejected(Code.DISK_LOW, f"no space for a checkpoint: {error}; free some")
    going_on = "" if isinstance(error, Fatal) else "; reads and writes go on, it is tried again: see the disk"
    why = refusal(error) if isinstance(error, OSError) else error
    return Fatal(f"a checkpoint failed: {why}{going_on}")
