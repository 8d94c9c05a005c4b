"""A journal in memory: what a restart of the process would find is `items`, and it can be told to fail.

It copies what it is given, as a disk does, so a caller cannot change what it has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from topics.kernel.errors import Fatal


class MemoryJournal:
    """`kernel.ports.Journal` over a list. `appends` counts the atomic writes."""

    __slots__ = ("appends", "fails", "items")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self.items: list[bytes] = list(items)
        self.appends = 0
        self.fails = False

    def append(self, items: Sequence[bytes]) -> None:
        if self.fails:
            raise Fatal("the journal was told to fail")
        self.appends += 1
        self.items += [bytes(item) for item in items]

    def read(self) -> Iterator[bytes]:
        return iter(list(self.items))
