"""The steps of work on a store: what its generator asks of a driver between looks at the engine.

A generator touches the engine only between its steps, so a driver holds its lock there and lets go of it in `Blocking`.
What a step raises is raised where the generator has yielded it; one that does not catch it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from topics.engine.commands import Command
from topics.host.system.refusals import FULL


class Blocking(msgspec.Struct, frozen=True):
    """Call this without the lock. `cached_bytes`: it is a write that ends in the page cache, of so many bytes; if they
    are few, it is over sooner than another thread would begin with it.
    """

    call: Callable[[], None]
    cached_bytes: int | None = None


class Propose(msgspec.Struct, frozen=True):
    """Propose this and wait for its end. `sync`: which comes behind the fdatasync that covers it."""

    command: Command
    sync: bool = False


class Swap(msgspec.Struct, frozen=True):
    """Call this where nobody else touches the engine: a rename or two, and a change of where records lie."""

    call: Callable[[], None]


class WaitForBatch(msgspec.Struct, frozen=True):
    """A batch is in flight, or the next file changes: go on when that may have ended."""


class Tell(msgspec.Struct, frozen=True):
    """The engine was told something: tickets may have ended."""


class ResumeBatches(msgspec.Struct, frozen=True):
    """Batches are given out again."""


Step = Blocking | Propose | Swap | WaitForBatch | Tell | ResumeBatches
Steps = Generator[Step, None, None]


def disk_full(error: Exception) -> bool:
    """True if a work failed for want of space only: the next one writes the same bytes again."""
    return isinstance(error, OSError) and error.errno in FULL
