"""Cold segments below a URL, in whatever fsspec reaches (storage 6, decision 21)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from topics.host.cold.fsspec_files import FsspecFiles, open_files
from topics.host.cold.segment_stores import OWNER_FILE
from topics.host.directory.layout import SEGMENT_PARTS, segment_of, segment_path
from topics.log.regions import SegmentId


def is_url(place: str) -> bool:
    """Whether a cold directory is a store's URL, and not a folder."""
    return "://" in place


def open_fsspec(url: str, options: Mapping[str, Any] | None = None) -> FsspecSegmentStore:
    """The store at a URL; nothing is asked of it yet. `options` go to the file system.

    Raises:
        Rejected: fsspec or what the scheme needs is not installed, or nobody knows the scheme.
    """
    return FsspecSegmentStore(open_files(url, "cold_dir", options))


class FsspecSegmentStore:
    """Segments as files below a URL."""

    def __init__(self, files: FsspecFiles) -> None:
        self._files = files

    @property
    def where(self) -> str:
        return self._files.where

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        for part in SEGMENT_PARTS:
            if part in parts:
                self._files.write(segment_path(*segment, part), parts[part])

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        return self._files.read(segment_path(*segment, part), offset, size)

    def delete(self, segment: SegmentId) -> None:
        for part in SEGMENT_PARTS:
            path = segment_path(*segment, part)
            if self._files.size(path) is not None:
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    continue

    def list(self) -> list[SegmentId]:
        found = (segment_of(path) for path in self._files.paths("topics"))
        return sorted({segment for segment in found if segment is not None})

    def exists(self, segment: SegmentId, part: str) -> bool:
        return self._files.size(segment_path(*segment, part)) is not None

    def len(self, segment: SegmentId, part: str) -> int:
        path = segment_path(*segment, part)
        size = self._files.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "no such segment", f"{self.where}/{path}")
        return size

    def read_owner(self) -> bytes | None:
        if self._files.size(OWNER_FILE) is None:
            return None
        return self._files.read_all(OWNER_FILE)

    def write_owner(self, note: bytes) -> None:
        self._files.write(OWNER_FILE, note)

    def close(self) -> None:
        """The file system closes its own connections when it is collected."""
