"""A data directory that is in memory and nowhere else (`kernel.ports.Disk`): `topics serve --memory`.

The same calls, the same errors, and nothing outlives the process: a sync has nothing to do. Its size is bounded, as a
file system's is, so that what cannot be kept is refused with `disk_low` instead of taking the machine's memory. Zeros
that nobody has written over cost nothing: the operating system hands out such pages when they are touched.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from typing import Final

from topics.kernel.ports import check_path

MEMORY_UNKNOWN: Final = 4 << 30


class MemoryDisk:
    """Any thread may call at any time. Raises OSError only. `capacity`: of all files, None is half the machine's."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = half_of_memory() if capacity is None else capacity
        self._lock = threading.Lock()
        self._files: dict[str, bytearray] = {}
        self._directories = {""}
        self._used = 0

    def read(self, path: str, offset: int, size: int) -> bytes:
        assert offset >= 0, offset
        assert size >= 0, size
        with self._lock:
            return bytes(memoryview(self._file(path))[offset : offset + size])

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        data = self.read(path, offset, size)
        return data if len(data) == size else None

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        assert offset >= 0, offset
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        with self._lock:
            file = self._file(path)
            if offset + len(data) > len(file):
                self._grow(path, file, offset + len(data))
            file[offset : offset + len(data)] = data

    def sync_data(self, path: str) -> None:
        with self._lock:
            self._file(path)

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._directory(path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        for path in files:
            self.sync_data(path)
        for path in directories:
            self.sync_dir(path)

    def create(self, path: str, size: int) -> None:
        assert size >= 0, size
        check_path(path)
        with self._lock:
            self._parent(path)
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            before = len(self._files.get(path, b""))
            self._take(path, size - before)
            self._files[path] = bytearray(size)

    def extend(self, path: str, size: int) -> None:
        assert size >= 0, size
        with self._lock:
            file = self._file(path)
            if size > len(file):
                self._grow(path, file, size)

    def truncate(self, path: str, size: int) -> None:
        assert size >= 0, size
        with self._lock:
            file = self._file(path)
            assert size <= len(file), "truncate cuts, extend grows"
            self._used -= len(file) - size
            del file[size:]

    def rename(self, source: str, target: str) -> None:
        check_path(target)
        assert source != target
        with self._lock:
            moved = self._file(source)
            self._parent(target)
            if target in self._directories:
                raise _error(errno.EISDIR, target)
            self._used -= len(self._files.get(target, b""))
            self._files[target] = moved
            del self._files[source]

    def unlink(self, path: str) -> None:
        check_path(path)
        with self._lock:
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            self._used -= len(self._files.pop(path, b""))

    def make_dir(self, path: str) -> None:
        check_path(path)
        parts = path.split("/")
        with self._lock:
            for depth in range(1, len(parts) + 1):
                name = "/".join(parts[:depth])
                if name in self._files:
                    raise _error(errno.ENOTDIR, path)
                self._directories.add(name)

    def remove_dir(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._not_below_a_file(path)
            if path in self._files:
                raise _error(errno.ENOTDIR, path)
            if any(name.startswith(f"{path}/") for name in (*self._files, *self._directories)):
                raise _error(errno.ENOTEMPTY, path)
            self._directories.discard(path)

    def links(self, path: str) -> int:
        return 0 if self.size(path) is None else 1

    def names(self, path: str) -> list[str]:
        with self._lock:
            try:
                self._directory(path)
            except FileNotFoundError:
                return []
            start = f"{path}/" if path else ""
            below = (
                name[len(start) :] for name in (*self._files, *self._directories) if name.startswith(start)
            )
            return sorted(name for name in below if name and "/" not in name)

    def size(self, path: str) -> int | None:
        check_path(path)
        with self._lock:
            self._not_below_a_file(path)
            file = self._files.get(path)
            return None if file is None else len(file)

    def free_bytes(self, path: str = "") -> int:  # noqa: ARG002 -- the port's; all of it is one file system
        with self._lock:
            return max(self.capacity - self._used, 0)

    def close(self) -> None:
        """Give the memory back."""
        with self._lock:
            self._files.clear()
            self._used = 0

    # Under the lock.

    def _file(self, path: str) -> bytearray:
        check_path(path)
        file = self._files.get(path)
        if file is None:
            self._not_below_a_file(path)
            raise _error(errno.EISDIR if path in self._directories else errno.ENOENT, path)
        return file

    def _directory(self, path: str) -> None:
        if path in self._directories:
            return
        self._not_below_a_file(path)
        raise _error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)

    def _parent(self, path: str) -> None:
        self._directory(path.rpartition("/")[0])

    def _not_below_a_file(self, path: str) -> None:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in self._files for depth in range(1, len(parts))):
            raise _error(errno.ENOTDIR, path)

    def _grow(self, path: str, file: bytearray, size: int) -> None:
        self._take(path, size - len(file))
        file.extend(bytes(size - len(file)))

    def _take(self, path: str, size: int) -> None:
        if size > self.capacity - self._used:
            raise _error(errno.ENOSPC, path)
        self._used += size


def half_of_memory() -> int:
    """Half of the machine's memory, in bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError):
        return MEMORY_UNKNOWN


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
