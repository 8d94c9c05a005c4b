"""Finding whole frames past damage, and marks wherever they lie (storage 4).

A frame verifies by itself, so scanning can resume at the next offset where one does. A regular expression finds offsets
that could be a head (a type, any flags, and numbers below 2**48: ids, seqs and milliseconds are); zeros and text are
passed at C speed. Only then is a checksum computed.

A record may hold the bytes of a frame. So where the damaged frame's head still agrees with itself and a whole frame (or
nothing at all) follows it, its inside is not searched: what is found inside would be somebody's data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from topics.codec.log.control import COMMIT_MARK, MARK_CONSTANT, CommitMark, Control, control_at
from topics.codec.log.layout import (
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    KNOWN_TYPES,
    LEN_OVERHEAD,
    Defect,
    FrameType,
    check_frame,
    check_head,
    frame_length,
)
from topics.codec.primitives import U32, Buffer, immutable
from topics.kernel.errors import Corrupt

# The head from `type` on: type, flags, then topic_id, seq and ts, whose two high bytes are zero.
HEAD_PATTERN: Final = re.compile(rb"[^\x00].(?:.{6}\x00\x00){3}", re.DOTALL)

_LENGTHS: Final = (
    (0, 4),
    (30, 2),
    (32, 2),
    (34, 4),
)  # (offset, size): frame_len, node_len, tag_len, data_len
assert FRAME_HEAD.format == "<IBBQQQHHI"
_OTHER_BITS: Final = range(4 * 8, 30 * 8)


def find_frames(buffer: Buffer, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of the whole frames in [start, stop), of whatever type, ascending and disjoint, whatever lies
    between them.
    """
    assert 0 <= start <= stop <= len(buffer)
    data = immutable(buffer)
    at: int | None = start
    while at is not None:
        total = frame_length(data, at, stop)
        if not isinstance(total, Defect):
            yield at, total
            at += total
        else:
            at = _resume(data, at, stop)


def find_marks(buffer: Buffer, file_id: bytes, start: int, stop: int) -> Iterator[Control]:
    """The intact CommitMarks of this file in [start, stop), ascending; each Control says where it lies."""
    assert 0 <= start <= stop <= len(buffer)
    data = immutable(buffer)
    magic = MARK_CONSTANT + file_id
    at = data.find(magic, start + FRAME_HEAD.size, stop)
    while at >= 0:
        offset = at - FRAME_HEAD.size
        total = check_frame(data, offset, stop)
        if (
            total == FRAME_OVERHEAD + COMMIT_MARK.size
            and data[offset + FRAME_LEN_SIZE] == FrameType.COMMIT_MARK
        ):
            try:
                mark = control_at(data, offset, total)
            except Corrupt:
                pass  # the checksum is right and the payload is not: no mark
            else:
                assert isinstance(mark.payload, CommitMark)
                yield mark
        at = data.find(magic, at + 1, stop)


def plausible_head(buffer: Buffer, offset: int, stop: int) -> tuple[int, int, FrameType] | None:
    """(topic id, seq, type) of the damaged frame in [offset, stop): what its head says, if that agrees with itself.

    Where turning one bit of the head back makes the frame whole, that is the head: its checksum says so. Otherwise
    nothing is verified, for the damage is elsewhere in the frame.
    """
    head = _head_with_a_bit_turned_back(buffer, offset, stop)
    if head is None:
        claimed = check_head(buffer, offset, stop)
        if isinstance(claimed, Defect) and claimed is not Defect.TORN:
            return None
        head = bytes(buffer[offset : offset + FRAME_HEAD.size])
    _, kind, _, topic_id, seq, _, _, _, _ = FRAME_HEAD.unpack_from(head)
    return (topic_id, seq, FrameType(kind)) if kind in KNOWN_TYPES else None


def _head_with_a_bit_turned_back(buffer: Buffer, offset: int, stop: int) -> bytes | None:
    """The head that makes this frame whole, if it differs in one bit from the one that is there."""
    if stop - offset < FRAME_OVERHEAD:
        return None
    head = bytearray(buffer[offset : offset + FRAME_HEAD.size])
    for bit in _bits_to_try(head):
        head[bit // 8] ^= 1 << bit % 8
        (frame_len,) = U32.unpack_from(head)
        end = offset + FRAME_LEN_SIZE + frame_len
        if end <= stop:
            frame = head + buffer[offset + FRAME_HEAD.size : end]
            if not isinstance(check_frame(frame, 0, len(frame)), Defect):
                return bytes(head)
        head[bit // 8] ^= 1 << bit % 8
    return None


def _bits_to_try(head: bytes | bytearray) -> Sequence[int]:
    """Bits of a head of which one, turned over, lets its lengths agree: those of other fields, if they do already."""
    frame_len, _, _, _, _, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(head)
    differ = abs(frame_len - LEN_OVERHEAD - node_len - tag_len - data_len)
    if differ == 0:
        return _OTHER_BITS
    bit = differ.bit_length() - 1
    if differ != 1 << bit:
        return ()
    return [at * 8 + bit for at, size in _LENGTHS if bit < size * 8]


def _resume(data: bytes, at: int, stop: int) -> int | None:
    """Offset of the next whole frame behind the bad one at `at`."""
    assert at <= stop
    claimed = check_head(data, at, stop)
    if not isinstance(claimed, Defect) and _frame_or_nothing(data, at + claimed, stop):
        at += claimed - 1
    search = HEAD_PATTERN.search
    found = search(data, at + 1 + FRAME_LEN_SIZE, stop)
    while found is not None:
        at = found.start() - FRAME_LEN_SIZE
        if not isinstance(frame_length(data, at, stop), Defect):
            return at
        found = search(data, found.start() + 1, stop)
    return None


def _frame_or_nothing(data: bytes, at: int, stop: int) -> bool:
    total = frame_length(data, at, stop)
    return not isinstance(total, Defect) or total is Defect.ZERO
