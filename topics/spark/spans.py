"""Which bytes of which files a range of a topic's seqs is: what a driver plans and an executor reads.

A span is a run of records that lie one behind the other in one file, with nothing between them but their delete bytes.
A piece is spans of one file, a few arrays however many records they are. The length of each record goes along, so that
an executor finds every record although one before it is damaged, and needs no index.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import attrs
import numpy as np

from topics.audit.columnar.frame_heads import Bytes, Longs
from topics.codec.segments.segment import END_SIZE
from topics.host.directory.layout import path_of
from topics.kernel.limits import MIB
from topics.log.index import LIVE
from topics.log.past import DeathCause as Ended
from topics.log.regions import SegmentId, Source
from topics.log.topic import Topic

SPAN_BYTES: int = 4 * MIB  # of a span and so of a batch, unless one record is longer
_STATE_OF: Bytes = np.array(
    [0 if flags & LIVE else 1 if flags & Ended.DELETED else 2 for flags in range(256)], dtype=np.uint8
)


@attrs.frozen(eq=False, kw_only=True)
class FilePiece:
    """Records of one topic in one file. A column of spans, and the packed lengths of all their records.

    `gap`: bytes between two records of a span. `cold`: the file may be in the other tier.
    """

    topic: str
    topic_id: int
    path: str
    gap: int
    cold: bool
    seqs: Longs  # first of each span
    counts: Longs
    offsets: Longs
    states: Bytes
    packed_lengths: bytes
    size: int

    def all_seqs(self) -> Longs:
        firsts = np.cumsum(self.counts) - self.counts
        seqs: Longs = np.arange(self.counts.sum(), dtype=np.int64) + np.repeat(
            self.seqs - firsts, self.counts
        )
        return seqs

    def lengths(self) -> Longs:
        return np.frombuffer(zlib.decompress(self.packed_lengths), np.uint32).astype(np.int64)


@attrs.frozen(eq=False, kw_only=True)
class SlotColumns:
    """Records of a topic, ascending by seq: a column a field. `source`: which of `sources` each lies in."""

    seqs: Longs
    ts: Longs
    offsets: Longs
    lengths: Longs
    states: Bytes
    source: Longs
    sources: list[Source]

    def __len__(self) -> int:
        return len(self.seqs)


def slots_of(topic: Topic, start: int, stop: int, *, now_ms: int, ended: bool) -> SlotColumns:
    """The records of the seqs [start, stop); with `ended` those that were deleted or expired, too, as far as the index
    still knows them.
    """
    index = topic.index
    first, behind = index.position(start), index.position(stop) if stop <= index.head_seq else index.stop
    behind = max(first, behind)
    flags = np.frombuffer(bytes(index.flags[first:behind]), np.uint8)
    states = _STATE_OF[flags]
    if index.expires is not None:
        due = np.frombuffer(index.expires[first:behind].tobytes(), np.uint64)
        states = np.where((states == 0) & (due > 0) & (due < now_ms), np.uint8(2), states)
    seqs = _seqs(topic, first, behind)
    spans = topic.regions.spans(index.head_seq + 1)
    bounds = np.array([seq for seq, _, _ in spans] or [1], dtype=np.int64)
    slots = SlotColumns(
        seqs=seqs,
        ts=_column(index.ts[first:behind].tobytes(), np.dtype("<u8")),
        offsets=_column(index.offsets[first:behind].tobytes(), np.dtype("<u4")),
        lengths=_column(index.lengths[first:behind].tobytes(), np.dtype("<u4")),
        states=states,
        source=np.searchsorted(bounds, seqs, side="right") - 1,
        sources=[source for _, _, source in spans],
    )
    return slots if ended else take(slots, states == 0)


def take(slots: SlotColumns, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SlotColumns:
    """Those of the records."""
    if which.all():
        return slots
    columns = {
        name: getattr(slots, name)[which] for name in ("seqs", "ts", "offsets", "lengths", "states", "source")
    }
    return SlotColumns(**columns, sources=slots.sources)


def pieces_of(topic: Topic, slots: SlotColumns, *, target_bytes: int) -> Iterator[FilePiece]:
    """The records as pieces, in their order, none above `target_bytes` but by one span."""
    cold = {segment.first for segment in topic.segments if segment.cold}
    at = 0
    for stop in _cuts(slots, target_bytes):
        yield _piece(topic, slots, at, stop, cold)
        at = stop


def _seqs(topic: Topic, first: int, behind: int) -> Longs:
    return _column(topic.index.seqs(first, behind).tobytes(), np.dtype("<u8"))


def _column(data: bytes, kind: np.dtype[np.unsignedinteger]) -> Longs:
    return np.frombuffer(data, kind).astype(np.int64)


def _cuts(slots: SlotColumns, target_bytes: int) -> list[int]:
    """Positions behind the last record of each piece: where the file changes, or enough bytes are together."""
    count = len(slots)
    if not count:
        return []
    sums = np.cumsum(slots.lengths) - slots.lengths
    full = np.diff(sums // target_bytes) != 0
    other = np.diff(slots.source) != 0
    return [*(np.flatnonzero(full | other) + 1).tolist(), count]


def _piece(topic: Topic, slots: SlotColumns, start: int, stop: int, cold: set[int]) -> FilePiece:
    span = slice(start, stop)
    seqs, offsets, lengths, states = (
        slots.seqs[span], slots.offsets[span], slots.lengths[span], slots.states[span]
    )  # fmt: skip
    source = slots.sources[int(slots.source[start])]
    is_segment = isinstance(source, SegmentId)
    gap = END_SIZE if is_segment else 0
    sums = np.cumsum(lengths) - lengths
    breaks = (
        (np.diff(seqs) != 1)
        | (np.diff(offsets) != lengths[:-1] + gap)
        | (np.diff(states) != 0)
        | (np.diff(sums // SPAN_BYTES) != 0)
    )
    firsts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    return FilePiece(
        topic=topic.name,
        topic_id=topic.topic_id,
        path=path_of(source),
        gap=gap,
        cold=isinstance(source, SegmentId) and source.first_seq in cold,
        seqs=seqs[firsts],
        counts=np.diff(np.concatenate([firsts, [len(seqs)]])),
        offsets=offsets[firsts],
        states=states[firsts],
        packed_lengths=zlib.compress(lengths.astype(np.uint32).tobytes(), 1),
        size=int(lengths.sum()),
    )
