"""Where a sealed segment may lie besides the data directory: the cold tier (storage 6, seed 3.6).

`SegmentStore` is the whole of what is asked of it: parts of segments, each a byte string under the segment's name.
Every call blocks, waits for what it does to be durable, and either does it or raises OSError (an absent part:
FileNotFoundError), so each can be sent to a pool. Names mirror the data directory: `topics/<16 hex digits>/seg-….data`.

What a store must never know: which records are in a segment, which segments are needed, and whose they are. It keeps
one note for that: `owner`, by which two stores that were given one cold directory find out before either removes a
thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import attrs

from topics.host.directory.layout import SEGMENT_PARTS, segment_of, segment_path, topic_dir
from topics.host.system.refusals import FULL
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.checks import whole_number
from topics.kernel.limits import MIB, NOTE_BYTES_MAX
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId
from topics.log.segments import Segment
from topics.log.topic import Topic

OWNER_FILE: Final = "OWNER"
CHUNK: Final = 4 * MIB


@attrs.frozen(kw_only=True)
class HotRules:
    """How much of a topic's sealed segments stays in the data directory; the stricter wins (seed 6.1). 0 bytes: any."""

    retain_segments: int = 4
    retain_bytes: int = 0

    def __attrs_post_init__(self) -> None:
        whole_number("hot_retain_segments", self.retain_segments)
        whole_number("hot_retain_bytes", self.retain_bytes)

    def surplus(self, topic: Topic) -> list[Segment]:
        """The hot segments that are to go to the cold tier, the oldest first."""
        sealed = [segment for segment in topic.segments if segment.sealed]
        room, size = self.retain_segments, 0
        for at in range(len(sealed) - 1, -1, -1):
            size += sealed[at].size
            if room == 0 or (self.retain_bytes and size > self.retain_bytes):
                return [segment for segment in sealed[: at + 1] if not segment.cold]
            room -= 1
        return []


class SegmentStore(Protocol):
    """Segments by name. Any thread may call at any time."""

    @property
    def where(self) -> str:
        """Its place, for messages; without secrets."""
        ...

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        """Keep these parts durably, each in place of the one that is there. A part appears whole or not at all."""
        ...

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size) of a part, fewer only at its end."""
        ...

    def delete(self, segment: SegmentId) -> None:
        """Remove all parts, and what a broken off `put` left. One that is not there is fine."""
        ...

    def list(self) -> list[SegmentId]:
        """Every segment of which there is anything, ascending."""
        ...

    def exists(self, segment: SegmentId, part: str) -> bool:
        """Whether a part is there."""
        ...

    def len(self, segment: SegmentId, part: str) -> int:
        """Bytes of a part."""
        ...

    def read_owner(self) -> bytes | None:
        """The note of whose segments these are; None if there is none."""
        ...

    def write_owner(self, note: bytes) -> None:
        """Leave that note, durably."""
        ...

    def close(self) -> None:
        """Let go of what it holds open. Twice is fine."""
        ...


class StoreFailed(Exception):
    """The cold store has failed; the data directory has not."""


class GuardedStore:
    """A store whose errors are `StoreFailed`, for who uses it beside a disk and must tell one from the other."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    @property
    def where(self) -> str:
        return self._store.where

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        with self._asking():
            self._store.put(segment, parts)

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        with self._asking():
            return self._store.read_range(segment, part, offset, size)

    def delete(self, segment: SegmentId) -> None:
        with self._asking():
            self._store.delete(segment)

    def list(self) -> list[SegmentId]:
        with self._asking():
            return self._store.list()

    def exists(self, segment: SegmentId, part: str) -> bool:
        with self._asking():
            return self._store.exists(segment, part)

    def len(self, segment: SegmentId, part: str) -> int:
        with self._asking():
            return self._store.len(segment, part)

    def read_owner(self) -> bytes | None:
        with self._asking():
            return self._store.read_owner()

    def write_owner(self, note: bytes) -> None:
        with self._asking():
            self._store.write_owner(note)

    def close(self) -> None:
        self._store.close()

    def failed(self, why: str) -> StoreFailed:
        return StoreFailed(f"{self.where} fails: {why}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.failed(str(error)) from error


class LocalSegmentStore:
    """A folder. Written aside, synced and renamed, so that a crash leaves a part as it was or as it should be. A `put`
    that finds no room leaves as much as there was.
    """

    def __init__(self, disk: Disk, where: str, *, close: Callable[[], None] | None = None) -> None:
        self._disk = disk
        self._where = where
        self._close = close

    @property
    def where(self) -> str:
        return self._where

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        directory = topic_dir(segment.topic_id)
        if not self._disk.names(directory):
            self._disk.make_dir(directory)
            self._disk.sync_dir("topics")
            self._disk.sync_dir("")
        self._replace({segment_path(*segment, part): parts[part] for part in SEGMENT_PARTS if part in parts})
        self._disk.sync_dir(directory)

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        return self._disk.read(segment_path(*segment, part), offset, size)

    def delete(self, segment: SegmentId) -> None:
        directory = topic_dir(segment.topic_id)
        names = set(self._disk.names(directory))
        paths = [
            segment_path(*segment, part) + suffix for part in SEGMENT_PARTS for suffix in ("", TEMPORARY)
        ]
        found = [path for path in paths if path.rpartition("/")[2] in names]
        for path in found:
            self._disk.unlink(path)
        if found:
            self._disk.sync_dir(directory)

    def list(self) -> list[SegmentId]:
        paths = (
            f"topics/{directory}/{name}"
            for directory in self._disk.names("topics")
            for name in self._disk.names(f"topics/{directory}")
        )
        return sorted({segment for path in paths if (segment := segment_of(path)) is not None})

    def exists(self, segment: SegmentId, part: str) -> bool:
        return self._disk.size(segment_path(*segment, part)) is not None

    def len(self, segment: SegmentId, part: str) -> int:
        path = segment_path(*segment, part)
        size = self._disk.size(path)
        if size is None:
            raise FileNotFoundError(f"{self._where}/{path}")
        return size

    def read_owner(self) -> bytes | None:
        size = self._disk.size(OWNER_FILE)
        return None if size is None else self._disk.read(OWNER_FILE, 0, min(size, NOTE_BYTES_MAX))

    def write_owner(self, note: bytes) -> None:
        try:
            self._replace({OWNER_FILE: note})
        except OSError as error:
            if error.errno not in FULL or self._disk.size(OWNER_FILE) != len(note):
                raise
            self._disk.write(OWNER_FILE, 0, [note])  # within one sector: a full folder is to become less full
            self._disk.sync_data(OWNER_FILE)
            return
        self._disk.sync_dir("")

    def close(self) -> None:
        if self._close is not None:
            self._close()

    def _replace(self, files: Mapping[str, bytes]) -> None:
        """All are written before the first has its name: if one has no room, the others need not have taken theirs."""
        try:
            for path, data in files.items():
                write_temporary(self._disk, path, data)
            for path in files:
                self._disk.rename(path + TEMPORARY, path)
        except OSError:
            for path in files:
                with suppress(OSError):  # the first error is the one to tell
                    self._disk.unlink(path + TEMPORARY)
            raise
