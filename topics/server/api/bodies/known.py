"""Labels that were checked not long ago, so that a label that comes again is looked up and not checked again.

Theory. Tags, nodes and metas are few and come with every record; what one of them is stored as is the same each time,
so it is kept beside the text it came as. A column whose texts are all known costs one look-up a record; any other is
checked as if nothing were known. What passed the limits of one server says nothing of another's, so each has its own.

Memory is bounded by number and by length, for texts come from peers: when there is no more room, all are forgotten.
So is time: where labels never come again, to look for them and to learn them costs more than it ever saves, so after
many columns in a row that were not known few are looked up, until one is known. Threads may ask and tell at once: each
step is one call of a dict, and whoever does not find a text checks it himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar, cast

import attrs

KNOWN_MAX: Final = 4096  # texts of a kind,
KNOWN_BYTES_MAX: Final = 128  # none of them longer, nor what is stored for it
MISSES_MAX: Final = 64  # columns in a row that were learnt in vain; after them only
LOOKED_EVERY: Final = 16  # one of so many is looked up

T = TypeVar("T", str | None, bytes)


class KnownTexts(Generic[T]):
    """What each text of one kind is stored as. `absent`: the texts that stand for no label at all."""

    __slots__ = ("_absent", "_asked", "_misses", "_stored")

    def __init__(self, *absent: T) -> None:
        self._absent: dict[T, bytes] = dict.fromkeys(absent, b"")
        self._stored: dict[T, bytes] = self._absent.copy()
        self._asked = self._misses = 0

    def __len__(self) -> int:
        return len(self._stored) - len(self._absent)

    def column(self, texts: Sequence[T]) -> list[bytes] | None:
        """What is stored for each, `b""` for none; None if one of them is not known, or if they are not looked up."""
        self._asked += 1
        if self._gives_up():
            return None
        found = list(map(self._stored.get, texts))
        if None in found:
            self._misses += 1
            return None
        self._misses = 0
        return cast("list[bytes]", found)

    def learn(self, texts: Sequence[T], stored: Sequence[bytes]) -> None:
        """Each of the texts, which `column` did not know, was checked and is stored so."""
        assert len(texts) == len(stored)
        if self._gives_up():
            return
        longest = max(max(map(len, filter(None, texts)), default=0), max(map(len, stored), default=0))
        if len(texts) > KNOWN_MAX or longest > KNOWN_BYTES_MAX:
            return
        if len(self._stored) + len(texts) > KNOWN_MAX:
            self._stored = self._absent.copy()
        self._stored.update(zip(texts, stored, strict=True))

    def _gives_up(self) -> bool:
        """True if the present column is not worth a look."""
        return self._misses > MISSES_MAX and self._asked % LOOKED_EVERY != 0


@attrs.frozen(eq=False)
class KnownLabels:
    """Of one server."""

    tags: KnownTexts[str | None] = attrs.field(factory=lambda: KnownTexts(None))
    nodes: KnownTexts[str | None] = attrs.field(factory=lambda: KnownTexts(None))
    metas: KnownTexts[bytes] = attrs.field(factory=lambda: KnownTexts(b"", b"null"))
