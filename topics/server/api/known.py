"""Labels that were checked not long ago, so that a label that comes again is looked up and not checked again.

Theory. Tags, nodes and metas are few and come with every record; what one of them is stored as is the same each time,
so it is kept beside the text it came as. A column whose texts are all known costs one look-up a record; any other is
checked as if nothing were known. What passed the limits of one server says nothing of another's, so each has its own.

Memory is bounded by number and by length, for texts come from peers: when there is no more room, all are forgotten.
Threads may ask and tell at once: each step is one call of a dict, and whoever does not find a text checks it himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar, cast

import attrs

KNOWN_MAX: Final = 4096  # texts of a kind,
KNOWN_BYTES_MAX: Final = 128  # none of them longer, nor what is stored for it

T = TypeVar("T", str | None, bytes)


class Known(Generic[T]):
    """What each text of one kind is stored as. `absent`: the texts that stand for no label at all."""

    __slots__ = ("_absent", "_stored")

    def __init__(self, *absent: T) -> None:
        self._absent: dict[T, bytes] = dict.fromkeys(absent, b"")
        self._stored: dict[T, bytes] = self._absent.copy()

    def __len__(self) -> int:
        return len(self._stored) - len(self._absent)

    def column(self, texts: Sequence[T]) -> list[bytes] | None:
        """What is stored for each, `b""` for none; None if one of them is not known."""
        found = list(map(self._stored.get, texts))
        return None if None in found else cast("list[bytes]", found)

    def learn(self, texts: Sequence[T], stored: Sequence[bytes]) -> None:
        """Each of the texts was checked, and is stored so."""
        assert len(texts) == len(stored)
        longest = max(max(map(len, filter(None, texts)), default=0), max(map(len, stored), default=0))
        if len(texts) > KNOWN_MAX or longest > KNOWN_BYTES_MAX:
            return
        if len(self._stored) + len(texts) > KNOWN_MAX:
            self._stored = self._absent.copy()
        self._stored.update(zip(texts, stored, strict=True))


@attrs.frozen(eq=False)
class KnownLabels:
    """Of one server."""

    tags: Known[str | None] = attrs.field(factory=lambda: Known(None))
    nodes: Known[str | None] = attrs.field(factory=lambda: Known(None))
    metas: Known[bytes] = attrs.field(factory=lambda: Known(b"", b"null"))
