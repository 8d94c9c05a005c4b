"""Append frames as records. The layout and its one spelling are in `layout`, encoding in `encode`, columns in `run`.

Decoding checks lengths, flags and checksum before it looks at anything else, and says what is wrong as `Corrupt`.
Reading a page verifies each frame against what the index says is there: topic and seq, so that misplaced bytes are
found although their checksum is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

import msgspec

from topics.codec.log.encode import encode_run
from topics.codec.log.layout import (  # fmt: skip
    APPEND,
    CHECKSUM_SIZE,
    COMPRESSED,
    DURABLE,
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    Defect,
    Ext,
    Flag,
    FrameType,
    check_frame,
    parse_region,
)
from topics.codec.log.run import Keyed, Run, pack_job
from topics.codec.primitives import LAYOUT_BYTES_MAX, U64, Buffer, checksum
from topics.kernel.errors import Corrupt

__all__ = [
    "FRAME_HEAD", "FRAME_OVERHEAD", "Defect", "Ext", "Flag", "FrameType", "FrameView", "Keyed", "Run", "check_frame",
    "decode_frame", "decode_payloads", "encode_run",
]  # fmt: skip

NO_EXTS: Final[dict[int, bytes]] = {}  # shared by all views without extensions; never written to


class _Viewers(dict[int, Struct]):
    """Data bytes -> layout that reads a whole plain frame at once: `type` and `flags` as one u16, `node_len` and
    `tag_len` as one u32.
    """

    def __missing__(self, size: int) -> Struct:
        layout = Struct(f"<IHQQQII{size}sQ")
        assert layout.size == size + FRAME_OVERHEAD
        if size <= LAYOUT_BYTES_MAX:
            self[size] = layout
        return layout


_viewers: Final = _Viewers()


class FrameView(msgspec.Struct, gc=False, frozen=True):
    """A decoded append frame. Absent: `b""`, and no entry in `exts`."""

    seq: int
    ts: int
    flags: int
    topic_id: int
    node: bytes
    tag: bytes
    meta: bytes
    data: bytes
    exts: dict[int, bytes]

    @property
    def durable(self) -> bool:
        return bool(self.flags & DURABLE)

    @property
    def compressed(self) -> bool:
        return bool(self.flags & COMPRESSED)

    @property
    def expires_at(self) -> int | None:
        return self._number(Ext.EXPIRES_AT)

    @property
    def priority(self) -> int | None:
        return self._number(Ext.PRIORITY)

    @property
    def not_before(self) -> int | None:
        return self._number(Ext.NOT_BEFORE)

    @property
    def job(self) -> int:
        """Priority and not-before as one number: see `pack_job`."""
        return pack_job(self.priority, self.not_before)

    @property
    def key(self) -> bytes:
        return self.exts.get(Ext.KEY, b"")

    @property
    def dedup_id(self) -> bytes:
        return self.exts.get(Ext.DEDUP_ID, b"")

    @property
    def content_type(self) -> bytes:
        return self.exts.get(Ext.CONTENT_TYPE, b"")

    @property
    def hops(self) -> int:
        """How often routers on a cycle have copied it."""
        return self._number(Ext.HOPS) or 0

    @property
    def keyed(self) -> Keyed | None:
        """The idempotent write that begins with this frame."""
        key, digest = self.exts.get(Ext.IDEMPOTENCY_KEY), self._number(Ext.BODY_DIGEST)
        return None if key is None or digest is None else Keyed(key, digest)

    @property
    def write_frames(self) -> int:
        """How many frames the write has that begins with this one; 1 if nothing is said."""
        return self._number(Ext.WRITE_FRAMES) or 1

    def with_data(self, data: bytes) -> FrameView:
        """The same record with its payload decompressed."""
        assert self.compressed
        return FrameView(
            self.seq,
            self.ts,
            self.flags & ~COMPRESSED,
            self.topic_id,
            self.node,
            self.tag,
            self.meta,
            data,
            self.exts,
        )

    def _number(self, ext: Ext) -> int | None:
        value = self.exts.get(ext)
        return None if value is None else int.from_bytes(value, "little")


def decode_frame(buffer: Buffer, offset: int, stop: int | None = None) -> FrameView:
    """The append frame at `offset`. Raises `Corrupt` if it is not whole, or no append frame."""
    stop = len(buffer) if stop is None else stop
    total = check_frame(buffer, offset, stop)
    if isinstance(total, Defect):
        raise Corrupt(f"frame at offset {offset}: {total.value}", offset=offset, defect=total)
    view = _view(bytes(buffer[offset : offset + total]))
    if view is None:
        raise Corrupt(f"frame at offset {offset}: not an append", offset=offset, defect=Defect.TYPE)
    return view


def decode_payloads(
    buffer: Buffer,
    offsets: Sequence[int],
    lengths: Sequence[int],
    *,
    topic_id: int,
    seqs: Sequence[int],
) -> list[FrameView]:
    """The append frames at these places, each verified to be whole, of this topic and with this seq.

    Raises `Corrupt` with the topic and the seq of the first that is not.
    """
    views = _decoded(buffer, offsets, lengths, topic_id, seqs, None)
    assert views is not None
    return views


def decode_texts(
    buffer: Buffer,
    offsets: Sequence[int],
    lengths: Sequence[int],
    *,
    topic_id: int,
    seqs: Sequence[int],
    other: Callable[[FrameView], bytes | None],
) -> list[bytes] | None:
    """The JSON of each record, verified as `decode_payloads` does. `other` makes that of a record that is more than
    plain data; None if it will not.

    One pass for what a reader mostly gets: no view is made, a payload is copied once, into its text.

    Raises `Corrupt` with the topic and the seq of the first that is not there.
    """
    return _decoded(buffer, offsets, lengths, topic_id, seqs, other)


def _decoded(
    buffer: Buffer,
    offsets: Sequence[int],
    lengths: Sequence[int],
    topic_id: int,
    seqs: Sequence[int],
    other: Callable[[FrameView], bytes | None] | None,
) -> list[Any] | None:
    """Views, or with `other` texts: one loop, because to check a frame is most of the work, and a call a frame dear."""
    records: list[Any] = []
    add, digest, viewers, new = records.append, checksum, _viewers, FrameView
    assert not offsets or min(offsets) >= 0
    stop, last, data_size, unpack = len(buffer), -1, 0, viewers[0].unpack_from
    for offset, length, wanted in zip(offsets, lengths, seqs, strict=True):
        if length != last:
            if length < FRAME_OVERHEAD:
                raise _not_there(buffer, offset, topic_id, wanted)
            last, data_size = length, length - FRAME_OVERHEAD
            unpack = viewers[data_size].unpack_from
        if offset + length > stop:
            raise _not_there(buffer, offset, topic_id, wanted)
        claimed, kind, topic, seq, ts, names, data_len, data, crc = unpack(buffer, offset)
        if (
            digest(buffer[offset + FRAME_LEN_SIZE : offset + length - CHECKSUM_SIZE]) != crc
            or seq != wanted
            or topic != topic_id
            or claimed != length - FRAME_LEN_SIZE
        ):
            raise _not_there(buffer, offset, topic_id, wanted)
        if kind & ~_DURABLE_KIND == APPEND and names == 0 and data_len == data_size:
            if other is None:
                add(new(seq, ts, kind >> 8, topic, b"", b"", b"", data, NO_EXTS))
            else:
                add(b'{"$seq":%d,"$ts":%d,"data":%b}' % (seq, ts, data))
            continue
        view = _view(bytes(buffer[offset : offset + length]))
        if view is None:
            raise _not_there(buffer, offset, topic_id, wanted)
        record = view if other is None else other(view)
        if record is None:
            return None
        add(record)
    return records


def decode_record(frame: bytes, *, topic_id: int, seq: int) -> FrameView | None:
    """As `decode_payloads`, of one frame; None if it is not whole, or not the one."""
    covered = frame[FRAME_LEN_SIZE:-CHECKSUM_SIZE]
    if len(frame) < FRAME_OVERHEAD or U64.pack(checksum(covered)) != frame[-CHECKSUM_SIZE:]:
        return None
    view = _view(frame)
    return view if view is not None and view.seq == seq and view.topic_id == topic_id else None


_DURABLE_KIND: Final = DURABLE << 8


def _view(frame: bytes) -> FrameView | None:
    """The record of one frame whose checksum was verified, None if it is no well-formed append."""
    claimed, kind, flags, topic_id, seq, ts, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(frame)
    if kind != APPEND or len(frame) != FRAME_OVERHEAD + node_len + tag_len + data_len:
        return None
    if claimed != len(frame) - FRAME_LEN_SIZE:
        return None
    at = FRAME_HEAD.size
    if flags & ~DURABLE == 0 and node_len == tag_len == 0:
        return FrameView(seq, ts, flags, topic_id, b"", b"", b"", frame[at:-CHECKSUM_SIZE], NO_EXTS)
    node = frame[at : at + node_len]
    at += node_len
    tag = frame[at : at + tag_len]
    at += tag_len
    parsed = parse_region(frame[at : at + data_len], flags)
    if parsed is None:
        return None
    meta, exts, data = parsed
    return FrameView(seq, ts, flags, topic_id, node, tag, meta, data, exts or NO_EXTS)


def _not_there(buffer: Buffer, offset: int, topic_id: int, seq: int) -> Corrupt:
    total = check_frame(buffer, offset, len(buffer)) if 0 <= offset <= len(buffer) else Defect.TORN
    why = total.value if isinstance(total, Defect) else "another frame lies in its place"
    return Corrupt(
        f"topic {topic_id} seq {seq} at offset {offset}: {why}",
        topic_id=topic_id,
        seq=seq,
        offset=offset,
        reason=why,
    )
