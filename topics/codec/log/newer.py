"""Whether a newer version wrote a whole frame: its checksum is right, and something in it is none of ours.

`check_frame` tells that of a type, a flag and an extension. A control frame's payload is looked at here: what is left
of it without the fields, flags and bytes that nobody here knows has to be one that this version could have written.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from topics.codec.log import consumers, forwards, leases
from topics.codec.log.control import (
    CHECKPOINT_MARK,
    COMMIT_MARK,
    DELETE_HEAD,
    DUPLICATE,
    WRITE_RESULT_HEAD,
    Carried,
    ConfigUpdate,
    LossRange,
    TopicCreate,
    control_at,
    decode_payload,
)
from topics.codec.log.layout import (
    APPEND,
    CHECKSUM_SIZE,
    EXT,
    FRAME_HEAD,
    Defect,
    FrameType,
    check_frame,
    checked_region,
)
from topics.codec.log.routers import RouterCreate
from topics.codec.log.schedules import Schedule
from topics.codec.primitives import U64, Buffer
from topics.kernel.errors import Corrupt

_JSON: Final[dict[FrameType, type[msgspec.Struct]]] = {
    FrameType.TOPIC_CREATE: TopicCreate,
    FrameType.CONFIG_UPDATE: ConfigUpdate,
    FrameType.LOSS_RANGE: LossRange,
    FrameType.SCHEDULE: Schedule,
    FrameType.ROUTER_CREATE: RouterCreate,
}
_SIZES: Final = {
    FrameType.TOPIC_DELETE: 0,
    FrameType.EVICT_WATERMARK: 0,
    FrameType.HEAD_WATERMARK: U64.size,
    FrameType.ROUTER_DELETE: U64.size,
    FrameType.COMMIT_MARK: COMMIT_MARK.size,
}
_BEFORE, _MATCH = 1, 2  # the selectors of a Delete
_SEALED, _COLD = 1, 2  # the flags of a CheckpointMark


def is_newer(buffer: Buffer, offset: int, stop: int) -> bool:
    """Whether the frame at `offset` is whole and says something that this version does not know."""
    total = check_frame(buffer, offset, stop)
    if isinstance(total, Defect):
        return total is Defect.UNKNOWN
    _, kind, flags, _, _, _, _, _, _ = FRAME_HEAD.unpack_from(buffer, offset)
    if kind == APPEND:
        return False
    try:
        control_at(buffer, offset, total)
    except Corrupt:
        region = bytes(buffer[offset + FRAME_HEAD.size : offset + total - CHECKSUM_SIZE])
        return _has_more(FrameType(kind), checked_region(region, flags & EXT)[2])
    return False


def _has_more(kind: FrameType, data: bytes) -> bool:
    try:
        decode_payload(kind, _known_part(kind, data))
    except (Corrupt, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _known_part(kind: FrameType, data: bytes) -> bytes:
    """The payload without what nobody here knows. Any bytes if it is malformed: they are malformed as well."""
    if kind in _JSON:
        return msgspec.json.encode(_known_fields(msgspec.json.decode(data), _JSON[kind]))
    if kind in _SIZES:
        return data[: _SIZES[kind]]
    if kind is FrameType.CHECKPOINT_MARK and len(data) >= CHECKPOINT_MARK.size:
        segment, first, last, size, flags = CHECKPOINT_MARK.unpack_from(data)
        known = flags & _COLD | _SEALED if flags > _SEALED | _COLD else flags
        return CHECKPOINT_MARK.pack(segment, first, last, size, known)
    if kind is FrameType.DELETE and data and data[0] > _BEFORE | _MATCH:
        return bytes([_BEFORE | _MATCH if len(data) > DELETE_HEAD.size else _BEFORE]) + data[1:]
    if kind is FrameType.LEASE:
        return leases.known_part(data)
    if kind is FrameType.CONSUMER_COMMIT:
        return consumers.known_part(data)
    if kind is FrameType.FORWARD:
        return forwards.known_part(data)
    if kind is FrameType.WRITE_RESULT and len(data) >= WRITE_RESULT_HEAD.size:
        _, _, _, key_len, duplicates = WRITE_RESULT_HEAD.unpack_from(data)
        return data[: WRITE_RESULT_HEAD.size + key_len + duplicates * DUPLICATE.size]
    return data


def _known_fields(value: Any, kind: type[msgspec.Struct]) -> Any:
    if not isinstance(value, dict):
        return value
    known = {name: value[name] for name in kind.__struct_fields__ if name in value}
    if kind is ConfigUpdate and "carried" in known:
        known["carried"] = _known_fields(known["carried"], Carried)
    return known
