"""A list that a server gives by pages: asked for until it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from topics.calls.retry import Line, Talk
from topics.calls.trouble import not_topics

T = TypeVar("T")

PAGE_SIZE: Final = 1000
ROWS_MAX: Final = 10_000_000  # what gives more has no end


def ask_all(
    line: Line,
    path: str,
    read: Callable[[bytes], tuple[Sequence[T], str | None]],
    of: str,
    query: Mapping[str, str] | None = None,
) -> Talk[Sequence[T]]:
    """Every row, in as many requests as it takes. `read`: the rows of a page, and where the next one begins. `of`: what
    it is a list of.
    """
    found: list[T] = []
    asked = {**(query or {}), "page_size": str(PAGE_SIZE)}
    while True:
        rows, cursor = yield from line.ask("GET", path, read, query=dict(asked), repeatable=True)
        found += rows
        if cursor is None:
            return found
        if cursor == asked.get("cursor") or len(found) > ROWS_MAX:
            raise not_topics(line.url, f"its list of {of} has no end")
        asked["cursor"] = cursor
