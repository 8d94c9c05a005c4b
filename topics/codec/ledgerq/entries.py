"""A segment of ledgerq as entries, in order; what is damaged is left out and told as a `BrokenEntry`, with its place.

A checksum that is wrong says nothing of the length beside it, so behind a flaw two things are tried: that the length is
right after all, and the next place at which an entry that fits begins. What it may cost is bounded: of a file of n
bytes no more than 16 n are summed up in search of a place, and the rest of it is one flaw then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from topics.codec.ledgerq.crc import CASTAGNOLI
from topics.codec.ledgerq.layout import (
    CHECKSUM_SIZE,
    ENTRY_BYTES_MAX,
    ENTRY_HEAD,
    LENGTH_SIZE,
    RELEASE_HEADER,
    RELEASE_MAGIC,
    Dialect,
    EntryType,
    Level,
)
from topics.codec.primitives import U16, U32, U64, Buffer
from topics.kernel.errors import Corrupt

ID_STEP_MAX: Final = 10_000_000  # ids that are missing between two entries, each a seq that is passed over
ID_MAX: Final = 1_000_000_000
_SEARCH_FACTOR: Final = 16
_TYPES: Final = frozenset(map(int, EntryType))
_GZIP: Final = 1


class LedgerqEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One entry, its payload as it is stored. `expires_ns`: None if it does not. `offset`: in its file."""

    type: EntryType
    id: int
    timestamp_ns: int
    payload: bytes
    headers: dict[str, str] = {}
    expires_ns: int | None = None
    priority: Level = Level.LOW
    is_compressed: bool = False
    offset: int = 0


class BrokenEntry(msgspec.Struct, frozen=True, gc=False):
    """Bytes from `offset` up to `stop` that are no entry, and why. `id`: of which, if that can be told."""

    offset: int
    stop: int
    why: str
    id: int | None = None


def is_release(data: Buffer) -> bool:
    """Whether a segment begins as the release's do."""
    return len(data) >= U32.size and U32.unpack_from(data)[0] == RELEASE_MAGIC


def decode_segment(
    data: Buffer, dialect: Dialect, *, after_id: int = 0, about_id: int = 0
) -> Iterator[LedgerqEntry | BrokenEntry]:
    """All entries of a segment, and what is none. Ids of data are above `after_id` and ascend, without a jump that
    only damage explains, unless it is to `about_id`, which the file's name says.
    """
    at, ids = 0, _Ids(after_id, about_id)
    search = _Search(data, dialect)
    if dialect.header_size:
        why = _header_flaw(data)
        at = min(dialect.header_size, len(data))
        if why:
            yield BrokenEntry(0, at, why)
    while at < len(data):
        found = _decode(data, at, dialect)
        if isinstance(found, LedgerqEntry):
            stop = at + _size(data, at)
            if found.type is not EntryType.DATA:
                yield found
            elif ids.fits(found.id):
                ids.last = found.id
                yield found
            else:
                yield BrokenEntry(at, stop, f"id {found.id} behind id {ids.last}", found.id)
        else:
            stop = search.next_place(at, ids)
            yield BrokenEntry(at, stop, found)
        assert at < stop <= len(data)
        at = stop


class _Ids:
    """Which id may come next. `last`: the highest so far."""

    __slots__ = ("_about", "last")

    def __init__(self, last: int, about: int) -> None:
        self.last = last
        self._about = about

    def fits(self, number: int) -> bool:
        return self.last < number <= min(max(self.last, self._about) + ID_STEP_MAX, ID_MAX)


def _header_flaw(data: Buffer) -> str | None:
    """What is wrong with the header of a release's segment."""
    if len(data) < RELEASE_HEADER.size:
        return f"the file has {len(data)} bytes, its header alone {RELEASE_HEADER.size}"
    magic, version, *_, crc = RELEASE_HEADER.unpack_from(data)
    if magic != RELEASE_MAGIC:
        return f"the header begins with {magic:#010x}, not {RELEASE_MAGIC:#010x}"
    if version != 1:
        return f"version {version} of the header is not known"
    head = memoryview(data)[: RELEASE_HEADER.size - CHECKSUM_SIZE]
    if crc != CASTAGNOLI(head):
        return "the header's checksum is wrong"
    return None


def _size(data: Buffer, at: int) -> int:
    """Of an entry with its length field, as that says."""
    size: int = U32.unpack_from(data, at)[0]
    return size + LENGTH_SIZE


def _bounds_flaw(data: Buffer, at: int, dialect: Dialect) -> str | None:
    """Why no entry can begin here, by its length, type and flags alone."""
    left = len(data) - at
    least = ENTRY_HEAD.size + CHECKSUM_SIZE + dialect.trailer
    if left < least:
        return f"{left} {'byte is' if left == 1 else 'bytes are'} left, fewer than any entry has"
    length, kind, flags, _, _ = ENTRY_HEAD.unpack_from(data, at)
    size = length + LENGTH_SIZE
    if size < least or size > ENTRY_BYTES_MAX:
        return f"no entry has a length of {length}"
    if size > left:
        return f"its length says {size} bytes, the file ends after {left}"
    if kind not in _TYPES:
        return f"type {kind} is not known"
    if flags & ~dialect.known_flags:
        return f"flags {flags:#04x} are not known"
    return None


def _decode(data: Buffer, at: int, dialect: Dialect) -> LedgerqEntry | str:
    """The entry, or what is wrong with it."""
    why = _bounds_flaw(data, at, dialect)
    if why is not None:
        return why
    stop = at + _size(data, at)
    if not _is_sound(data, at, stop, dialect):
        return "the checksum is wrong"
    body = bytes(memoryview(data)[at : stop - dialect.trailer - CHECKSUM_SIZE])
    if body[5] & dialect.encrypted:
        return "it is encrypted, and nothing here has the key"
    try:
        return _fields(body, at, dialect)
    except Corrupt as error:
        return error.message


def _is_sound(data: Buffer, at: int, stop: int, dialect: Dialect) -> bool:
    end = stop - dialect.trailer - CHECKSUM_SIZE
    view = memoryview(data)
    return bool(
        U32.unpack_from(data, end)[0] == dialect.crc(view[at:end])
        and not any(view[end + CHECKSUM_SIZE : stop])
    )


def _fields(body: bytes, offset: int, dialect: Dialect) -> LedgerqEntry:
    """Raises `Corrupt`: sums are right, and yet it is no entry."""
    assert len(body) >= ENTRY_HEAD.size
    _, kind, flags, number, timestamp = ENTRY_HEAD.unpack_from(body)
    reader = _EntryFields(body)
    priority = reader.number(1) if flags & dialect.priority else 0
    if priority not in Level.__members__.values():
        raise Corrupt(f"priority {priority} is not known")
    expires = reader.number(U64.size) if flags & dialect.ttl else None
    headers = reader.headers() if flags & dialect.headers else {}
    is_compressed = bool(flags & dialect.compressed)
    if is_compressed and dialect.has_compression_byte:
        compression = reader.number(1)
        if compression != _GZIP:
            raise Corrupt(f"compression {compression} is not known")
    return LedgerqEntry(
        type=EntryType(kind), id=number, timestamp_ns=timestamp, payload=body[reader.at :], headers=headers,
        expires_ns=expires, priority=Level(priority), is_compressed=is_compressed, offset=offset,
    )  # fmt: skip


class _EntryFields:
    """What comes behind an entry's fixed part, one field after another."""

    def __init__(self, body: bytes) -> None:
        self.at = ENTRY_HEAD.size
        self._body = body

    def bytes(self, size: int) -> bytes:
        """Raises `Corrupt`."""
        stop = self.at + size
        if stop > len(self._body):
            raise Corrupt(f"a field of {size} bytes ends behind the entry")
        found = self._body[self.at : stop]
        self.at = stop
        assert len(found) == size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "little")

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(self.number(U16.size)):
            name, value = self._text(), self._text()
            if name in found:
                raise Corrupt(f"header {name[:64]!r} is there twice")
            found[name] = value
        return found

    def _text(self) -> str:
        raw = self.bytes(self.number(U16.size))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Corrupt(f"a header is not UTF-8: {raw[:32]!r}") from None


class _Search:
    """Where the next entry begins behind one that is damaged."""

    def __init__(self, data: Buffer, dialect: Dialect) -> None:
        self._data = data
        self._dialect = dialect
        self._left = _SEARCH_FACTOR * len(data)

    def next_place(self, at: int, ids: _Ids) -> int:
        """Behind `at`; the end of the file if there is none, or if too much was searched."""
        data, dialect = self._data, self._dialect
        assert at < len(data)
        if _bounds_flaw(data, at, dialect) is None:
            stop = at + _size(data, at)
            if stop == len(data) or self._fits(stop, ids):
                return stop
        for place in range(at + 1, len(data) - ENTRY_HEAD.size):
            if self._left <= 0:
                break
            if self._fits(place, ids):
                return place
        return len(data)

    def _fits(self, at: int, ids: _Ids) -> bool:
        data, dialect = self._data, self._dialect
        if _bounds_flaw(data, at, dialect) is not None:
            return False
        _, kind, _, number, _ = ENTRY_HEAD.unpack_from(data, at)
        if kind == EntryType.DATA and not ids.fits(number):
            return False
        size = _size(data, at)
        self._left -= size
        return _is_sound(data, at, at + size, dialect)
