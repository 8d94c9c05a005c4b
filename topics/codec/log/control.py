"""Control frames: everything the log says that is not a record.

One value a frame type. Low-rate ones carry JSON of a fixed shape in their data region, the rest a fixed layout; both
refuse fields, sizes and values they do not know. The topic is in the frame's head, the time is its ts, the seq is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from topics.codec.log import consumers, forwards, routers, schedules
from topics.codec.log.layout import (  # fmt: skip
    APPEND,
    CHECKSUM_SIZE,
    COVERED_HEAD,
    DURABLE,
    EXT,
    FRAME_HEAD,
    KNOWN_TYPES,
    Defect,
    Ext,
    FrameType,
    check_frame,
    checked_region,
    pack_exts,
    pack_frame,
)
from topics.codec.log.leases import LEASE_EVENTS, LeaseEvent, decode_lease, encode_lease
from topics.codec.primitives import U32, U64, Buffer, checksum
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U16_MAX, U64_MAX

MARK_CONSTANT: Final = b"\xc0mmit\xa7\x0f\x9b"  # eight bytes that no UTF-8 text holds
assert len(MARK_CONSTANT) == 8
COMMIT_MARK: Final = Struct("<8s8sQQ")
assert COMMIT_MARK.size == 32
MARK_FRAME: Final = Struct(f"<I{COVERED_HEAD.size + COMMIT_MARK.size}sQ")
_MARK_COVERED: Final = Struct("<BBQQQHHI8s8sQQ")  # COVERED_HEAD and COMMIT_MARK in one
assert _MARK_COVERED.size == COVERED_HEAD.size + COMMIT_MARK.size
DELETE_HEAD: Final = Struct("<BQQ")
assert DELETE_HEAD.size == 17
CHECKPOINT_MARK: Final = Struct("<QQQQB")
assert CHECKPOINT_MARK.size == 33
WRITE_RESULT_HEAD: Final = Struct("<QIQHI")
assert WRITE_RESULT_HEAD.size == 26
DUPLICATE: Final = Struct("<IQ")
assert DUPLICATE.size == 12

_DELETE_BEFORE, _DELETE_MATCH = 1, 2
_SEALED, _COLD = 1, 2  # flags of a CheckpointMark
_T = TypeVar("_T")


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payload: compared by value."""


class TopicCreate(_Payload, frozen=True):
    """A topic instance begins. `ceiling` is its first HeadWatermark (storage 3)."""

    name: str
    epoch: int
    config: dict[str, Any]
    ceiling: int


class TopicDelete(_Payload, frozen=True):
    """The topic instance ends, with all it holds."""


class Carried(_Payload, frozen=True):
    """What no frame has told of an ephemeral topic when it becomes a logged one: its head, its floors and when it was
    last written (semantics 3). `reasons`: the highest seq lost for each reason.
    """

    head_seq: int
    evict_floor: int
    lost_ts: int
    reasons: dict[str, int]
    last_write_ts: int


class ConfigUpdate(_Payload, frozen=True, omit_defaults=True):
    """The whole new config."""

    config: dict[str, Any]
    carried: Carried | None = None


class Delete(_Payload, frozen=True):
    """Delete what is below `before_seq` and matches, up to `upto` (semantics 5). `match` is JSON text."""

    before_seq: int | None
    match: bytes | None
    upto: int


class EvictWatermark(_Payload, frozen=True):
    """Time has passed: its ts is all it says (semantics 6)."""


class HeadWatermark(_Payload, frozen=True):
    """No seq above `ceiling` is published before a higher one is synced (storage 3)."""

    ceiling: int


class LossRange(_Payload, frozen=True):
    """Seqs [first, last] are known lost, both included."""

    first: int
    last: int
    reason: str


class CommitMark(_Payload, frozen=True):
    """An fdatasync had returned for everything before (covered_file, covered_offset). `file_id` is of the file that
    holds the mark. The one that ends the log of a generation covers its own end, too, which its own sync makes true.
    """

    file_id: bytes
    covered_file: int
    covered_offset: int


class CheckpointMark(_Payload, frozen=True):
    """Seqs [first, last] lie in the segment that begins with seq `segment`, the last one's delete byte ends at `size`,
    and all of it is synced (storage 5). `last = first - 1`: none were added. `sealed`: none will be. `cold`: its data
    is in the cold tier from now on; of one sealed before, a mark without it says that the data is back (storage 6).
    """

    segment: int
    first: int
    last: int
    size: int
    sealed: bool
    cold: bool = False


class WriteResult(_Payload, frozen=True):
    """First frame of an idempotent write that has duplicates. `count`: inputs; `first_seq`: 0 if nothing was appended;
    `duplicates`: (index among the inputs, seq of the first).
    """

    key: bytes
    digest: int
    count: int
    first_seq: int
    duplicates: list[tuple[int, int]]


Payload: TypeAlias = (
    TopicCreate | TopicDelete | ConfigUpdate | Delete | EvictWatermark | HeadWatermark | LossRange | CommitMark
    | CheckpointMark | WriteResult | LeaseEvent | consumers.ConsumerCommit | schedules.Schedule
    | routers.RouterCreate | routers.RouterDelete | forwards.Forward
)  # fmt: skip


class Control(msgspec.Struct, frozen=True):
    """A control frame and its place in the file: `length` bytes from `offset`."""

    type: FrameType
    topic_id: int
    ts: int
    payload: Payload
    offset: int
    length: int
    durable: bool
    write_frames: int = 1


TYPES: Final[dict[type[Payload], FrameType]] = {
    TopicCreate: FrameType.TOPIC_CREATE,
    TopicDelete: FrameType.TOPIC_DELETE,
    Delete: FrameType.DELETE,
    EvictWatermark: FrameType.EVICT_WATERMARK,
    ConfigUpdate: FrameType.CONFIG_UPDATE,
    HeadWatermark: FrameType.HEAD_WATERMARK,
    CommitMark: FrameType.COMMIT_MARK,
    CheckpointMark: FrameType.CHECKPOINT_MARK,
    LossRange: FrameType.LOSS_RANGE,
    WriteResult: FrameType.WRITE_RESULT,
    consumers.ConsumerCommit: FrameType.CONSUMER_COMMIT,
    schedules.Schedule: FrameType.SCHEDULE,
    routers.RouterCreate: FrameType.ROUTER_CREATE,
    routers.RouterDelete: FrameType.ROUTER_DELETE,
    forwards.Forward: FrameType.FORWARD,
    **dict.fromkeys(LEASE_EVENTS, FrameType.LEASE),
}


def encode_control(
    payload: Payload, *, topic_id: int, ts: int, durable: bool = False, write_frames: int = 1
) -> bytes:
    """The frame. `write_frames`: frames of the write that begins with it."""
    kind = TYPES[type(payload)]
    assert write_frames >= 1
    assert (topic_id == 0) == (kind is FrameType.COMMIT_MARK)
    exts = pack_exts([(Ext.WRITE_FRAMES, U32.pack(write_frames))]) if write_frames > 1 else b""
    return pack_frame(kind, DURABLE if durable else 0, topic_id, 0, ts, encode_payload(payload), exts=exts)


def encode_mark(mark: CommitMark, *, ts: int) -> bytes:
    """`encode_control` of a CommitMark, in two packs: every synced write has one before it."""
    assert len(mark.file_id) == 8
    covered = _MARK_COVERED.pack(
        FrameType.COMMIT_MARK, 0, 0, 0, ts, 0, 0, COMMIT_MARK.size,
        MARK_CONSTANT, mark.file_id, mark.covered_file, mark.covered_offset,
    )  # fmt: skip
    return MARK_FRAME.pack(len(covered) + CHECKSUM_SIZE, covered, checksum(covered))


def decode_control(buffer: Buffer, offset: int = 0, stop: int | None = None) -> Control:
    """The control frame at `offset`. Raises `Corrupt` if it is not whole or not understood."""
    total = check_frame(buffer, offset, len(buffer) if stop is None else stop)
    if isinstance(total, Defect):
        raise Corrupt(f"frame at offset {offset}: {total.value}", offset=offset, defect=total)
    return control_at(buffer, offset, total)


def control_at(buffer: Buffer, offset: int, total: int) -> Control:
    """The control frame of `total` bytes at `offset`, already checked by `check_frame`. Raises `Corrupt`."""
    _, kind, flags, topic_id, _, ts, _, _, _ = FRAME_HEAD.unpack_from(buffer, offset)
    if kind == APPEND:
        raise Corrupt(
            f"frame at offset {offset}: an append is no control frame", offset=offset, defect=Defect.TYPE
        )
    region = bytes(buffer[offset + FRAME_HEAD.size : offset + total - CHECKSUM_SIZE])
    _, exts, data = checked_region(region, flags & EXT)
    frame_type = FrameType(kind)
    try:
        if exts.keys() - {Ext.WRITE_FRAMES}:
            raise _malformed("an extension that belongs to no control frame")
        payload = decode_payload(frame_type, data)
        if isinstance(payload, routers.RouterCreate) and payload.source_id != topic_id:
            raise _malformed(f"source_id {payload.source_id} in a frame of topic {topic_id}")
    except Corrupt as error:
        text = f"{frame_type.name} frame at offset {offset}: {error.message}"
        raise Corrupt(text, offset=offset, topic_id=topic_id, defect=Defect.PAYLOAD) from None
    frames = U32.unpack(exts[Ext.WRITE_FRAMES])[0] if exts else 1
    return Control(frame_type, topic_id, ts, payload, offset, total, bool(flags & DURABLE), frames)


def encode_payload(payload: Payload) -> bytes:
    """The data region of a control frame."""
    if isinstance(payload, LeaseEvent):  # most are
        return encode_lease(payload)
    if (encode := _ENCODERS.get(type(payload))) is not None:
        return encode(payload)
    if isinstance(payload, consumers.ConsumerCommit):
        return consumers.encode_consumer(payload)
    if isinstance(payload, TopicCreate | ConfigUpdate | LossRange):
        return msgspec.json.encode(payload)
    if isinstance(payload, TopicDelete | EvictWatermark):
        return b""
    if isinstance(payload, HeadWatermark):
        return U64.pack(payload.ceiling)
    if isinstance(payload, CommitMark):
        assert len(payload.file_id) == 8
        return COMMIT_MARK.pack(MARK_CONSTANT, payload.file_id, payload.covered_file, payload.covered_offset)
    if isinstance(payload, CheckpointMark):
        flags = (_SEALED if payload.sealed else 0) | (_COLD if payload.cold else 0)
        return CHECKPOINT_MARK.pack(payload.segment, payload.first, payload.last, payload.size, flags)
    if isinstance(payload, Delete):
        selectors = (0 if payload.before_seq is None else _DELETE_BEFORE) | (
            0 if payload.match is None else _DELETE_MATCH
        )
        assert selectors != 0
        return DELETE_HEAD.pack(selectors, payload.upto, payload.before_seq or 0) + (payload.match or b"")
    assert isinstance(payload, WriteResult)
    assert 1 <= len(payload.key) <= U16_MAX
    head = WRITE_RESULT_HEAD.pack(
        payload.digest, payload.count, payload.first_seq, len(payload.key), len(payload.duplicates)
    )
    return head + payload.key + b"".join([DUPLICATE.pack(index, seq) for index, seq in payload.duplicates])


def decode_payload(kind: FrameType, data: bytes) -> Payload:
    """The value of a control frame's data region. Raises `Corrupt`."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise _malformed("unsupported by this version")
    return decoder(data)


def _topic_create(data: bytes) -> TopicCreate:
    payload = _json(data, TopicCreate)
    if not payload.name or not 1 <= payload.epoch <= U64_MAX or not 0 <= payload.ceiling <= U64_MAX:
        raise _malformed("a name, an epoch from 1 and a ceiling are needed")
    return payload


def _empty(kind: Callable[[], Payload]) -> Callable[[bytes], Payload]:
    def decode(data: bytes) -> Payload:
        _sized(data, 0)
        return kind()

    return decode


def _delete(data: bytes) -> Delete:
    if len(data) < DELETE_HEAD.size:
        raise _malformed(f"{len(data)} bytes are too few")
    selectors, upto, before_seq = DELETE_HEAD.unpack_from(data)
    match = data[DELETE_HEAD.size :]
    if not 1 <= selectors <= _DELETE_BEFORE | _DELETE_MATCH:
        raise _malformed(f"selectors {selectors} are unknown")
    if bool(selectors & _DELETE_MATCH) != bool(match) or (before_seq and not selectors & _DELETE_BEFORE):
        raise _malformed("the selectors contradict what is there")
    return Delete(before_seq if selectors & _DELETE_BEFORE else None, match or None, upto)


def _head_watermark(data: bytes) -> HeadWatermark:
    _sized(data, U64.size)
    return HeadWatermark(U64.unpack(data)[0])


def _loss_range(data: bytes) -> LossRange:
    payload = _json(data, LossRange)
    if not 1 <= payload.first <= payload.last <= U64_MAX:
        raise _malformed(f"[{payload.first}, {payload.last}] is no range of seqs")
    return payload


def _commit_mark(data: bytes) -> CommitMark:
    _sized(data, COMMIT_MARK.size)
    constant, file_id, covered_file, covered_offset = COMMIT_MARK.unpack(data)
    if constant != MARK_CONSTANT:
        raise _malformed("the magic is wrong")
    return CommitMark(file_id, covered_file, covered_offset)


def _checkpoint_mark(data: bytes) -> CheckpointMark:
    _sized(data, CHECKPOINT_MARK.size)
    segment, first, last, size, flags = CHECKPOINT_MARK.unpack(data)
    sealed, cold, adds = bool(flags & _SEALED), bool(flags & _COLD), first <= last
    known = flags <= _SEALED | _COLD
    if not known or not 1 <= segment <= first <= last + 1 or not (sealed or adds) or (cold and adds):
        raise _malformed(f"seqs [{first}, {last}] of segment {segment}, flags {flags}, make no sense")
    return CheckpointMark(segment, first, last, size, sealed, cold)


def _write_result(data: bytes) -> WriteResult:
    if len(data) < WRITE_RESULT_HEAD.size:
        raise _malformed(f"{len(data)} bytes are too few")
    digest, count, first_seq, key_len, duplicate_count = WRITE_RESULT_HEAD.unpack_from(data)
    start = WRITE_RESULT_HEAD.size + key_len
    _sized(data, start + duplicate_count * DUPLICATE.size)
    duplicates = list(DUPLICATE.iter_unpack(data[start:]))
    if key_len == 0 or duplicate_count > count:
        raise _malformed("no key, or more duplicates than inputs")
    return WriteResult(data[WRITE_RESULT_HEAD.size : start], digest, count, first_seq, duplicates)


_DECODERS: Final[dict[FrameType, Callable[[bytes], Payload]]] = {
    FrameType.TOPIC_CREATE: _topic_create,
    FrameType.TOPIC_DELETE: _empty(TopicDelete),
    FrameType.DELETE: _delete,
    FrameType.EVICT_WATERMARK: _empty(EvictWatermark),
    FrameType.CONFIG_UPDATE: lambda data: _json(data, ConfigUpdate),
    FrameType.HEAD_WATERMARK: _head_watermark,
    FrameType.COMMIT_MARK: _commit_mark,
    FrameType.CHECKPOINT_MARK: _checkpoint_mark,
    FrameType.LOSS_RANGE: _loss_range,
    FrameType.WRITE_RESULT: _write_result,
    FrameType.LEASE: decode_lease,
    FrameType.CONSUMER_COMMIT: consumers.decode_consumer,
    FrameType.SCHEDULE: schedules.decode_schedule,
    FrameType.ROUTER_CREATE: routers.decode_router,
    FrameType.ROUTER_DELETE: routers.decode_router_end,
    FrameType.FORWARD: forwards.decode_forward,
}
_ENCODERS: Final[dict[type[Payload], Callable[[Any], bytes]]] = {
    consumers.ConsumerCommit: consumers.encode_consumer,
    schedules.Schedule: schedules.encode_schedule,
    routers.RouterCreate: routers.encode_router,
    routers.RouterDelete: routers.encode_router_end,
    forwards.Forward: forwards.encode_forward,
}
assert set(_DECODERS) == set(TYPES.values()) == KNOWN_TYPES - {APPEND}


def _json(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(str(error)) from None


def _sized(data: bytes, size: int) -> None:
    if len(data) != size:
        raise _malformed(f"{len(data)} bytes where {size} belong")


def _malformed(why: str) -> Corrupt:
    return Corrupt(f"the payload is malformed: {why}")
