"""The layout of a WAL frame, and what can be wrong with one.

    frame_len u32 | type u8 | flags u8 | topic_id u64 | seq u64 | ts u64 | node_len u16 | tag_len u16 | data_len u32
    | node | tag | data region | xxh3 u64

`frame_len` leaves itself out; the checksum covers everything between it and itself. The data region is
`[u32 meta_len, meta JSON]` if META, `[u16 ext_len, (u8 type, u16 len, value)...]` if EXT, then the data bytes
(storage 2). There is exactly one way to write a frame: TAG iff tag_len > 0, NODE iff node_len > 0, no empty meta or
extension region, extensions ascending by type and each at most once. Anything else is refused, as is every flag bit
without a meaning and every extension this version does not know: to skip one would be to break the promise it carries.
Where a right checksum says that a newer version wrote such a frame, it is UNKNOWN: refused, and never cut.

Nothing here reads outside `[offset, stop)`, loops without advancing, or allocates beyond its input (I-18).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum, IntFlag
from struct import Struct
from typing import Final

from topics.codec.primitives import U16, U32, U64, Buffer, checksum
from topics.kernel.errors import Corrupt

FRAME_HEAD: Final = Struct("<IBBQQQHHI")
assert FRAME_HEAD.size == 38
COVERED_HEAD: Final = Struct("<BBQQQHHI")  # the head from `type` on: what the checksum covers of it
assert COVERED_HEAD.size == 34
FRAME_LEN_SIZE: Final = U32.size
CHECKSUM_SIZE: Final = U64.size
FRAME_OVERHEAD: Final = FRAME_HEAD.size + CHECKSUM_SIZE
assert FRAME_OVERHEAD == 46
LEN_OVERHEAD: Final = FRAME_OVERHEAD - FRAME_LEN_SIZE  # frame_len of a frame with nothing in it
assert LEN_OVERHEAD == 42

EXT_HEAD: Final = Struct("<BH")
assert EXT_HEAD.size == 3


class FrameType(IntEnum):
    """What a frame says (seed 2.1, storage 2)."""

    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    COMMIT_MARK = 12
    CONSUMER_COMMIT = 13
    SCHEDULE = 14
    LOSS_RANGE = 15
    KV_OP = 16
    INTENTION = 17
    WRITE_RESULT = 18
    FORWARD = 19


# Numbers that are given out, without a payload yet: this version knows such a frame no better than one above them.
RESERVED_TYPES: Final = frozenset((FrameType.KV_OP, FrameType.INTENTION))
KNOWN_TYPES: Final = frozenset(int(kind) for kind in FrameType if kind not in RESERVED_TYPES)


class Flag(IntFlag):
    """Bits of the flags byte; the two high ones are always 0."""

    TAG = 1
    NODE = 2
    DURABLE = 4
    META = 8
    COMPRESSED = 16
    EXT = 32


# Plain ints beside the enum: enum arithmetic costs microseconds a frame.
TAG, NODE, DURABLE, META, COMPRESSED, EXT = (int(flag) for flag in Flag)
FLAGS_ALL: Final = TAG | NODE | DURABLE | META | COMPRESSED | EXT
FLAGS_CONTROL: Final = DURABLE | EXT
APPEND: Final = int(FrameType.APPEND)


class Ext(IntEnum):
    """Extensions of a frame (storage 2)."""

    EXPIRES_AT = 1
    PRIORITY = 2
    NOT_BEFORE = 3
    KEY = 4
    DEDUP_ID = 5
    IDEMPOTENCY_KEY = 6
    WRITE_FRAMES = 7
    CONTENT_TYPE = 8
    BOUND = 9
    HOPS = 10
    BODY_DIGEST = 11


# Size of the value, None where it varies (then it is not empty).
EXT_SIZES: Final[dict[int, int | None]] = {
    Ext.EXPIRES_AT: 8,
    Ext.PRIORITY: 1,
    Ext.NOT_BEFORE: 8,
    Ext.KEY: None,
    Ext.DEDUP_ID: None,
    Ext.IDEMPOTENCY_KEY: None,
    Ext.WRITE_FRAMES: 4,
    Ext.CONTENT_TYPE: None,
    Ext.BOUND: 8,
    Ext.HOPS: 1,
    Ext.BODY_DIGEST: 8,
}
assert set(EXT_SIZES) == set(Ext)

# Extensions that say something of a write, not of its record.
EXTS_OF_WRITE: Final = frozenset((int(Ext.IDEMPOTENCY_KEY), int(Ext.WRITE_FRAMES), int(Ext.BODY_DIGEST)))


class Defect(Enum):
    """Why bytes are no whole frame. A value: a torn tail is expected."""

    ZERO = "no frame begins here (frame_len is 0)"
    HEAD = "the frame's head runs past the end"
    SHORT = "frame_len is less than a frame's"
    TORN = "the frame runs past the end"
    TYPE = "a frame of this type does not belong here"
    UNKNOWN = "the frame is whole, and this version does not know all of it"
    FLAGS = "flags that this version does not know, or that contradict the lengths"
    LENGTHS = "frame_len contradicts the lengths in the head"
    IDS = "topic id or seq impossible for the frame's type"
    CHECKSUM = "the checksum does not match"
    REGION = "the data region is malformed"
    PAYLOAD = "the payload is malformed"
    WRITE = "a write begins inside another"


def pack_frame(
    kind: int,
    flags: int,
    topic_id: int,
    seq: int,
    ts: int,
    data: bytes,
    *,
    node: bytes = b"",
    tag: bytes = b"",
    meta: bytes = b"",
    exts: bytes = b"",
) -> bytes:
    """One whole frame. `flags` holds DURABLE and COMPRESSED; the other bits follow from what is there."""
    assert flags & ~(DURABLE | COMPRESSED) == 0
    if exts:
        flags |= EXT
        data = U16.pack(len(exts)) + exts + data
    if meta:
        flags |= META
        data = U32.pack(len(meta)) + meta + data
    if tag:
        flags |= TAG
    if node:
        flags |= NODE
    covered = (
        COVERED_HEAD.pack(kind, flags, topic_id, seq, ts, len(node), len(tag), len(data)) + node + tag + data
    )
    return U32.pack(len(covered) + CHECKSUM_SIZE) + covered + U64.pack(checksum(covered))


def pack_exts(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    """The extension region's entries, without its length. Pairs ascend by type."""
    return b"".join([EXT_HEAD.pack(kind, len(value)) + value for kind, value in pairs])


def parse_exts(region: bytes, *, newer: bool = False) -> dict[int, bytes] | None:
    """The extensions, or None if the region is malformed. `newer`: those of a number that nobody here knows may be in
    it, of whatever size.
    """
    exts: dict[int, bytes] = {}
    at, stop, before = 0, len(region), 0
    while at < stop:
        if stop - at < EXT_HEAD.size:
            return None
        kind, size = EXT_HEAD.unpack_from(region, at)
        at += EXT_HEAD.size
        if kind <= before or size > stop - at:
            return None
        if kind in EXT_SIZES:
            wanted = EXT_SIZES[kind]
            if size == 0 or (wanted is not None and size != wanted):
                return None
        elif not newer:
            return None
        exts[kind] = region[at : at + size]
        at += size
        before = kind
    assert at == stop
    frames = exts.get(Ext.WRITE_FRAMES)
    if frames is not None and U32.unpack(frames)[0] < 2:
        return None
    return exts if (Ext.IDEMPOTENCY_KEY in exts) == (Ext.BODY_DIGEST in exts) else None


def parse_region(
    region: bytes, flags: int, *, newer: bool = False
) -> tuple[bytes, dict[int, bytes], bytes] | None:
    """(meta, extensions, data) of a data region, or None if it is malformed. `newer`: as for `parse_exts`."""
    at, stop = 0, len(region)
    meta, exts = b"", {}
    if flags & META:
        if stop - at < U32.size:
            return None
        (size,) = U32.unpack_from(region, at)
        at += U32.size
        if size == 0 or size > stop - at:
            return None
        meta = region[at : at + size]
        at += size
    if flags & EXT:
        if stop - at < U16.size:
            return None
        (size,) = U16.unpack_from(region, at)
        at += U16.size
        if size == 0 or size > stop - at:
            return None
        parsed = parse_exts(region[at : at + size], newer=newer)
        if parsed is None:
            return None
        exts = parsed
        at += size
    assert at <= stop
    return meta, exts, region[at:]


def checked_region(region: bytes, flags: int) -> tuple[bytes, dict[int, bytes], bytes]:
    """The same of a frame that `check_frame` has let through.

    Raises:
        Corrupt: it has not.
    """
    parsed = parse_region(region, flags)
    if parsed is None:
        raise Corrupt(f"frame: {Defect.REGION.value}", defect=Defect.REGION)
    return parsed


def check_head(buffer: Buffer, offset: int, stop: int) -> int | Defect:
    """Length of the frame that a head claims, if the head agrees with itself; the checksum is not looked at. A frame of
    a type that this version does not know is laid out as any; its ids may be any.
    """
    assert 0 <= offset <= stop <= len(buffer)
    if stop - offset < FRAME_LEN_SIZE:
        return Defect.HEAD if any(buffer[offset:stop]) else Defect.ZERO
    (frame_len,) = U32.unpack_from(buffer, offset)
    if frame_len == 0:
        return Defect.ZERO
    if frame_len < LEN_OVERHEAD:
        return Defect.SHORT
    if stop - offset < FRAME_HEAD.size:
        return Defect.HEAD
    _, kind, flags, topic_id, seq, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(buffer, offset)
    unknown = kind not in KNOWN_TYPES
    allowed = FLAGS_ALL if kind == APPEND or unknown else FLAGS_CONTROL
    if flags & ~allowed or bool(flags & TAG) != bool(tag_len) or bool(flags & NODE) != bool(node_len):
        return Defect.FLAGS
    if frame_len != LEN_OVERHEAD + node_len + tag_len + data_len:
        return Defect.LENGTHS
    if not unknown and not _ids_fit(kind, topic_id, seq):
        return Defect.IDS
    total = FRAME_LEN_SIZE + frame_len
    return Defect.TORN if total > stop - offset else int(total)


def check_frame(buffer: Buffer, offset: int, stop: int) -> int | Defect:
    """Length of the whole frame at `offset`, or why there is none. A control frame's payload is not looked at.

    UNKNOWN is the one defect of a frame whose checksum is right though nobody can say what it means, for its type, a
    flag or an extension is none of ours: no torn write looks so, and whoever meets it leaves it alone.
    """
    total = check_head(buffer, offset, stop)
    if isinstance(total, Defect):
        return Defect.UNKNOWN if total is Defect.FLAGS and _newer_flags(buffer, offset, stop) else total
    end = offset + total - CHECKSUM_SIZE
    if checksum(buffer[offset + FRAME_LEN_SIZE : end]) != U64.unpack_from(buffer, end)[0]:
        return Defect.CHECKSUM
    _, kind, flags, _, _, _, node_len, tag_len, _ = FRAME_HEAD.unpack_from(buffer, offset)
    if kind not in KNOWN_TYPES:
        return Defect.UNKNOWN
    if flags & (META | EXT):
        start = offset + FRAME_HEAD.size + node_len + tag_len
        region = bytes(buffer[start:end])
        if parse_region(region, flags) is None:
            return Defect.REGION if parse_region(region, flags, newer=True) is None else Defect.UNKNOWN
    return total


def frame_length(buffer: Buffer, offset: int, stop: int) -> int | Defect:
    """Length of the whole frame at `offset`, whether all of it is known or not, or why there is none."""
    total = check_frame(buffer, offset, stop)
    if total is Defect.UNKNOWN:
        return FRAME_LEN_SIZE + int(U32.unpack_from(buffer, offset)[0])
    return total


def _newer_flags(buffer: Buffer, offset: int, stop: int) -> bool:
    """Whether the flags that `check_head` has refused are all that is wrong: the names are as long as TAG and NODE say,
    the lengths agree, and the checksum, which is only then computed, is right. The ids may be any.
    """
    frame_len, _, flags, _, _, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(buffer, offset)
    if bool(flags & TAG) != bool(tag_len) or bool(flags & NODE) != bool(node_len):
        return False
    end: int = offset + FRAME_LEN_SIZE + frame_len - CHECKSUM_SIZE
    if frame_len != LEN_OVERHEAD + node_len + tag_len + data_len or end + CHECKSUM_SIZE > stop:
        return False
    return bool(checksum(buffer[offset + FRAME_LEN_SIZE : end]) == U64.unpack_from(buffer, end)[0])


def _ids_fit(kind: int, topic_id: int, seq: int) -> bool:
    if kind == APPEND:
        return topic_id > 0 and seq > 0
    return seq == 0 and (topic_id == 0) == (kind == FrameType.COMMIT_MARK)
