"""The digest of a write's body, which tells a retry from another write under the same idempotency key (semantics 7).

XXH3-64 over the records in order, each as data, node, tag, key, meta, dedup id, ttl, priority, delay; each field as
its length (u32) and its bytes; numbers are u64, and an absent field has length 0. A payload with a content type has the
high bit set in its first length, and the content type follows as a tenth field: `1` the JSON and `1` the bytes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topics.codec.primitives import U32, U64, checksum
from topics.kernel.columns import RecordColumns

_ABSENT: Final = U32.pack(0)
_REST_ABSENT: Final = _ABSENT * 8
_TYPED: Final = 1 << 31


def body_digest(records: RecordColumns) -> int:
    """The digest, of the records before compression and with defaults filled in."""
    pack = U32.pack
    if records.plain:
        return checksum(b"".join([pack(len(data)) + data + _REST_ABSENT for data in records.data]))
    columns: list[list[bytes]] = [
        _data(records),
        *(
            _texts(column, len(records))
            for column in (records.node, records.tag, records.key, records.meta, records.dedup_id)
        ),
        *(_numbers(column, len(records)) for column in (records.ttl_ms, records.priority, records.delay_ms)),
    ]
    assert len(columns) == 9
    if records.content_type is not None:
        columns.append([pack(len(kind)) + kind if kind else b"" for kind in records.content_type])
    return checksum(b"".join([b"".join(fields) for fields in zip(*columns, strict=True)]))


def _data(records: RecordColumns) -> list[bytes]:
    pack = U32.pack
    if records.content_type is None:
        return [pack(len(data)) + data for data in records.data]
    return [
        pack(len(data) | (_TYPED if kind else 0)) + data
        for data, kind in zip(records.data, records.content_type, strict=True)
    ]


def _texts(column: Sequence[bytes] | None, count: int) -> list[bytes]:
    if column is None:
        return [_ABSENT] * count
    pack = U32.pack
    return [pack(len(value)) + value for value in column]


def _numbers(column: Sequence[int | None] | None, count: int) -> list[bytes]:
    if column is None:
        return [_ABSENT] * count
    head = U32.pack(U64.size)
    return [_ABSENT if value is None else head + U64.pack(value) for value in column]
