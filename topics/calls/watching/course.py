"""The steps of a watch, one at a time. A step that was broken off, as by a cancelled task, is still to be answered, so
whoever asks for the next item goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import attrs

from topics.calls.watching.values import VALUES, WatchValue
from topics.kernel.errors import TopicsError


@attrs.frozen
class Begun:
    """A step: it stands, and its positions are known."""


# Of values; `Begun`; and what is to be answered: of a session `Send`, `Sleep`, `Receive`, of rounds
# calls and `WaitForNews`.
Watching: TypeAlias = Generator[Any, Any, None]


class Course:
    """`step`: what is to be answered, unless it `is_over`."""

    def __init__(self, steps: Watching) -> None:
        self._steps = steps
        self._is_given = False  # the value at which it stands
        self.is_begun = self.is_over = False
        self.step: Any = None
        self.answered(None)

    def value(self) -> WatchValue | None:
        """The next one, if nothing is to be answered before. It stands there until it is asked again."""
        if self._is_given:
            self._is_given = False
            self.answered(None)
        if not isinstance(self.step, VALUES):
            return None
        self._is_given = True
        value: WatchValue = self.step
        return value

    def answered(self, given: Any) -> None:
        self._go_on(self._steps.send, given)

    def refused(self, error: TopicsError) -> None:
        """Raises it if it ends the watch."""
        self._go_on(self._steps.throw, error)

    def _go_on(self, go_on: Callable[[Any], Any], given: Any) -> None:
        self.step = None
        self.is_over = True  # unless there is a step
        try:
            step = go_on(given)
            while isinstance(step, Begun):
                self.is_begun = True
                step = self._steps.send(None)
        except StopIteration:
            return
        self.step, self.is_over = step, False
