"""Entries, and the sparse index of a segment, in the seed's dialect (queues 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from topics.codec.ledgerq.entries import LedgerqEntry
from topics.codec.ledgerq.layout import CHECKSUM_SIZE, ENTRY_BYTES_MAX, ENTRY_HEAD, LENGTH_SIZE, SEED
from topics.codec.primitives import U8, U16, U32, U64
from topics.kernel.limits import U16_MAX

INDEX_MAGIC: Final = 0x4C445149  # the seed's page names none; this is the release's
INDEX_VERSION: Final = 1
INDEX_STEP_BYTES: Final = 4096  # of the segment, between two entries of its index
_INDEX_HEAD: Final = Struct("<III")
_INDEX_ENTRY: Final = Struct("<QQQ")
assert _INDEX_HEAD.size == 12
assert _INDEX_ENTRY.size == 24


def headers_fit(headers: Mapping[str, str]) -> bool:
    """Whether an entry has room for them."""
    texts = [text for pair in headers.items() for text in pair]
    return len(headers) <= U16_MAX and all(len(text.encode()) <= U16_MAX for text in texts)


def encode_entry(entry: LedgerqEntry) -> bytes:
    """`entry.offset` is not written: it is where the bytes are put."""
    assert headers_fit(entry.headers)
    flags, optional = 0, list[bytes]()
    if entry.priority:
        flags |= SEED.priority
        optional.append(U8.pack(entry.priority))
    if entry.expires_ns is not None:
        flags |= SEED.ttl
        optional.append(U64.pack(entry.expires_ns))
    if entry.headers:
        flags |= SEED.headers
        optional.append(U16.pack(len(entry.headers)))
        for text in (text.encode() for pair in entry.headers.items() for text in pair):
            optional.append(U16.pack(len(text)) + text)
    if entry.is_compressed:
        flags |= SEED.compressed
    rest = b"".join((*optional, entry.payload))
    length = ENTRY_HEAD.size - LENGTH_SIZE + len(rest) + CHECKSUM_SIZE
    assert length + LENGTH_SIZE <= ENTRY_BYTES_MAX
    body = ENTRY_HEAD.pack(length, entry.type, flags, entry.id, entry.timestamp_ns) + rest
    return body + U32.pack(SEED.crc(body))


def encode_index(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Rows are (id, timestamp in ns, offset in the segment)."""
    head = _INDEX_HEAD.pack(INDEX_MAGIC, INDEX_VERSION, len(rows))
    return head + b"".join(_INDEX_ENTRY.pack(*row) for row in rows)
