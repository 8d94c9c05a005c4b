"""The steps of background work: what its generator asks of a driver between looks at the engine.

A generator touches the engine only between its steps, so a driver holds its lock there and lets go of it in `Blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import attrs

from topics.engine.commands import Command


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
