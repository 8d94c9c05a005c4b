"""State as bytes: one record a fact, the same bytes for the same state (replication 5.6).

A snapshot is the magic `LATS`, a version (u32), the store id, records of type, key and value in strictly ascending
order, a zero byte, and the BLAKE3 of everything before it. Restoring refuses whatever is not exactly that, before it
touches the state it would replace. A change of the state journal is the same records without the frame around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from topics.codec.primitives import U8
from topics.crypto.hashing import HASH_SIZE, blake3
from topics.crypto.keys import KEY_SIZE
from topics.kernel.errors import Corrupt, invalid
from topics.weaver.graph.heads import Heads, KeyHead
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import STORE_ID_SIZE, ZERO_HASH

MAGIC: Final = b"LATS"
VERSION: Final = 1
SNAPSHOT_HEAD: Final = Struct(f"<4sI{STORE_ID_SIZE}s")
assert SNAPSHOT_HEAD.size == 24
RECORD_HEAD: Final = Struct("<BII")  # type, sizes of key and value
assert RECORD_HEAD.size == 9
HEAD_HEAD: Final = Struct("<32sQI32sBI")  # hash, HLC, author, whether there is a value, its size
assert HEAD_HEAD.size == 81
CURSOR: Final = Struct("<32sQ")
assert CURSOR.size == 40
_END: Final = U8.pack(0)


class RecordType(IntEnum):
    """Of a record; 0 ends a snapshot."""

    META = 1
    TIPS = 2
    ENTRY = 3


class ProjectionCursor(NamedTuple):
    """How far a projection is: content hash and number of the last witness record it applied, zero for none."""

    content_hash: bytes
    seq: int


START: Final = ProjectionCursor(ZERO_HASH, 0)


class StatePart(NamedTuple):
    """Some of a state, or all of it: tips by author, heads by key, and the cursor that goes with them."""

    cursor: ProjectionCursor
    tips: Mapping[bytes, tuple[bytes, ...]]
    entries: Mapping[bytes, Heads]


def encode_part(part: StatePart, kind: str) -> bytes:
    """Its records, ascending."""
    assert (part.cursor.content_hash == ZERO_HASH) == (part.cursor.seq == 0)
    metas = [
        _record(RecordType.META, b"cursor", CURSOR.pack(*part.cursor)),
        _record(RecordType.META, b"kind", kind.encode()),
    ]
    return b"".join(metas) + encode_facts(part.tips, part.entries)


def encode_facts(tips: Mapping[bytes, tuple[bytes, ...]], entries: Mapping[bytes, Heads]) -> bytes:
    """The records that do not depend on the node: equal states of different nodes have equal ones."""
    parts = [_record(RecordType.TIPS, author, b"".join(tips[author])) for author in sorted(tips)]
    parts += [_record(RecordType.ENTRY, key, _heads_bytes(entries[key])) for key in sorted(entries)]
    return b"".join(parts)


def decode_part(data: bytes, kind: str) -> StatePart:
    """Raises `Corrupt` for bytes that `encode_part` does not give, `Rejected` for a state of another type."""
    return _decode_records(data, 0, len(data), kind)


def encode_snapshot(part: StatePart, store_id: bytes, kind: str) -> bytes:
    """All of a state."""
    assert len(store_id) == STORE_ID_SIZE
    covered = SNAPSHOT_HEAD.pack(MAGIC, VERSION, store_id) + encode_part(part, kind) + _END
    return covered + blake3(covered)


def decode_snapshot(data: bytes, store_id: bytes, kind: str) -> StatePart:
    """The state in it.

    Raises:
        Corrupt: a wrong magic, version, checksum or form.
        Rejected: the snapshot of another store or type.
    """
    if len(data) < SNAPSHOT_HEAD.size + len(_END) + HASH_SIZE:
        raise Corrupt(f"snapshot: {len(data)} bytes are too few")
    magic, version, of_store = SNAPSHOT_HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt("snapshot: it does not begin with LATS")
    if version != VERSION:
        raise Corrupt(f"snapshot: version {version} is unknown, this one reads {VERSION}")
    if blake3(data[:-HASH_SIZE]) != data[-HASH_SIZE:]:
        raise Corrupt("snapshot: the checksum is wrong")
    if of_store != store_id:
        raise invalid("store_id", f"the snapshot is of store {of_store.hex()}, not {store_id.hex()}")
    end = len(data) - HASH_SIZE - len(_END)
    if data[end : end + 1] != _END:
        raise Corrupt("snapshot: the records do not end")
    return _decode_records(data, SNAPSHOT_HEAD.size, end, kind)


def _record(type_: RecordType, key: bytes, value: bytes) -> bytes:
    return RECORD_HEAD.pack(type_, len(key), len(value)) + key + value


def _heads_bytes(heads: Heads) -> bytes:
    assert heads, "a key without heads is no entry"
    parts = []
    for head in heads:
        value = head.value or b""
        parts += [
            HEAD_HEAD.pack(head.hash, *head.hlc, head.author, head.value is not None, len(value)),
            value,
        ]
    return b"".join(parts)


def _decode_records(data: bytes, at: int, end: int, kind: str) -> StatePart:
    metas: dict[bytes, bytes] = {}
    tips: dict[bytes, tuple[bytes, ...]] = {}
    entries: dict[bytes, Heads] = {}
    last: tuple[int, bytes] | None = None
    while at < end:
        if at + RECORD_HEAD.size > end:
            raise Corrupt("state: a record is cut off")
        type_, key_size, value_size = RECORD_HEAD.unpack_from(data, at)
        key_at = at + RECORD_HEAD.size
        at = key_at + key_size + value_size
        if at > end:
            raise Corrupt("state: a record is cut off")
        assert key_at <= at
        key, value = data[key_at : key_at + key_size], data[key_at + key_size : at]
        if last is not None and (type_, key) <= last:
            raise Corrupt("state: the records do not ascend")
        last = (type_, key)
        if type_ == RecordType.META:
            metas[key] = value
        elif type_ == RecordType.TIPS:
            tips[key] = _tips_of(key, value)
        elif type_ == RecordType.ENTRY:
            entries[key] = _heads_of(value)
        else:
            raise Corrupt(f"state: record type {type_} is unknown")
    return StatePart(_cursor_of(metas, kind), tips, entries)


def _cursor_of(metas: Mapping[bytes, bytes], kind: str) -> ProjectionCursor:
    if metas.keys() != {b"cursor", b"kind"} or len(metas[b"cursor"]) != CURSOR.size:
        raise Corrupt("state: it says no type and cursor, or more")
    if metas[b"kind"] != kind.encode():
        raise invalid("kind", f"the state is of a {metas[b'kind']!r} store, not {kind!r}")
    return ProjectionCursor(*CURSOR.unpack(metas[b"cursor"]))


def _tips_of(author: bytes, value: bytes) -> tuple[bytes, ...]:
    tips = tuple(value[at : at + HASH_SIZE] for at in range(0, len(value), HASH_SIZE))
    if len(author) != KEY_SIZE or not tips or len(tips[-1]) != HASH_SIZE or not _ascend(tips):
        raise Corrupt("state: the tips of an author are malformed")
    return tips


def _heads_of(value: bytes) -> Heads:
    heads: list[KeyHead] = []
    at = 0
    while at < len(value):
        if at + HEAD_HEAD.size > len(value):
            raise Corrupt("state: a head is cut off")
        name, wall, counter, author, has_value, size = HEAD_HEAD.unpack_from(value, at)
        at += HEAD_HEAD.size
        if at + size > len(value) or has_value > 1 or (size and not has_value):
            raise Corrupt("state: a head is malformed")
        heads.append(KeyHead(name, HLC(wall, counter), author, value[at : at + size] if has_value else None))
        at += size
    assert at == len(value)
    if not heads or not _ascend(head.hash for head in heads):
        raise Corrupt("state: the heads of a key do not ascend, or there are none")
    return tuple(heads)


def _ascend(names: Iterable[bytes]) -> bool:
    last = b""
    for name in names:
        if name <= last:
            return False
        last = name
    return True
