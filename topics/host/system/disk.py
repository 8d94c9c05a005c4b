"""One data directory on a real file system (`kernel.ports.Disk`).

Theory. Every call is a few system calls and either does all it says or raises `OSError`; nothing is retried after an
error (storage 3). A short write raises what its rest raises, so that a full disk is told as one. All names are resolved
against a descriptor of the root, so neither a change of working directory nor a move of the data directory redirects a
write; the last component is never followed if it is a symbolic link. What is no regular file is refused (`kinds`) and
never waited for.

Descriptors are cached by path, because a write and its sync must not pay for an open. Two rules guard the cache:

- A descriptor in use is never closed: `unlink`, `rename` and `close` doom it, its last user closes it.
- A descriptor with writes since its last successful sync is never evicted. The kernel tells a failed write-back to
  the descriptors open at that time; a later one might see a clean file and call lost pages synced.

Any thread may call at any time. The mutex covers the cache and the calls that change names; reads, writes and syncs
run outside it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

from topics.host.system.filetypes import DIRECTORY_FLAGS, open_directory, open_file, status_of
from topics.host.system.parallel import call_all
from topics.host.system.refusals import TOO_MANY
from topics.host.system.spares import Spares
from topics.host.system.systemcalls import SystemCalls
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.kernel.ports import check_path

OPEN_FILES_MAX: Final = 128
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
CHUNKS_PER_CALL: Final = 1024  # IOV_MAX of Linux and macOS
_SURE: Final = 1 << 20  # bytes of a read for which the file is not asked how long it is
_HAS_PWRITEV: Final = hasattr(os, "pwritev")
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0  # Linux has it
_NOT_AT_HAND: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
# Without O_NONBLOCK, to open a pipe would wait for its other end.
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class _Handle:
    """An open descriptor, its users, and whether it may be closed."""

    __slots__ = ("dirty", "doomed", "fd", "lock", "users")

    def __init__(self, fd: int, lock: threading.Lock) -> None:
        self.fd = fd
        self.lock = lock  # of the disk's cache
        self.users = 0
        self.dirty = False
        self.doomed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            assert self.users >= 0
            if self.doomed and self.users == 0:
                os.close(self.fd)


class OsDisk:
    """The file system below `root`, which must exist. Raises OSError only. `calls` is for tests of its errors."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        open_files_max: int = OPEN_FILES_MAX,
        calls: SystemCalls | None = None,
    ) -> None:
        assert open_files_max >= 1, open_files_max
        self.root = Path(root)
        self._open_files_max = open_files_max
        self._calls = calls or SystemCalls()
        self._lock = threading.Lock()
        self._handles: dict[str, _Handle] = {}  # in order of use, the coldest first
        self._unsynced: set[str] = set()  # directories of which a sync has failed
        self._root_fd = os.open(self.root, DIRECTORY_FLAGS)
        self._spares = Spares(self._root_fd)

    def read(self, path: str, offset: int, size: int) -> bytes:
        assert offset >= 0, offset
        assert size >= 0, size
        with self._using(path, spares=False) as handle:
            if size > _SURE:  # memory for all of it is taken first, and a damaged file may say any length
                size = min(size, max(os.fstat(handle.fd).st_size - offset, 0))
            data = os.pread(handle.fd, size, offset)
            short = data and len(data) < size
            return data + _read_rest(handle.fd, offset + len(data), size - len(data)) if short else data

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        """All of the bytes if they are in the page cache and their file is open, else None: then ask `read`.

        No disk is waited for, so an event loop may call. (Leaving may wait for a name that is being changed.)
        """
        assert offset >= 0, offset
        assert size >= 0, size
        if not _NOWAIT or not self._lock.acquire(blocking=False):
            return None
        try:
            # Its place in the order of use stays: no disk is read, so it is not worth the room of one that is.
            handle = self._handles.get(path)
            if handle is None:
                return None
            handle.users += 1
        finally:
            self._lock.release()
        with handle:
            buffer = bytearray(size)
            try:
                count = os.preadv(handle.fd, [buffer], offset, _NOWAIT)
            except OSError as error:
                if error.errno in _NOT_AT_HAND:
                    return None
                raise
        return bytes(buffer) if count == size else None

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        assert offset >= 0, offset
        size = sum(map(len, chunks))
        handle = self._using(path)
        try:
            written = _write_once(handle.fd, offset, chunks)
            if written != size:
                _write_rest(handle.fd, offset + written, b"".join(chunks)[written:])
        finally:
            handle.dirty = True  # after the call: a sync that ran meanwhile may not have covered it
            handle.leave()
        if written != size:
            raise OSError(errno.EIO, f"short write: {written} of {size} bytes at offset {offset}", path)

    def sync_data(self, path: str) -> None:
        handle = self._using(path)
        handle.dirty = False  # before the call, for the same reason
        try:
            self._calls.sync_data(handle.fd)
        except OSError:
            handle.dirty = True
            raise
        finally:
            handle.leave()

    def sync_dir(self, path: str) -> None:
        """One that has failed fails from then on: names may be lost, and the kernel calls them clean all the same.

        So it is for want of space, too: what had no room when it was written back is dropped. Only the first error
        says so: freeing some makes a later sync no truer.
        """
        if path in self._unsynced:
            why = "a sync of it has failed before, and it may have lost names: restart the process"
            raise OSError(errno.EIO, why, path)
        fd = self._open_dir(path, spares=True)
        try:
            self._calls.sync_dir(fd)
        except OSError:
            self._unsynced.add(path)
            raise
        finally:
            os.close(fd)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        call_all(self.sync_data, files)
        call_all(self.sync_dir, directories)

    def create(self, path: str, size: int) -> None:
        assert size >= 0, size
        with self._using(path, os.O_CREAT) as handle:
            handle.dirty = True
            os.ftruncate(handle.fd, 0)
            self._grow(handle.fd, 0, size)

    def extend(self, path: str, size: int) -> None:
        assert size >= 0, size
        with self._using(path) as handle:
            before = os.fstat(handle.fd).st_size
            if before < size:
                handle.dirty = True
                self._grow(handle.fd, before, size)

    def truncate(self, path: str, size: int) -> None:
        assert size >= 0, size
        with self._using(path) as handle:
            assert size <= os.fstat(handle.fd).st_size, "truncate cuts, extend grows"
            handle.dirty = True
            os.ftruncate(handle.fd, size)

    def rename(self, source: str, target: str) -> None:
        check_path(source)
        check_path(target)
        assert source != target
        with self._lock:
            self._check_open()
            os.replace(source, target, src_dir_fd=self._root_fd, dst_dir_fd=self._root_fd)
            self._doom(target)
            moved = self._handles.pop(source, None)
            if moved is not None:
                self._handles[target] = moved

    def unlink(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._check_open()
            with suppress(FileNotFoundError):
                os.unlink(path, dir_fd=self._root_fd)
            self._doom(path)

    def make_dir(self, path: str) -> None:
        check_path(path)
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            with suppress(FileExistsError), self._lock:
                self._check_open()
                os.mkdir("/".join(parts[:depth]), DIRECTORY_MODE, dir_fd=self._root_fd)
        os.close(self._open_dir(path))  # refuses a file of that name

    def remove_dir(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._check_open()
            with suppress(FileNotFoundError):
                os.rmdir(path, dir_fd=self._root_fd)

    def links(self, path: str) -> int:
        status = self._status(path)
        return status.st_nlink if status is not None and stat.S_ISREG(status.st_mode) else 0

    def names(self, path: str) -> list[str]:
        try:
            fd = self._open_dir(path)
        except FileNotFoundError:
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def size(self, path: str) -> int | None:
        status = self._status(path)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def free_bytes(self, path: str = "") -> int:
        try:
            fd = self._open_dir(path)
        except FileNotFoundError:  # it will be made where the one above it lies
            if not path:
                raise
            return self.free_bytes(path.rpartition("/")[0])
        try:
            status = os.fstatvfs(fd)
        finally:
            os.close(fd)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """Close every descriptor; those in use follow when their call ends. Syncs nothing. Twice is fine."""
        with self._lock:
            if self._root_fd < 0:
                return
            for path in list(self._handles):
                self._doom(path)
            self._spares.close()
            os.close(self._root_fd)
            self._root_fd = -1
        assert not self._handles

    def _status(self, path: str) -> os.stat_result | None:
        check_path(path)
        with self._lock:
            self._check_open()
            return status_of(path, root_fd=self._root_fd)

    def _using(self, path: str, flags: int = 0, *, spares: bool = True) -> _Handle:
        """The path's handle, kept open until its `with` block ends, or `leave`."""
        with self._lock:
            handle = self._handles.pop(path, None)
            if handle is None:
                handle = self._open(path, flags, spares=spares)
            self._handles[path] = handle  # the warmest now
            handle.users += 1
        return handle

    def _open(self, path: str, flags: int, *, spares: bool) -> _Handle:
        self._check_open()  # `close` leaves no handle to find
        check_path(path)
        fd = self._opened(
            lambda: open_file(path, _OPEN_FLAGS | flags, FILE_MODE, root_fd=self._root_fd), spares=spares
        )
        self._evict_to(self._open_files_max - 1)
        return _Handle(fd, self._lock)

    def _opened(self, open_it: Callable[[], int], *, spares: bool) -> int:
        """Open; without a descriptor for it, give up files that nobody uses, and `spares`. Under the lock."""
        self._spares.keep()
        while True:
            try:
                return open_it()
            except OSError as error:
                given_up = error.errno in TOO_MANY and (
                    self._evict_to(len(self._handles) - 1) or (spares and self._spares.give_up())
                )
                if not given_up:
                    raise

    def _evict_to(self, count: int) -> bool:
        """Close the coldest handles that are neither in use nor dirty, if any. Dirty ones may stay above the bound."""
        surplus = max(len(self._handles) - count, 0)
        idle = (path for path, handle in self._handles.items() if handle.users == 0 and not handle.dirty)
        coldest = list(islice(idle, surplus))
        for path in coldest:
            self._doom(path)
        return bool(coldest)

    def _doom(self, path: str) -> None:
        handle = self._handles.pop(path, None)
        if handle is None:
            return
        assert not handle.doomed
        handle.doomed = True
        if handle.users == 0:
            os.close(handle.fd)

    def _grow(self, fd: int, before: int, size: int) -> None:
        """Fill [before, size) with real zeros, or leave the file as long as it was."""
        assert before <= size
        try:
            if before < size:
                self._calls.reserve(fd, before, size - before)
            _fill(fd, before, size)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell; this only gives the space back
                os.ftruncate(fd, before)
            raise
        assert os.fstat(fd).st_size == size

    def _open_dir(self, path: str, *, spares: bool = False) -> int:
        with self._lock:
            self._check_open()
            if path:
                check_path(path)
            return self._opened(lambda: open_directory(path or ".", root_fd=self._root_fd), spares=spares)

    def _check_open(self) -> None:
        if self._root_fd < 0:
            raise OSError(errno.EBADF, "the disk is closed", str(self.root))


def _read_rest(fd: int, offset: int, size: int) -> bytes:
    """What follows a short read, up to the end of the file."""
    parts = []
    while size > 0:
        data = os.pread(fd, size, offset)
        if not data:
            break
        parts.append(data)
        offset += len(data)
        size -= len(data)
    assert size >= 0
    return b"".join(parts)


def _write_once(fd: int, offset: int, chunks: Sequence[bytes]) -> int:
    """One system call, whatever the number of chunks: a torn batch must look like one write."""
    if len(chunks) == 1:
        return os.pwrite(fd, chunks[0], offset)
    if 1 < len(chunks) <= CHUNKS_PER_CALL and _HAS_PWRITEV:
        return os.pwritev(fd, chunks, offset)
    return os.pwrite(fd, b"".join(chunks), offset)


def _write_rest(fd: int, offset: int, data: bytes) -> None:
    """Ask for what a short write has left out, because only the next call says why. It was short even if all goes."""
    while data and (written := os.pwrite(fd, data, offset)) > 0:
        data, offset = data[written:], offset + written


def _fill(fd: int, start: int, stop: int) -> None:
    """Zeros written, not only reserved: a sync then has no block to convert and no size to change."""
    zeros = bytes(min(ZERO_FILL_CHUNK, stop - start))
    while start < stop:
        written = os.pwrite(fd, memoryview(zeros)[: stop - start], start)
        if written <= 0:
            raise OSError(errno.EIO, f"cannot fill with zeros at offset {start}")
        start += written
    assert start == stop
