"""Disks that are looked at and never changed: the Disk port without its changing half.

`ReadOnlyDisk` is a directory. It takes no lock and opens for reading only, so it works on a directory that another
process owns, and on one that this user may not write. A file that goes away between two calls is FileNotFoundError from
`read` and None from `size`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import segment_of
from topics.host.system.filetypes import check_directory, check_file
from topics.kernel.ports import Disk, check_path
from topics.log.regions import SegmentId

READ_MAX: Final = 1 << 30  # bytes of one system call


class Unchanging:
    """The changing half of `kernel.ports.Disk`: to call it is a bug."""

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:  # noqa: ARG002 -- the port's signature
        _refuse("write", path)

    def sync_data(self, path: str) -> None:
        _refuse("sync_data", path)

    def sync_dir(self, path: str) -> None:
        _refuse("sync_dir", path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:  # noqa: ARG002 -- the port's
        _refuse("sync_many", "")

    def create(self, path: str, size: int) -> None:  # noqa: ARG002 -- the port's signature
        _refuse("create", path)

    def extend(self, path: str, size: int) -> None:  # noqa: ARG002 -- the port's signature
        _refuse("extend", path)

    def truncate(self, path: str, size: int) -> None:  # noqa: ARG002 -- the port's signature
        _refuse("truncate", path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002 -- the port's signature
        _refuse("rename", source)

    def unlink(self, path: str) -> None:
        _refuse("unlink", path)

    def make_dir(self, path: str) -> None:
        _refuse("make_dir", path)

    def remove_dir(self, path: str) -> None:
        _refuse("remove_dir", path)


class ReadOnlyDisk(Unchanging):
    """`kernel.ports.Disk` over a directory, reading only."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def read(self, path: str, offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size >= 0
        found = self._at(path).lstat()
        check_file(found.st_mode, path)  # to open a pipe would wait for who writes to it
        size = min(size, max(found.st_size - offset, 0))  # memory for all of it is taken first
        with (self.root / path).open("rb", buffering=0) as file:
            file.seek(offset)
            parts = []
            while size > 0:
                data = file.read(min(size, READ_MAX))
                if not data:
                    break
                parts.append(data)
                size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:  # noqa: ARG002 -- the port's signature
        """Nothing is known to be at hand."""
        return None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(path)))
        except FileNotFoundError:
            with suppress(FileNotFoundError):  # a link to nothing is no directory that is not there
                check_directory((self.root / path).lstat().st_mode, path)
            return []

    def size(self, path: str) -> int | None:
        try:
            found = self._at(path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def links(self, path: str) -> int:
        return self._at(path).lstat().st_nlink

    def free_bytes(self, path: str = "") -> int:
        found = os.statvfs(self._at(path))
        return found.f_bavail * found.f_frsize

    def _at(self, path: str) -> Path:
        """Where a path below the root is; `""` is the root."""
        if path:
            check_path(path)
        return self.root / path


class WithCold(Unchanging):
    """A disk on which the data of a cold segment is there, too: read from the cold tier (`segment_of` names it)."""

    def __init__(self, disk: Disk, cold: SegmentStore) -> None:
        self.disk = disk
        self._cold = cold

    def read(self, path: str, offset: int, size: int) -> bytes:
        try:
            return self.disk.read(path, offset, size)
        except FileNotFoundError:
            segment = _data_of(path)
            if segment is None:
                raise
            return self._cold.read_range(segment, "data", offset, size)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        return self.disk.read_nowait(path, offset, size)

    def names(self, path: str) -> list[str]:
        return self.disk.names(path)

    def size(self, path: str) -> int | None:
        size, segment = self.disk.size(path), _data_of(path)
        if size is None and segment is not None and self._cold.exists(segment, "data"):
            return self._cold.len(segment, "data")
        return size

    def links(self, path: str) -> int:
        return self.disk.links(path)

    def free_bytes(self, path: str = "") -> int:
        return self.disk.free_bytes(path)


def _data_of(path: str) -> SegmentId | None:
    """The segment of which this path is the data."""
    return segment_of(path) if path.endswith(".data") else None


class Hiding(Unchanging):
    """A disk on which some files and directories are not there: how a start fares that has to do without them."""

    def __init__(self, disk: Disk, hidden: frozenset[str]) -> None:
        self._disk = disk
        self._hidden = hidden

    def read(self, path: str, offset: int, size: int) -> bytes:
        if self._hides(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._disk.read(path, offset, size)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        return None if self._hides(path) else self._disk.read_nowait(path, offset, size)

    def names(self, path: str) -> list[str]:
        if self._hides(path):
            return []
        return [name for name in self._disk.names(path) if f"{path}/{name}".lstrip("/") not in self._hidden]

    def size(self, path: str) -> int | None:
        return None if self._hides(path) else self._disk.size(path)

    def links(self, path: str) -> int:
        return self._disk.links(path)

    def free_bytes(self, path: str = "") -> int:
        return self._disk.free_bytes(path)

    def _hides(self, path: str) -> bool:
        return any(path == hidden or path.startswith(f"{hidden}/") for hidden in self._hidden)


def _refuse(call: str, path: str) -> NoReturn:
    raise AssertionError(f"{call} {path!r} on a directory that is only looked at")
