"""Messages and their bytes: one version byte, one kind byte, fields of fixed width, counted lists.

Integers are little-endian, as in an intention. A count is believed only if the bytes behind it are there, so a peer's
bytes never make us allocate more than their own size (I-18). There is one encoding of each message: lists that are
sets ascend, and trailing bytes are refused. Whether a message is welcome here and now is its machine's business; this
module knows only what can be said at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import Any, Final, TypeVar

from topics.codec.primitives import U8, U32, U64
from topics.crypto.hashing import HASH_SIZE
from topics.crypto.keys import KEY_SIZE, SIGNATURE_SIZE
from topics.kernel.errors import invalid
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import STORE_ID_SIZE
from topics.weaver.store.witness import WITNESS_SIZE, Witness
from topics.weaver.sync.limits import (
    BOOTSTRAP_BATCH,
    CHAIN_MAX,
    ENVELOPE_MAX,
    FETCH_MAX,
    FRONTIER_MAX,
    LISTING_MAX,
    MESSAGE_MAX,
    PARTS_MAX,
    REASON_MAX,
    SNAPSHOT_PART,
)
from topics.weaver.sync.messages import (
    BootstrapBatch,
    BootstrapRequest,
    ChainReply,
    ChainRequest,
    Ending,
    Fetch,
    FetchReply,
    FrontierTips,
    Gossip,
    Hello,
    Join,
    ListedHash,
    Message,
    NeedsSnapshot,
    Part,
    RangeDone,
    RangeFingerprint,
    RangeItemsReply,
    RangeItemsRequest,
    Ranges,
    Refusal,
    SnapshotPart,
    SnapshotRequest,
    SyncDone,
    Welcome,
)
from topics.weaver.sync.ranges import HashRange, Scheme

VERSION: Final = 1
SECRET_SIZE: Final = 32

_LISTED: Final = Struct(f"<{HASH_SIZE}sQ")
_TIP: Final = Struct(f"<{KEY_SIZE}s{HASH_SIZE}s")
assert (_LISTED.size, _TIP.size) == (40, 64)

_Choice = TypeVar("_Choice", bound=IntEnum)


def encode(message: Message) -> bytes:
    """The one encoding of the message."""
    kind, write = _WRITERS[type(message)]
    data = b"".join([U8.pack(VERSION), U8.pack(kind), *write(message)])
    assert len(data) <= MESSAGE_MAX
    return data


def decode(data: bytes) -> Message:
    """The message of these bytes. Raises `Rejected` unless they are exactly one encoding."""
    if len(data) > MESSAGE_MAX:
        raise invalid("message", f"{len(data)} bytes; at most {MESSAGE_MAX}")
    reader = _Reader(data)
    version = reader.u8()
    if version != VERSION:
        raise invalid("message.version", f"{version} is not spoken here: use version {VERSION}")
    kind = reader.u8()
    read = _READERS.get(kind)
    if read is None:
        raise invalid("message.kind", f"{kind} is unknown in version {VERSION}")
    message = read(reader)
    reader.end()
    return message


class _Reader:
    """Takes fields off the front of the bytes."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        assert size >= 0
        stop = self._at + size
        if stop > len(self._data):
            raise invalid("message", f"cut off: {size} bytes belong at {self._at}, {self.left} are there")
        taken = self._data[self._at : stop]
        self._at = stop
        return taken

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise invalid("message", f"a flag is 0 or 1, not {value}")
        return bool(value)

    def choice(self, field: str, kind: type[_Choice]) -> _Choice:
        value = self.u8()
        try:
            return kind(value)
        except ValueError:
            raise invalid(field, f"{value} is unknown in version {VERSION}") from None

    def count(self, field: str, most: int, *, size_min: int) -> int:
        """A list's length: within its bound, and its items can be there."""
        value = self.u32()
        if value > most:
            raise invalid(field, f"{value} items; at most {most}")
        if value * size_min > self.left:
            raise invalid(field, f"cut off: {value} items cannot be in {self.left} bytes")
        assert 0 <= value <= most
        return value

    def counted(self, field: str, most: int) -> bytes:
        return self.take(self.count(field, most, size_min=1))

    def end(self) -> None:
        if self.left:
            raise invalid("message", f"{self.left} bytes are behind its end")


# --- fields that several messages have


def _write_item(item: Envelope) -> tuple[bytes, ...]:
    assert len(item.signature) == SIGNATURE_SIZE
    return U32.pack(len(item.body)), item.body, item.signature


def _write_items(items: Sequence[Envelope]) -> list[bytes]:
    return [U32.pack(len(items)), *[chunk for item in items for chunk in _write_item(item)]]


def _read_item(reader: _Reader) -> Envelope:
    return Envelope(reader.counted("item", ENVELOPE_MAX), reader.take(SIGNATURE_SIZE))


def _read_items(reader: _Reader, most: int) -> tuple[Envelope, ...]:
    count = reader.count("items", most, size_min=U32.size + SIGNATURE_SIZE)
    return tuple([_read_item(reader) for _ in range(count)])


def _write_records(records: Sequence[Witness]) -> list[bytes]:
    return [U32.pack(len(records)), *[record.encode() for record in records]]


def _read_records(reader: _Reader) -> tuple[Witness, ...]:
    count = reader.count("records", BOOTSTRAP_BATCH, size_min=WITNESS_SIZE)
    return tuple([Witness.decode(reader.take(WITNESS_SIZE)) for _ in range(count)])


def _write_range(over: HashRange) -> list[bytes]:
    assert not over.is_empty
    return [over.start, U8.pack(over.stop is not None), over.stop or b""]


def _read_range(reader: _Reader) -> HashRange:
    start = reader.take(HASH_SIZE)
    over = HashRange(start, reader.take(HASH_SIZE) if reader.flag() else None)
    if over.is_empty:
        raise invalid("range", "holds nothing: its stop is not behind its start")
    return over


def _write_listed(items: tuple[ListedHash, ...]) -> list[bytes]:
    assert len(items) <= LISTING_MAX
    return [U32.pack(len(items)), *[_LISTED.pack(*item) for item in items]]


def _read_listed(reader: _Reader, over: HashRange) -> tuple[ListedHash, ...]:
    count = reader.count("range.items", LISTING_MAX, size_min=_LISTED.size)
    items = tuple([ListedHash(*pair) for pair in _LISTED.iter_unpack(reader.take(count * _LISTED.size))])
    _ascending("range.items", [item.hash for item in items])
    if items and not (over.holds(items[0].hash) and over.holds(items[-1].hash)):
        raise invalid("range.items", "lie outside their range")
    return items


def _ascending(field: str, values: list[bytes]) -> None:
    if any(before >= after for before, after in pairwise(values)):
        raise invalid(field, "must ascend, without duplicates")


def _write_part(part: Part) -> list[bytes]:
    head = [U8.pack(_PARTS[type(part)]), *_write_range(part.over)]
    if isinstance(part, RangeFingerprint):
        return [*head, part.fingerprint, U64.pack(part.count)]
    return head if isinstance(part, RangeDone) else head + _write_listed(part.items)


def _read_part(reader: _Reader) -> Part:
    tag = reader.u8()
    over = _read_range(reader)
    if tag == _PARTS[RangeDone]:
        return RangeDone(over)
    if tag == _PARTS[RangeFingerprint]:
        return RangeFingerprint(over, reader.take(HASH_SIZE), reader.u64())
    if tag == _PARTS[RangeItemsRequest]:
        return RangeItemsRequest(over, _read_listed(reader, over))
    if tag == _PARTS[RangeItemsReply]:
        return RangeItemsReply(over, _read_listed(reader, over))
    raise invalid("part", f"{tag} is unknown in version {VERSION}")


_PARTS: Final[dict[type[Part], int]] = {
    RangeDone: 0,
    RangeFingerprint: 1,
    RangeItemsRequest: 2,
    RangeItemsReply: 3,
}
_PART_SIZE_MIN: Final = 1 + HASH_SIZE + 1

# --- the messages


def _write_tips(message: FrontierTips) -> list[bytes]:
    assert len(message.tips) <= FRONTIER_MAX
    return [U32.pack(len(message.tips)), *[_TIP.pack(*tip) for tip in message.tips]]


def _read_tips(reader: _Reader) -> FrontierTips:
    count = reader.count("frontier", FRONTIER_MAX, size_min=_TIP.size)
    tips = tuple([(author, tip) for author, tip in _TIP.iter_unpack(reader.take(count * _TIP.size))])
    _ascending("frontier", [author + tip for author, tip in tips])
    return FrontierTips(tips)


def _read_hello(reader: _Reader) -> Hello:
    return Hello(reader.take(STORE_ID_SIZE), reader.choice("scheme", Scheme), reader.take(HASH_SIZE))


def _write_ranges(message: Ranges) -> list[bytes]:
    assert len(message.parts) <= PARTS_MAX
    return [U32.pack(len(message.parts)), *[chunk for part in message.parts for chunk in _write_part(part)]]


def _read_ranges(reader: _Reader) -> Ranges:
    count = reader.count("parts", PARTS_MAX, size_min=_PART_SIZE_MIN)
    return Ranges(tuple([_read_part(reader) for _ in range(count)]))


def _read_fetch(reader: _Reader) -> Fetch:
    count = reader.count("hashes", FETCH_MAX, size_min=HASH_SIZE)
    return Fetch(tuple([reader.take(HASH_SIZE) for _ in range(count)]))


def _write_batch(message: BootstrapBatch) -> list[bytes]:
    assert len(message.records) <= BOOTSTRAP_BATCH
    ends = U64.pack(message.last_seq), U8.pack(message.done)
    return [*_write_records(message.records), *_write_items(message.items), *ends]


def _read_batch(reader: _Reader) -> BootstrapBatch:
    return BootstrapBatch(
        _read_records(reader), _read_items(reader, BOOTSTRAP_BATCH), reader.u64(), reader.flag()
    )


def _write_join(message: Join) -> list[bytes]:
    assert len(message.secret) == SECRET_SIZE
    return [message.store_id, message.secret, message.node, message.proof]


def _read_join(reader: _Reader) -> Join:
    return Join(*[reader.take(size) for size in (STORE_ID_SIZE, SECRET_SIZE, KEY_SIZE, SIGNATURE_SIZE)])


def _write_refusal(message: Refusal) -> list[bytes]:
    # A cut inside a character is dropped, so that what is sent can be read.
    text = message.reason.encode()[:REASON_MAX].decode(errors="ignore").encode()
    assert len(text) <= REASON_MAX
    return [U32.pack(len(text)), text]


def _read_refusal(reader: _Reader) -> Refusal:
    try:
        return Refusal(reader.counted("reason", REASON_MAX).decode())
    except UnicodeDecodeError:
        raise invalid("reason", "is not UTF-8") from None


def _read_part_of_snapshot(reader: _Reader) -> SnapshotPart:
    return SnapshotPart(reader.u64(), reader.counted("data", SNAPSHOT_PART))


_Writer = Callable[[Any], Sequence[bytes]]
_WRITERS: Final[dict[type[Message], tuple[int, _Writer]]] = {
    Hello: (1, lambda m: (m.store_id, U8.pack(m.scheme), m.frontier)),
    FrontierTips: (2, _write_tips),
    Ranges: (3, _write_ranges),
    Fetch: (4, lambda m: (U32.pack(len(m.hashes)), *m.hashes)),
    FetchReply: (5, lambda m: (*_write_items(m.items), U8.pack(m.done))),
    SyncDone: (6, lambda _: ()),
    NeedsSnapshot: (7, lambda _: ()),
    ChainRequest: (8, lambda m: (m.target, m.since)),
    ChainReply: (9, lambda m: (*_write_items(m.items), U8.pack(m.ending))),
    BootstrapRequest: (10, lambda m: (U64.pack(m.start_seq), U32.pack(m.limit))),
    BootstrapBatch: (11, _write_batch),
    Gossip: (12, lambda m: _write_item(m.item)),
    Join: (13, _write_join),
    Welcome: (14, lambda m: (m.store_id,)),
    Refusal: (15, _write_refusal),
    SnapshotRequest: (16, lambda m: (U64.pack(m.offset),)),
    SnapshotPart: (17, lambda m: (U64.pack(m.size), U32.pack(len(m.data)), m.data)),
}
_READERS: Final[dict[int, Callable[[_Reader], Message]]] = {
    1: _read_hello,
    2: _read_tips,
    3: _read_ranges,
    4: _read_fetch,
    5: lambda r: FetchReply(_read_items(r, FETCH_MAX), r.flag()),
    6: lambda _: SyncDone(),
    7: lambda _: NeedsSnapshot(),
    8: lambda r: ChainRequest(r.take(HASH_SIZE), r.take(HASH_SIZE)),
    9: lambda r: ChainReply(_read_items(r, CHAIN_MAX), r.choice("ending", Ending)),
    10: lambda r: BootstrapRequest(r.u64(), r.u32()),
    11: _read_batch,
    12: lambda r: Gossip(_read_item(r)),
    13: _read_join,
    14: lambda r: Welcome(r.take(STORE_ID_SIZE)),
    15: _read_refusal,
    16: lambda r: SnapshotRequest(r.u64()),
    17: _read_part_of_snapshot,
}
assert sorted(_READERS) == sorted(kind for kind, _ in _WRITERS.values())
