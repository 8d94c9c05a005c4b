"""What a write carries, as columns: one list a field, no object a record (performance 4).

A column that no record uses is None: the plain case (data only) has its own branch everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class RecordColumns:
    """The records of one write. `data[i]` is stored bytes: JSON text, or a payload with a content type.

    Optional columns are None or as long as `data`; an absent value in one is `b""` (bytes), or None (numbers).
    `meta` is JSON text of an object of strings. Times are relative: `ttl_ms`, `delay_ms`. `sizes[i]` is `len(data[i])`;
    `even`: they are all the same.
    """

    __slots__ = (
        "compressed", "content_type", "data", "dedup_id", "delay_ms", "even", "key", "meta", "node", "priority",
        "size_longest", "size_total", "sizes", "tag", "ttl_ms",
    )  # fmt: skip

    def __init__(
        self,
        data: Sequence[bytes],
        *,
        node: Sequence[bytes] | None = None,
        tag: Sequence[bytes] | None = None,
        key: Sequence[bytes] | None = None,
        meta: Sequence[bytes] | None = None,
        content_type: Sequence[bytes] | None = None,
        dedup_id: Sequence[bytes] | None = None,
        ttl_ms: Sequence[int | None] | None = None,
        priority: Sequence[int | None] | None = None,
        delay_ms: Sequence[int | None] | None = None,
        compressed: Sequence[bool] | None = None,
        sizes: list[int] | None = None,
    ) -> None:
        self.data = data
        # Walked once a write: limits, caps and frames all ask for them.
        self.sizes = list(map(len, data)) if sizes is None else sizes
        count, size = len(data), self.sizes[0] if self.sizes else 0
        self.even = self.sizes.count(size) == count
        self.size_total = count * size if self.even else sum(self.sizes)
        self.size_longest = size if self.even else max(self.sizes)
        self.node = node
        self.tag = tag
        self.key = key
        self.meta = meta
        self.content_type = content_type
        self.dedup_id = dedup_id
        self.ttl_ms = ttl_ms
        self.priority = priority
        self.delay_ms = delay_ms
        self.compressed = compressed
        assert len(self.sizes) == count
        plain = (
            node is tag is key is meta is content_type is dedup_id is None
            and ttl_ms is priority is delay_ms is None
            and compressed is None
        )
        assert plain or all(len(c) == count for c in self.optional())

    def __len__(self) -> int:
        return len(self.data)

    def optional(self) -> list[Sequence[object]]:
        """The optional columns that are there."""
        columns = (
            self.node, self.tag, self.key, self.meta, self.content_type, self.dedup_id,
            self.ttl_ms, self.priority, self.delay_ms, self.compressed,
        )  # fmt: skip
        return [c for c in columns if c is not None]

    @property
    def plain(self) -> bool:
        """True if the records carry data and nothing else."""
        return (
            self.node is None and self.tag is None and self.key is None and self.meta is None
            and self.content_type is None and self.dedup_id is None and self.ttl_ms is None
            and self.priority is None and self.delay_ms is None and self.compressed is None
        )  # fmt: skip

    @property
    def labelled(self) -> bool:
        """True if all records carry the same of tag, node and meta, and nothing else."""
        names = (self.tag, self.node, self.meta)
        others = (
            self.key, self.content_type, self.dedup_id, self.ttl_ms, self.priority, self.delay_ms, self.compressed,
        )  # fmt: skip
        return not any(c is not None for c in others) and all(c is None or all(c) for c in names)

    def with_data(self, data: Sequence[bytes], *, compressed: Sequence[bool]) -> RecordColumns:
        """The same records with other stored bytes."""
        return RecordColumns(
            data, node=self.node, tag=self.tag, key=self.key, meta=self.meta, content_type=self.content_type,
            dedup_id=self.dedup_id, ttl_ms=self.ttl_ms, priority=self.priority, delay_ms=self.delay_ms,
            compressed=compressed,
        )  # fmt: skip

    def take(self, kept: Sequence[int]) -> RecordColumns:
        """The records at these indexes, in that order (used to leave duplicates out)."""

        def pick(column: Sequence[T] | None) -> list[T] | None:
            return None if column is None else [column[i] for i in kept]

        return RecordColumns(
            [self.data[i] for i in kept],
            node=pick(self.node), tag=pick(self.tag), key=pick(self.key), meta=pick(self.meta),
            content_type=pick(self.content_type), dedup_id=pick(self.dedup_id), ttl_ms=pick(self.ttl_ms),
            priority=pick(self.priority), delay_ms=pick(self.delay_ms), compressed=pick(self.compressed),
        )  # fmt: skip
