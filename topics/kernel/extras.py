"""What an extra brings, and who lacks it is told which (decision 104).

`pip install topics-log` is the embedded store and its command line. All else is asked for by name; whatever needs it
imports it when it is used, inside `Needs`.
"""

from __future__ import annotations

from topics.kernel.errors import TopicsError


class MissingExtra(TopicsError, ImportError):
    """Something is not installed; the message has the command that installs it."""


class Needs:
    """A block that imports for `what` what the extra of that name brings. Raises `MissingExtra`, which names both."""

    __slots__ = ("_extra", "_what")

    def __init__(self, what: str, extra: str) -> None:
        self._what = what
        self._extra = extra

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, ModuleNotFoundError) or error.name is None:
            return
        package = error.name.partition(".")[0]
        if package == "topics":  # a fault of ours, and no package helps
            return
        raise MissingExtra(
            f"{self._what}: {package} is not installed: pip install 'topics-log[{self._extra}]'"
        ) from error
