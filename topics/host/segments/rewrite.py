"""One sealed segment written anew without what is dead in it, and put in the place of the old one (storage 5).

    write        seg-X.data.tmp: the frames that are not dropped, each verified, one behind the other; synced
                 seg-X.idx.tmp, seg-X.col.tmp: what they imply; a dropped record keeps an entry, of length 0; synced
    swap         .data.tmp -> .data, and the index gets the new places: nobody else touches the engine meanwhile
    finish       the directory is synced; .idx.tmp -> .idx, .col.tmp -> .col; the directory is synced again

The rename of `.data` is the commit point. Before it the old files are whole and what is beside them is rubbish that the
next round removes. Behind it an old `.idx` implies another size than `.data` has, so a start makes it anew from the
data (`host.segments.segment_files`). No frame speaks of a rewrite, for where bytes lie is no state.

What it must never know: why a record is dead, or whether it is time to run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Final

import attrs

from topics.codec.segments.segcolumns import encode_block
from topics.codec.segments.segidx import DELETED, ENDS, ENTRY_SIZE, TRAILER_SIZE, IdxColumns
from topics.codec.segments.segment import END_SIZE, append_frames
from topics.engine.engine import Engine
from topics.host.checkpoint.steps import disk_full
from topics.host.directory.layout import segment_path, topic_dir
from topics.host.segments.segment_files import encode_idx, load_idx, slots_of
from topics.host.segments.segment_seals import seal_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId
from topics.log.segments import Segment
from topics.log.slots import Slots

CHUNK: Final = 4 * MIB  # of the old data, read at once


@attrs.frozen(kw_only=True)
class Chunk:
    """Kept slots [start, stop) of those kept, whose frames are read at once and go to `at` of the new data."""

    start: int
    stop: int
    at: int


class Rewrite:
    """One rewrite: `begin`, `copy` of each of the `chunks`, `end`, `swap`, and `finish` if it was swapped.

    `dead`: for each slot of the segment, nonzero if its record is dropped. `of_queue`: its topic is a queue. `damaged`:
    why it was given up, for a record that is to be kept is not there, or the medium does not give it. `postponed`:
    there is no room for it now. In either case nothing is swapped.
    """

    def __init__(self, disk: Disk, topic_id: int, segment: Segment, dead: bytes, *, of_queue: bool) -> None:
        assert segment.sealed
        assert len(dead) == segment.count
        self.disk = disk
        self.topic_id = topic_id
        self.segment = segment
        self.size = 0
        self.damaged: str | None = None
        self.postponed = False
        self.swapped = False
        self._dead = dead
        self._of_queue = of_queue
        self._paths = {part: segment_path(topic_id, segment.first, part) for part in ("data", "idx", "col")}
        self._kept: list[int] = []
        self._old: IdxColumns | None = None
        self._new: IdxColumns | None = None
        self._col = b""

    def begin(self, free_min: int = 0) -> None:
        """Decide what is kept and where it is going to lie. `free_min`: bytes of the disk that others need more. Raises
        OSError.
        """
        try:
            with unreadable_on_error():
                idx, _ = load_idx(self.disk, self.topic_id, self.segment)
                slots, unlabelled = slots_of(
                    self.disk, self.topic_id, self.segment, idx, of_queue=self._of_queue
                )
            if unlabelled:
                raise Corrupt("seq {}: {}".format(*unlabelled[0]))
            self._decide(idx, slots)
        except (Corrupt, Unreadable) as damage:
            self.damaged = str(damage)
            return
        self.postponed = self.disk.free_bytes(topic_dir(self.topic_id)) < self._needed() + free_min
        if not self.postponed:
            self._write(partial(self.disk.create, self._paths["data"] + TEMPORARY, 0))

    def chunks(self) -> Iterator[Chunk]:
        """What is copied one after the other."""
        if self.damaged is not None or self.postponed:
            return
        old, new, kept = self._old, self._new, self._kept
        assert old is not None
        assert new is not None
        start = 0
        for at in range(1, len(kept) + 1):
            if at == len(kept) or old.offsets[kept[at]] - old.offsets[kept[start]] >= CHUNK:
                yield Chunk(start=start, stop=at, at=new.offsets[kept[start]])
                start = at

    def copy(self, chunk: Chunk) -> None:
        """Copy the frames of a chunk, each verified. Raises OSError."""
        if self.damaged is not None or self.postponed:
            return
        assert self._old is not None
        old, kept = self._old, self._kept[chunk.start : chunk.stop]
        first, last = old.offsets[kept[0]], old.offsets[kept[-1]] + old.lengths[kept[-1]]
        try:
            with unreadable_on_error():
                buffer = self.disk.read(self._paths["data"], first, last - first)
            data = append_frames(
                buffer,
                [old.offsets[at] - first for at in kept],
                [old.lengths[at] for at in kept],
                topic_id=self.topic_id,
                seqs=[self.segment.first + at for at in kept],
                dead=bytes(old.flags[at] & ENDS for at in kept),
            )
        except (Corrupt, Unreadable) as damage:
            self.damaged = str(damage)
            return
        self._write(partial(self.disk.write, self._paths["data"] + TEMPORARY, chunk.at, [data]))

    def end(self) -> None:
        """All of it is synced, under temporary names. Raises OSError."""
        if self.damaged is not None or self.postponed:
            return
        assert self.disk.size(self._paths["data"] + TEMPORARY) == self.size
        self._write(self._end)

    def swap(self, engine: Engine) -> None:
        """The new data takes the place of the old, unless nobody needs it any more.

        Call this where nobody else touches the engine. Raises OSError.
        """
        named = SegmentId(self.topic_id, self.segment.first)
        if self.damaged is not None or self.postponed or engine.catalog.find_segment(named) != self.segment:
            return
        assert self._new is not None
        self.disk.rename(self._paths["data"] + TEMPORARY, self._paths["data"])
        engine.checkpoints.place_segment(
            named, self.segment, self._new.offsets, self._new.lengths, size=self.size
        )
        self.swapped = True

    def finish(self) -> None:
        """The rest follows. Raises OSError."""
        directory = topic_dir(self.topic_id)
        self.disk.sync_dir(directory)
        self.disk.rename(self._paths["idx"] + TEMPORARY, self._paths["idx"])
        if self._col:
            self.disk.rename(self._paths["col"] + TEMPORARY, self._paths["col"])
        else:
            self.disk.unlink(self._paths["col"])
        self.disk.sync_dir(directory)

    # Inside.

    def _needed(self) -> int:
        """Bytes that it writes before anything is given back."""
        assert self._new is not None
        return self.size + len(self._new) * ENTRY_SIZE + TRAILER_SIZE + len(self._col)

    def _write(self, call: Callable[[], None]) -> None:
        """If the disk is full all the same, what was written goes, and the rewrite is postponed."""
        try:
            call()
        except OSError as error:
            for path in self._paths.values():
                with suppress(OSError):
                    self.disk.unlink(path + TEMPORARY)
            if not disk_full(error):
                raise
            self.postponed = True

    def _end(self) -> None:
        assert self._new is not None
        self.disk.sync_data(self._paths["data"] + TEMPORARY)
        write_temporary(self.disk, self._paths["idx"], encode_idx(self._new, self._seed()))
        if self._col:
            write_temporary(self.disk, self._paths["col"], self._col)

    def _decide(self, idx: IdxColumns, slots: Slots) -> None:
        kept = [at for at, dead in enumerate(self._dead) if not dead]
        gone = next((at for at in kept if not idx.lengths[at]), None)
        if gone is not None:
            raise Corrupt(f"seq {self.segment.first + gone} is not in {self._paths['data']}")
        lengths = array(
            "I", (0 if dead else length for dead, length in zip(self._dead, idx.lengths, strict=True))
        )
        ends = accumulate((length + END_SIZE if length else 0 for length in lengths), initial=0)
        offsets = array("I", (at if length else 0 for at, length in zip(ends, lengths, strict=False)))
        flags = bytearray(
            flags & ENDS or DELETED if dead else flags
            for dead, flags in zip(self._dead, idx.flags, strict=True)
        )
        self.size = sum(lengths) + END_SIZE * len(kept)
        self._old, self._kept = idx, kept
        self._new = IdxColumns(offsets, lengths, idx.ts, flags)
        self._col = self._columns(slots, lengths)

    def _columns(self, slots: Slots, lengths: array[int]) -> bytes:
        """The block of what is kept, `b""` if it needs none."""
        dead = self._dead
        sizes = array("I", slots.sizes)
        expires, jobs = array("Q", slots.expires), array("Q", slots.jobs)
        names = [
            [b"" if gone else name for gone, name in zip(dead, column, strict=True)] if any(column) else None
            for column in (slots.tag_of_each, slots.node_of_each, slots.key_of_each)
        ]
        return encode_block(
            self.segment.first,
            lengths,
            sizes=array("I", (0 if gone else size for gone, size in zip(dead, sizes, strict=True))),
            tags=names[0],
            nodes=names[1],
            expires=_kept(expires, dead),
            jobs=_kept(jobs, dead),
            keys=names[2],
            of_queue=self._of_queue,
            seed=self._seed(),
        )

    def _seed(self) -> int:
        return seal_of(self.disk, self.topic_id, self.segment.first).seed


def _kept(column: array[int], dead: bytes) -> list[int] | None:
    """The numbers of those that are not dead."""
    return [0 if gone else number for gone, number in zip(dead, column, strict=True)] if column else None
