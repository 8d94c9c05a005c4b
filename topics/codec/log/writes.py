"""A WAL file write by write: where each begins and ends, when it was made, and how far it took each topic.

`scan` joins neighbouring writes, which is right for folding them. Who cuts a log at a moment or a seq needs their
borders (storage 7). Only whole writes are given; the walk ends at the first frame that is not whole, or where a write
has no end.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from topics.codec.log.control import Control, LossRange, control_at
from topics.codec.log.layout import (
    APPEND,
    CHECKSUM_SIZE,
    EXT,
    FRAME_HEAD,
    META,
    Defect,
    Ext,
    check_frame,
    checked_region,
)
from topics.codec.primitives import U32, Buffer, immutable
from topics.kernel.errors import Corrupt


@attrs.frozen
class WholeWrite:
    """Bytes [start, stop) of a file, `frames` of them. `reaches`: the last seq it gives a topic, by topic id; what a
    loss range takes counts. `controls`: its control frames.
    """

    start: int
    stop: int
    ts: int
    frames: int
    reaches: dict[int, int]
    controls: tuple[Control, ...]


def whole_writes(buffer: Buffer, start: int) -> Iterator[WholeWrite]:
    """The writes from `start` on, which is where one begins."""
    data = immutable(buffer)
    while True:
        write = _write_at(data, start)
        if write is None:
            return
        yield write
        start = write.stop


def _write_at(data: bytes, start: int) -> WholeWrite | None:
    """The write that begins there; None if none that is whole does."""
    at, left, frames, ts = start, 1, 0, 0
    reaches: dict[int, int] = {}
    controls: list[Control] = []
    while left:
        total = check_frame(data, at, len(data))
        if isinstance(total, Defect):
            return None
        _, kind, flags, topic_id, seq, its_ts, node_len, tag_len, _ = FRAME_HEAD.unpack_from(data, at)
        if kind == APPEND:
            reaches[topic_id] = max(seq, reaches.get(topic_id, 0))
            begun = 1
            if flags & EXT:
                region = data[at + FRAME_HEAD.size + node_len + tag_len : at + total - CHECKSUM_SIZE]
                _, exts, _ = checked_region(region, flags & (META | EXT))
                begun = U32.unpack(exts[Ext.WRITE_FRAMES])[0] if Ext.WRITE_FRAMES in exts else 1
        else:
            try:
                control = control_at(data, at, total)
            except Corrupt:
                return None
            controls.append(control)
            begun = control.write_frames
            if isinstance(control.payload, LossRange):
                reaches[topic_id] = max(control.payload.last, reaches.get(topic_id, 0))
        if not frames:
            ts, left = its_ts, begun
        frames += 1
        left -= 1
        at += total
    return WholeWrite(start, at, ts, frames, reaches, tuple(controls))
