"""A data directory whose cold segments can be read, for a start that has to make an idx or columns anew (storage 4).

A start reads idx and columns, which are in the data directory, so as a rule it asks nothing of the cold tier. Only what
is damaged or missing of them is made from the data, and that may be cold. One that the medium does not give is as good
as missing: a new one gets other sectors.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from topics.host.cold.ownership import is_foreign, note_of
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import segment_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId


class ColdBehind:
    """The port of `disk`; a `.data` that is not there is read from the cold tier."""

    def __init__(self, disk: Disk, store: SegmentStore | None) -> None:
        self._disk = disk
        self._store = store
        self._is_checked = False

    def _own_store(self) -> SegmentStore | None:
        """The cold tier, if there is one and it is not surely another store's."""
        store = self._store
        if store is not None and not self._is_checked:
            if is_foreign(note_of(self._disk), store.read_owner()):
                self._store = store = None
            self._is_checked = True
        return store

    def has(self, segment: SegmentId, size: int) -> bool:
        """Whether the cold tier has all of the segment: asked only if the data directory has none of it."""
        store = self._own_store()
        return store is not None and store.exists(segment, "data") and store.len(segment, "data") == size

    def read(self, path: str, offset: int, size: int) -> bytes:
        try:
            with unreadable_on_error():
                return self._disk.read(path, offset, size)
        except Unreadable as error:
            if not path.endswith((".idx", ".col")):
                raise
            raise FileNotFoundError(errno.ENOENT, str(error), path) from error
        except FileNotFoundError:
            segment = segment_of(path) if path.endswith(".data") else None
            store = None if segment is None else self._own_store()
            if segment is None or store is None:
                raise
            return store.read_range(segment, "data", offset, size)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        return self._disk.read_nowait(path, offset, size)

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        self._disk.write(path, offset, chunks)

    def sync_data(self, path: str) -> None:
        self._disk.sync_data(path)

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        self._disk.sync_many(files, directories)

    def create(self, path: str, size: int) -> None:
        self._disk.create(path, size)

    def extend(self, path: str, size: int) -> None:
        self._disk.extend(path, size)

    def truncate(self, path: str, size: int) -> None:
        self._disk.truncate(path, size)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)

    def make_dir(self, path: str) -> None:
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._disk.remove_dir(path)

    def links(self, path: str) -> int:
        return self._disk.links(path)

    def names(self, path: str) -> list[str]:
        return self._disk.names(path)

    def size(self, path: str) -> int | None:
        return self._disk.size(path)

    def free_bytes(self, path: str = "") -> int:
        return self._disk.free_bytes(path)
