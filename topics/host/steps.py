"""The steps of work on a store: what its generator asks of a driver between looks at the engine.

A generator touches the engine only between its steps, so a driver holds its lock there and lets go of it in `Blocking`.
What a step raises is raised where the generator has yielded it; one that does not catch it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import attrs

from topics.engine.commands import Command
from topics.host.refusals import FULL


@attrs.frozen
class Blocking:
    """Call this without the lock."""

    call: Callable[[], None]


@attrs.frozen
class Propose:
    """Propose this and wait for its end."""

    command: Command


@attrs.frozen
class Swap:
    """Call this where nobody else touches the engine: a rename or two, and a change of where records lie."""

    call: Callable[[], None]


@attrs.frozen
class Wait:
    """A batch is in flight: go on when one has ended."""


@attrs.frozen
class ResumeBatches:
    """Batches are given out again."""


Step = Blocking | Propose | Swap | Wait | ResumeBatches
Steps = Generator[Step, None, None]


def disk_full(error: Exception) -> bool:
    """True if a work failed for want of space only: the next one writes the same bytes again."""
    return isinstance(error, OSError) and error.errno in FULL
