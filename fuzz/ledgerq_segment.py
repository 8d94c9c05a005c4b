"""Segments of ledgerq: the first byte says in which dialect, the others are the file."""

from __future__ import annotations

from topics.codec.ledgerq.encode import encode_entry
from topics.codec.ledgerq.entries import BrokenEntry, LedgerqEntry, decode_segment
from topics.codec.ledgerq.layout import CHECKSUM_SIZE, LENGTH_SIZE, RELEASE, SEED, Dialect
from topics.codec.primitives import U32

TOKENS = (
    b"\x1a\x00\x00\x00\x01\x00", b"\x01\x00", b"\xff\xff\xff\xff", b"QQDL", bytes(4), bytes(64),
    b"\x01\x00\x01\x00a\x00\x00",
)  # fmt: skip
for dialect_known in (SEED, RELEASE):
    dialect_known.crc(b"")  # makes its tables, which are of no input


def check(data: bytes) -> None:
    """Every byte is accounted for, and what is an entry is one when it is written again."""
    dialect = _dialect(data)
    segment = data[1:]
    at = min(dialect.header_size, len(segment))
    for found in decode_segment(segment, dialect):
        if isinstance(found, BrokenEntry):
            assert found.offset in (at, 0), "bytes are passed over in silence"
            at = max(at, found.stop)
            continue
        assert found.offset == at, "bytes are passed over in silence"
        at += U32.unpack_from(segment, at)[0] + LENGTH_SIZE
        (again,) = decode_segment(encode_entry(found), SEED, after_id=found.id - 1)
        assert isinstance(again, LedgerqEntry)
        assert _told(again) == _told(found), "an entry does not come back"
    assert at == len(segment), "bytes are passed over in silence"


def reseal(data: bytes) -> bytes:
    """Right sums, as far as lengths go on."""
    dialect = _dialect(data)
    fixed, at = bytearray(data), 1 + dialect.header_size
    while at + LENGTH_SIZE <= len(fixed):
        stop = at + LENGTH_SIZE + U32.unpack_from(fixed, at)[0]
        end = stop - dialect.trailer - CHECKSUM_SIZE
        if stop > len(fixed) or end < at + LENGTH_SIZE:
            break
        fixed[end:stop] = U32.pack(dialect.crc(fixed[at:end])) + bytes(dialect.trailer)
        at = stop
    return bytes(fixed)


def _dialect(data: bytes) -> Dialect:
    return RELEASE if data[:1] == b"\1" else SEED


def _told(entry: LedgerqEntry) -> tuple[object, ...]:
    return (
        entry.type, entry.id, entry.timestamp_ns, entry.payload, entry.headers, entry.expires_ns, entry.priority,
        entry.is_compressed,
    )  # fmt: skip
