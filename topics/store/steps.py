"""Carrying out the steps of a generator, in whatever way a driver does one (`host.checkpoint.steps` says what they
are).

What a step raises is raised in the generator, at the step: it alone decides what a failure means. Whatever happens, the
generator is closed at the end, so what it has taken is given back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from topics.host.checkpoint.steps import Step

T = TypeVar("T")


def drive(steps: Generator[Step, None, T], do: Callable[[Step], None]) -> T:
    """Every step, in this thread. Returns what the generator returns, raises what it raises."""
    failed: Exception | None = None
    try:
        while True:
            try:
                step = next(steps) if failed is None else steps.throw(failed)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the generator's type says what it is
            failed = None
            try:
                do(step)
            except Exception as error:  # noqa: BLE001 -- the generator's to catch
                failed = error
    finally:
        failed = None  # its traceback has this frame
        steps.close()


async def drive_async(steps: Generator[Step, None, T], do: Callable[[Step], Awaitable[object] | None]) -> T:
    """As `drive`, in this task. `do` gives what there is to await, if anything."""
    failed: Exception | None = None
    try:
        while True:
            try:
                step = next(steps) if failed is None else steps.throw(failed)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the generator's type says what it is
            failed = None
            try:
                if (waits := do(step)) is not None:
                    await waits
            except Exception as error:  # noqa: BLE001 -- the generator's to catch
                failed = error
    finally:
        failed = None  # its traceback has this frame
        steps.close()
