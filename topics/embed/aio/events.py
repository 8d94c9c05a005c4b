"""What a runtime has to say of itself: events with fields, to a log if there is one (style 29).

The server hands its log in. A store in a program of one's own is asked instead: `failures`, `damages`, `warnings`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol


class Say(Protocol):
    """One level of a log: what happened, as `noun.verb`, and its fields."""

    def __call__(self, event: str, /, **fields: Any) -> None: ...


class EventLog(Protocol):
    """Where events go."""

    @property
    def info(self) -> Say: ...
    @property
    def warning(self) -> Say: ...
    @property
    def error(self) -> Say: ...


class _Nobody:
    """Nobody reads them."""

    def info(self, event: str, /, **fields: Any) -> None: ...

    warning = error = info


NOBODY: Final[EventLog] = _Nobody()
