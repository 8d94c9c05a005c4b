"""What a repair keeps of a topic's records, written as segments of its own (storage 4 and 5).

From each segment that is damaged, and from the log, every intact record is taken over verbatim. A live one that is
damaged is lost: a segment covers seqs without a gap, so the segments of a repair end before it and begin behind it. Of
a dead one that is damaged nothing is needed: it keeps an entry without bytes, as a rewrite leaves it.

Files get temporary names where a segment of that name is in use still; `repair` says when they take its place.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from topics.codec.log.frame import FrameView, decode_frame
from topics.codec.segments.segcolumns import encode_block
from topics.codec.segments.segidx import IdxColumns
from topics.codec.segments.segment import DEAD, END_SIZE, LIVE, walk
from topics.host.directory.layout import segment_path, topic_dir
from topics.host.segments.reading import ExtentReader
from topics.host.segments.segment_files import ENDS_OF, encode_idx
from topics.host.segments.segment_seals import seal_of
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MIB, U32_MAX
from topics.kernel.ports import Disk
from topics.log.index import LIVE as IS_LIVE
from topics.log.reads.frames import Extent, extents_of
from topics.log.segments import Segment
from topics.log.topic import Topic

RECORDS_MAX: Final = 10_000  # of one new segment
BYTES_MAX: Final = 64 * MIB
READ_SLOTS: Final = 2000  # of the log, read at once


@attrs.frozen
class KeptSlot:
    """A slot that is kept. `frame`: empty if its record is dead and its bytes are gone. `flags`: the index's.
    `damaged`: there were bytes of it, and they are dropped.
    """

    seq: int
    frame: bytes
    ts: int
    flags: int
    damaged: bool = False


@attrs.frozen
class Salvaged:
    """What became of a range of seqs: the new segments, live seqs that are lost, dead ones that were damaged."""

    segments: Sequence[Segment]
    lost: Sequence[int]
    dropped: Sequence[int] = ()


def of_segment(disk: Disk, topic: Topic, segment: Segment) -> Iterator[KeptSlot | int]:
    """The slots of a segment in the order of their seqs; of a live record that is damaged only the seq.

    Dead ones that have left the index keep their entries, for a segment covers seqs without a gap. When they came, only
    their bytes know, and whether they have any, nobody: they are never told as dropped.
    """
    path = segment_path(topic.topic_id, segment.first, "data")
    size = disk.size(path)
    data = b"" if size is None else disk.read(path, 0, min(size, U32_MAX))  # offsets name no more
    found = walk(
        data, 0, len(data), topic_id=topic.topic_id, first_seq=segment.first, seq_stop=segment.last + 1
    )
    places = {seq: (found.offsets[at], found.lengths[at], found.ts[at]) for at, seq in enumerate(found.seqs)}
    index, before = topic.index, 0
    for seq in range(max(segment.first, index.base_seq), segment.last + 1):
        at = index.position(seq)
        offset, length, ts = places.get(seq, (0, 0, 0))
        run = index.slotless.next_from(seq)
        if run is not None and run.first <= seq:
            before = max(ts, before, index.ts[at - 1])
            yield KeptSlot(seq, data[offset : offset + length], before, run.end)
        elif length or not index.flags[at] & IS_LIVE:
            frame, damaged = data[offset : offset + length], not length and index.lengths[at] > 0
            yield KeptSlot(seq, frame, index.ts[at], index.flags[at], damaged)
        else:
            yield seq


def of_log(disk: Disk, topic: Topic, first: int) -> Iterator[KeptSlot | int]:
    """The slots from `first` on, all of which are in the log."""
    index, reader = topic.index, ExtentReader(disk)
    start = index.position(first)
    while start < index.stop:
        stop = min(start + READ_SLOTS, index.stop)
        for extent in extents_of(topic, start, stop):
            buffer = _bytes_of(reader, extent)
            for at in range(start + extent.first, start + extent.first + extent.count):
                offset = index.offsets[at] - extent.offset
                frame = buffer[offset : offset + index.lengths[at]]
                seq = index.seq_at(at)
                if _is_whole(frame, topic.topic_id, seq):
                    yield KeptSlot(seq, frame, index.ts[at], index.flags[at])
                elif index.flags[at] & IS_LIVE:
                    yield seq
                else:
                    yield KeptSlot(seq, b"", index.ts[at], index.flags[at], damaged=True)
        start = stop


def _bytes_of(reader: ExtentReader, extent: Extent) -> bytes:
    """None at all of a file that is gone."""
    try:
        return reader.read(extent)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return b""


def _is_whole(frame: bytes, topic_id: int, seq: int) -> bool:
    try:
        view = decode_frame(frame, 0)
    except Corrupt:
        return False
    return (view.topic_id, view.seq) == (topic_id, seq)


def write_segments(
    disk: Disk, topic: Topic, slots: Iterator[KeptSlot | int], *, in_use: Mapping[int, int], ts: int
) -> Salvaged:
    """Write what is kept as sealed segments, synced. `in_use`: bytes of data, by first seq, of segments whose files
    must stay as they are until the commit; a new one of that name counts no fewer, for a start may find them.
    """
    segments: list[Segment] = []
    lost: list[int] = []
    dropped: list[int] = []
    run: list[KeptSlot] = []
    size = 0

    def close() -> None:
        nonlocal size
        if run:
            segments.append(_write(disk, topic, run, in_use=in_use.get(run[0].seq), ts=ts))
        run.clear()
        size = 0

    for slot in slots:
        if isinstance(slot, int):
            lost.append(slot)
            close()
            continue
        if run and (run[-1].seq + 1 != slot.seq or len(run) >= RECORDS_MAX or size >= BYTES_MAX):
            close()
        run.append(slot)
        size += len(slot.frame)
        if slot.damaged:
            dropped.append(slot.seq)
    close()
    return Salvaged(segments, lost, dropped)


def _write(disk: Disk, topic: Topic, run: Sequence[KeptSlot], *, in_use: int | None, ts: int) -> Segment:
    """The files of one segment, under temporary names; at once under their own if nobody uses that."""
    topic_id, first = topic.topic_id, run[0].seq
    path = {part: segment_path(topic_id, first, part) for part in ("data", "idx", "col")}
    data, idx, col = _encode(first, run, seal_of(disk, topic_id, first).seed, of_queue=topic.index.of_queue)
    disk.make_dir(topic_dir(topic_id))
    for parent in (topic_dir(topic_id), "topics", ""):
        disk.sync_dir(parent)
    for part, encoded in (("data", data), ("idx", idx), ("col", col)):
        if part != "col" or encoded:
            write_temporary(disk, path[part], encoded)
    if in_use is None:
        put_in_place(disk, topic_id, first)
    return Segment(first, run[-1].seq, max(len(data), in_use or 0), ts, sealed=True)


def put_in_place(disk: Disk, topic_id: int, first: int) -> None:
    """Temporary files take the names they are for. Again is fine; in between, a start tells by the sizes."""
    moved = False
    for part in ("data", "idx", "col"):
        path = segment_path(topic_id, first, part)
        if disk.size(path + TEMPORARY) is not None:
            disk.rename(path + TEMPORARY, path)
            disk.sync_dir(topic_dir(topic_id))
            moved = True
        elif part == "col" and moved:
            disk.unlink(path)
    disk.sync_dir(topic_dir(topic_id))


def _encode(first: int, run: Sequence[KeptSlot], seed: int, *, of_queue: bool) -> tuple[bytes, bytes, bytes]:
    """(data, idx, col) of slots that follow each other."""
    data: list[bytes] = []
    idx = IdxColumns(array("I"), array("I"), array("Q"), bytearray())
    views: list[FrameView | None] = []
    sizes, expires, jobs = array("I"), list[int](), list[int]()
    at = 0
    for slot in run:
        live = bool(slot.flags & IS_LIVE)
        view = decode_frame(slot.frame, 0) if slot.frame else None
        idx.offsets.append(at if view is not None else 0)
        idx.lengths.append(len(slot.frame))
        idx.ts.append(slot.ts)
        idx.flags.append((view.flags if view is not None else 0) | ENDS_OF[slot.flags])
        views.append(view if live else None)
        sizes.append(0 if view is None else len(view.data) + len(view.meta))
        expires.append(0 if view is None else view.expires_at or 0)
        jobs.append(0 if view is None else view.job)
        if view is not None:
            data += [slot.frame, bytes((LIVE if live else DEAD,))]
            at += len(slot.frame) + END_SIZE
    col = encode_block(
        first,
        idx.lengths,
        sizes=sizes,
        tags=[b"" if view is None else view.tag for view in views],
        nodes=[b"" if view is None else view.node for view in views],
        expires=expires,
        jobs=jobs if of_queue else None,
        keys=[b"" if view is None else view.key for view in views] if of_queue else None,
        of_queue=of_queue,
        seed=seed,
    )
    return b"".join(data), encode_idx(idx, seed), col
