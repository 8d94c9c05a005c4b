"""The heads of many frames as one NumPy array, and which of the frames are what an index says they are.

Heads are gathered all at once; checksums go frame by frame, for the lengths of frames differ. Imported only where numpy
is installed.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from topics.codec.log.layout import (
    APPEND,
    CHECKSUM_SIZE,
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    check_frame,
)
from topics.codec.primitives import checksum
from topics.kernel.errors import Corrupt

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
HEAD: Final = np.dtype(
    [
        ("frame_len", "<u4"), ("kind", "u1"), ("flags", "u1"), ("topic_id", "<u8"), ("seq", "<u8"), ("ts", "<u8"),
        ("node_len", "<u2"), ("tag_len", "<u2"), ("data_len", "<u4"),
    ]
)  # fmt: skip
assert HEAD.itemsize == FRAME_HEAD.size


@attrs.frozen(eq=False, kw_only=True)
class FrameHeads:
    """Append frames in a buffer, as an index places them: record i is `seqs[i]` of the topic, at `offsets[i]`.

    `states`: an index into `arrow.STATES` a record; None if all are live.
    """

    buffer: bytes
    topic: str
    topic_id: int
    seqs: Longs
    offsets: Longs
    lengths: Longs
    states: Bytes | None = None

    def __len__(self) -> int:
        return len(self.seqs)

    def part(self, start: int, stop: int) -> FrameHeads:
        """The frames from one place to another."""
        which = slice(start, stop)
        return attrs.evolve(
            self,
            seqs=self.seqs[which],
            offsets=self.offsets[which],
            lengths=self.lengths[which],
            states=None if self.states is None else self.states[which],
        )


def gather_heads(frames: FrameHeads) -> tuple[npt.NDArray[np.void], Flags]:
    """The heads, and of which frames the head says what the index says. A frame outside the buffer has a head of 0."""
    offsets, lengths = frames.offsets, frames.lengths
    inside = (lengths >= FRAME_OVERHEAD) & (offsets >= 0) & (offsets + lengths <= len(frames.buffer))
    if not inside.any():
        return np.zeros(len(frames), dtype=HEAD), inside
    heads = values_at_offsets(frames.buffer, np.where(inside, offsets, 0), HEAD)
    claimed = heads["frame_len"].astype(np.int64) + FRAME_LEN_SIZE
    parts = heads["node_len"].astype(np.int64) + heads["tag_len"] + heads["data_len"]
    sound: Flags = (
        inside
        & (claimed == lengths)
        & (parts + FRAME_OVERHEAD == lengths)
        & (heads["kind"] == APPEND)
        & (heads["topic_id"] == np.uint64(frames.topic_id))
        & (heads["seq"] == frames.seqs.astype(np.uint64))
    )
    return heads, sound


def values_at_offsets(buffer: bytes, offsets: Longs, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """A value of `kind` at each offset."""
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(buffer, np.uint8), kind.itemsize)
    gathered: npt.NDArray[Any] = np.ascontiguousarray(windows[offsets]).view(kind)[:, 0]
    return gathered


def check_sums(frames: FrameHeads, sound: Flags) -> Flags:
    """Those of the frames whose checksum is right."""
    which = np.flatnonzero(sound)
    if not len(which):
        return sound
    buffer = frames.buffer
    starts = frames.offsets[which] + FRAME_LEN_SIZE
    stops = frames.offsets[which] + frames.lengths[which] - CHECKSUM_SIZE
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    found = np.array([checksum(buffer[start:stop]) for start, stop in spans], dtype=np.uint64)
    checked = sound.copy()
    checked[which] = found == values_at_offsets(buffer, stops, np.dtype("<u8"))
    return checked


def damage_of(frames: FrameHeads, at: int) -> Corrupt:
    """Why record `at` is none."""
    seq, offset = int(frames.seqs[at]), int(frames.offsets[at])
    stop = min(offset + int(frames.lengths[at]), len(frames.buffer))
    total = check_frame(frames.buffer, offset, stop) if offset <= stop else 0
    why = "another frame lies in its place" if isinstance(total, int) else total.value
    return Corrupt(
        f"topic {frames.topic!r} seq {seq}: {why}", topic=frames.topic, seq=seq, offset=offset, reason=why
    )
