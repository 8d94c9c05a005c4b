"""One segment between the tiers: its copies, compared before either goes, and its `.del` there (storage 5 and 6).

Every call blocks. Errors of the cold store are `StoreFailed`, those of the data directory OSError: a store that fails
holds up relocation, a disk that fails ends all background work. What a disk does not give of one segment is damage of
that segment.

What it must never know: when a segment is to be moved, or what is logged.
"""

from __future__ import annotations

from topics.codec.segments.segidx import IdxColumns
from topics.codec.segments.segment import DEAD, walk
from topics.host.cold.segment_stores import CHUNK, GuardedStore
from topics.host.directory.layout import segment_path, topic_dir
from topics.host.segments.segment_files import data_end, encode_idx
from topics.host.segments.segment_seals import Seal, seal_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId
from topics.log.segments import Segment


class Unmovable(Corrupt):
    """The segment is damaged where it is, so it stays there."""


class SegmentCopies:
    """The copies of one sealed segment. `found`: it, as the state has it.

    `hot_whole`, `cold_whole`: what the last `look` has seen. `returned`: it is in the data directory again.
    """

    def __init__(self, disk: Disk, store: GuardedStore, segment: SegmentId, found: Segment) -> None:
        assert found.sealed
        assert found.first == segment.first_seq
        self.segment = segment
        self.found = found
        self.hot_whole = False
        self.cold_whole = False
        self.returned = False
        self._disk = disk
        self._store = store

    @property
    def directory(self) -> str:
        """Its folder in the data directory."""
        return topic_dir(self.segment.topic_id)

    def is_hot(self) -> bool:
        """Whether there is data of it in the data directory."""
        return self._disk.size(self._path("data")) is not None

    def look(self) -> None:
        """See which of the two copies are whole, by their sizes: each appears as a whole or not at all."""
        size = self.found.size
        self.hot_whole = self._disk.size(self._path("data")) == size
        there = self._store.exists(self.segment, "data") and self._store.exists(self.segment, "idx")
        self.cold_whole = there and self._store.len(self.segment, "data") == size

    def copy_out(self) -> None:
        """Put the segment into the cold tier, and compare what is there with what was put.

        Raises:
            Unmovable: a record of it is damaged, or its idx does not say what its data is.
            StoreFailed, OSError: see above.
        """
        data = self._read("data", self.found.size)
        idx = self._whole(self._read("idx", self._size("idx")))
        self._check(data, idx)
        parts = {"data": data, "idx": encode_idx(idx, self._seal().seed)}
        if (size := self._disk.size(self._path("col"))) is not None:
            parts["col"] = self._read("col", size)
        self._store.put(self.segment, parts)
        for part, expected in parts.items():
            self._compare(part, expected)

    def copy_back(self) -> None:
        """Put the segment's data into the data directory again, with the ends that its .del says.

        Raises:
            Unmovable: it is not in the cold tier, or damaged there.
            StoreFailed, OSError: see above.
        """
        idx = self._whole(self._read("idx", self._size("idx")))
        if not self._store.exists(self.segment, "data"):
            raise self._unmovable(f"it is not in {self._store.where}")
        data = bytearray()
        while len(data) < self.found.size:
            chunk = self._store.read_range(
                self.segment, "data", len(data), min(CHUNK, self.found.size - len(data))
            )
            if not chunk:
                break
            data += chunk
        self._check(bytes(data), idx)
        if ends := self._ends():
            for at, end in enumerate(ends):
                if end and idx.lengths[at]:
                    data[idx.offsets[at] + idx.lengths[at]] = DEAD
                    idx.flags[at] |= end
            self._replace("idx", encode_idx(idx, self._seal().seed))
        self._replace("data", bytes(data))
        self._disk.sync_dir(self.directory)
        self.returned = True

    def drop_temporaries(self) -> None:
        """What a `copy_back` that had no room has left."""
        for part in ("data", "idx"):
            self._disk.unlink(self._path(part) + TEMPORARY)

    def drop_hot(self) -> None:
        """The data directory's copy goes; idx and columns stay."""
        self._disk.unlink(self._path("data"))
        self._disk.sync_dir(self.directory)

    def drop_cold(self) -> None:
        """The cold tier's copy goes, and what was said of it."""
        self._store.delete(self.segment)
        self._disk.unlink(self._path("del"))
        self._disk.sync_dir(self.directory)

    def read_ends(self) -> bytes:
        """The .del file beside the idx; empty if there is none.

        Raises:
            Unmovable: it cannot be read.
        """
        size = self._disk.size(self._path("del"))
        return b"" if size is None else self._read("del", size)

    def put_ends(self, data: bytes) -> None:
        """Put that file into the cold tier."""
        self._store.put(self.segment, {"del": data})

    # Inside.

    def _path(self, part: str) -> str:
        return segment_path(*self.segment, part)

    def _seal(self) -> Seal:
        return seal_of(self._disk, *self.segment)

    def _size(self, part: str) -> int:
        return self._disk.size(self._path(part)) or 0

    def _read(self, part: str, size: int) -> bytes:
        try:
            with unreadable_on_error():
                return self._disk.read(self._path(part), 0, size)
        except Unreadable as failed:
            raise self._unmovable(str(failed)) from failed

    def _whole(self, data: bytes) -> IdxColumns:
        try:
            idx = self._seal().idx(data)
        except Corrupt as damage:
            raise self._unmovable(damage.message) from damage
        if len(idx) != self.found.count or data_end(idx) != self.found.size:
            raise self._unmovable(f"its idx has {len(idx)} entries of {data_end(idx)} bytes")
        return idx

    def _check(self, data: bytes, idx: IdxColumns) -> None:
        """Every record that the idx has is in the data, whole, and nothing else is."""
        first = self.found.first
        found = walk(
            data, 0, len(data), topic_id=self.segment.topic_id, first_seq=first, seq_stop=self.found.last + 1
        )
        there = [at for at, length in enumerate(idx.lengths) if length]
        same = (
            not found.damages
            and len(data) == self.found.size
            and list(found.seqs) == [first + at for at in there]
            and list(found.offsets) == [idx.offsets[at] for at in there]
            and list(found.lengths) == [idx.lengths[at] for at in there]
            and list(found.ts) == [idx.ts[at] for at in there]
        )
        if not same:
            what = f"{len(found.damages)} places are damaged, {len(there) - len(found)} records are missing"
            if not found.damages and len(found) == len(there):
                what = "its records are not those that its idx counts"
            raise self._unmovable(what)

    def _ends(self) -> bytes:
        """What .del says of each entry; empty if there is none, or it is damaged: the ends in files are hints."""
        try:
            ended = self._seal().ends(self.read_ends(), self.found.count)
        except Corrupt:
            return b""
        ours = (ended.topic_id, ended.first_seq, len(ended.ends))
        return ended.ends if ours == (*self.segment, self.found.count) else b""

    def _compare(self, part: str, expected: bytes) -> None:
        """What the store gives back is what was put."""
        size = self._store.len(self.segment, part)
        same = size == len(expected)
        for at in range(0, len(expected), CHUNK):
            if not same:
                break
            piece = expected[at : at + CHUNK]
            same = self._store.read_range(self.segment, part, at, len(piece)) == piece
        if not same:
            raise self._store.failed(f"{self._path(part)} reads back differently from what was put")

    def _replace(self, part: str, data: bytes) -> None:
        path = self._path(part)
        write_temporary(self._disk, path, data)
        self._disk.rename(path + TEMPORARY, path)

    def _unmovable(self, why: str) -> Unmovable:
        return Unmovable(f"{self._path('data')} is damaged and stays where it is: {why}")
