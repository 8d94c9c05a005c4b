"""What a write carries, as columns: one list a field, no object a record (performance 4).

A column that no record uses is None: the plain case (data only) has its own branch everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add, attrgetter
from typing import Final, TypeVar, overload

import msgspec

T = TypeVar("T")
_OPTIONAL: Final = (
    "node", "tag", "key", "meta", "content_type", "dedup_id", "ttl_ms", "priority", "delay_ms", "compressed",
    "hops",
)  # fmt: skip
_optional: Final = attrgetter(*_OPTIONAL)
_NONE: Final = (None,) * len(_OPTIONAL)


class Texts(Sequence[bytes]):
    """Texts where they lie in a body: one is copied when it is asked for, so that whoever can take them as they are
    (a join can) copies none. They hold the body.
    """

    __slots__ = ("raws",)

    def __init__(self, raws: list[msgspec.Raw]) -> None:
        self.raws = raws

    def __len__(self) -> int:
        return len(self.raws)

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, self.raws)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(map(bytes, self.raws[at]))
        return bytes(self.raws[at])


class RecordColumns(msgspec.Struct, eq=False):
    """The records of one write. `data[i]` is stored bytes: JSON text, or a payload with a content type.

    Optional columns are None or as long as `data`; an absent value in one is `b""` (bytes), or None (numbers).
    `meta` is JSON text of an object of strings. Times are relative: `ttl_ms`, `delay_ms`. `hops`: of a router's copies.

    Walked once a write, for limits, caps and frames all ask: `sizes[i]` is `len(data[i])`; `even`: they are all the
    same; `stored`: with the bytes of `meta`, empty if there is none, and then its total and longest are of the sizes.
    """

    data: Sequence[bytes]
    node: Sequence[bytes] | None = None
    tag: Sequence[bytes] | None = None
    key: Sequence[bytes] | None = None
    meta: Sequence[bytes] | None = None
    content_type: Sequence[bytes] | None = None
    dedup_id: Sequence[bytes] | None = None
    ttl_ms: Sequence[int | None] | None = None
    priority: Sequence[int | None] | None = None
    delay_ms: Sequence[int | None] | None = None
    compressed: Sequence[bool] | None = None
    hops: Sequence[int | None] | None = None
    sizes: list[int] = []
    even: bool = True
    size_total: int = 0
    size_longest: int = 0
    stored: list[int] = []
    stored_total: int = 0
    stored_longest: int = 0

    def __post_init__(self) -> None:
        data, sizes = self.data, self.sizes
        if not sizes:
            self.sizes = sizes = list(map(len, data))
        count = len(data)
        assert len(sizes) == count
        if count == 1:
            self.size_total = self.size_longest = sizes[0]
        elif count:
            size = sizes[0]
            self.even = even = sizes.count(size) == count
            self.size_total = count * size if even else sum(sizes)
            self.size_longest = size if even else max(sizes)
        self.stored_total, self.stored_longest = self.size_total, self.size_longest
        if not self.plain:
            for column in self.optional():
                assert len(column) == count
            if self.meta is not None:
                self.stored = stored = list(map(add, sizes, map(len, self.meta)))
                self.stored_total, self.stored_longest = sum(stored), max(stored, default=0)

    def __len__(self) -> int:
        return len(self.data)

    def optional(self) -> list[Sequence[object]]:
        """The optional columns that are there."""
        return [column for column in _optional(self) if column is not None]

    @property
    def plain(self) -> bool:
        """True if the records carry data and nothing else."""
        return _optional(self) == _NONE

    @property
    def labelled(self) -> bool:
        """True if all records carry the same of tag, node and meta, and nothing else."""
        names = (self.tag, self.node, self.meta)
        others = (
            self.key, self.content_type, self.dedup_id, self.ttl_ms, self.priority, self.delay_ms, self.compressed,
            self.hops,
        )  # fmt: skip
        return not any(c is not None for c in others) and all(c is None or all(c) for c in names)

    def with_data(self, data: Sequence[bytes], *, compressed: Sequence[bool]) -> RecordColumns:
        """The same records with other stored bytes."""
        return RecordColumns(
            data, node=self.node, tag=self.tag, key=self.key, meta=self.meta, content_type=self.content_type,
            dedup_id=self.dedup_id, ttl_ms=self.ttl_ms, priority=self.priority, delay_ms=self.delay_ms,
            compressed=compressed, hops=self.hops,
        )  # fmt: skip

    def let_go(self) -> None:
        """Give the memory back: what is in the columns is in frames by now, and nobody asks for it here any more."""
        self.data = ()
        self.node = self.tag = self.key = self.meta = self.content_type = self.dedup_id = None
        self.ttl_ms = self.priority = self.delay_ms = self.compressed = self.hops = None
        self.sizes, self.stored = [], []

    def take(self, kept: Sequence[int]) -> RecordColumns:
        """The records at these indexes, in that order (used to leave duplicates out)."""

        def pick(column: Sequence[T] | None) -> list[T] | None:
            return None if column is None else [column[i] for i in kept]

        return RecordColumns(
            [self.data[i] for i in kept],
            node=pick(self.node), tag=pick(self.tag), key=pick(self.key), meta=pick(self.meta),
            content_type=pick(self.content_type), dedup_id=pick(self.dedup_id), ttl_ms=pick(self.ttl_ms),
            priority=pick(self.priority), delay_ms=pick(self.delay_ms), compressed=pick(self.compressed),
            hops=pick(self.hops),
        )  # fmt: skip
