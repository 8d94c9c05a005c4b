"""A file that is there whole or not at all; or a pipe, a device, standard output, which get what is written at once.

A file is written beside its name, synced and renamed: whoever finds one under that name has all of it, and one that was
there before stays until then. What is no file is never replaced by one, and a FIFO that nobody reads is not waited for.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Protocol

from topics.cli.core.failure import USAGE, Failed
from topics.cli.io.paths import cannot_write

STDOUT: Final = "-"
_GZIP_WINDOW: Final = 31  # zlib's word for "with gzip's head and tail"
_GZIP_LEVEL: Final = 5
_TOKEN_BYTES: Final = 8


class Sink(Protocol):
    """Takes bytes."""

    def write(self, data: bytes, /) -> object: ...


class GzipSink:
    """Packs what it is given. Only `finish` makes a whole gzip file of it: what broke off must not look like one."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pack = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def write(self, data: bytes) -> None:
        self._sink.write(self._pack.compress(data))

    def finish(self) -> None:
        self._sink.write(self._pack.flush())


class FileSink:
    """A file that is being written; what it refuses is told with its name."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path

    def write(self, data: bytes) -> None:
        with _naming(self._path):
            self._file.write(data)


@contextmanager
def opened(name: str) -> Iterator[Sink]:
    """What `name` means, to be written once. Behind the block a file has its name; an error leaves none.

    Raises:
        Failed: it cannot be written.
    """
    if is_standard_output(name):  # a file that it was led to is gone on with, and not replaced
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    with _naming(path):
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
    if found is None or stat.S_ISREG(found.st_mode):
        path = Path(os.path.realpath(path))  # a link stays one: what it points to is written
    in_place = found is not None and not stat.S_ISREG(found.st_mode)
    with _written_in_place(path) if in_place else _written_beside(path, found) as file:
        yield FileSink(file, path)


def is_standard_output(name: str) -> bool:
    """Also by a name such as /dev/stdout: what is said then must not come among what is written."""
    if name == STDOUT:
        return True
    try:
        return os.path.samestat(Path(name).stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write("FILE", path, error) from error


@contextmanager
def _written_in_place(path: Path) -> Iterator[IO[bytes]]:
    if path.is_dir():
        raise Failed(f"{path} is a directory; name a file in it, or - for standard output", code=USAGE)
    if path.is_block_device():
        raise Failed(f"{path} is a disk, which an export would overwrite; name a file", code=USAGE)
    with _naming(path):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise Failed(f"{path} is a pipe that nobody reads: start its reader first") from None
            raise
    os.set_blocking(fd, True)
    with _closed(os.fdopen(fd, "wb")) as file:
        yield file
        with _naming(path):
            file.flush()


@contextmanager
def _written_beside(path: Path, found: os.stat_result | None) -> Iterator[IO[bytes]]:
    from topics.host.system.folder import sync_names

    with _naming(path):
        beside, fd = _begun_beside(path)
    try:
        with _closed(os.fdopen(fd, "wb")) as file:
            yield file
            with _naming(path):
                file.flush()
                if found is not None:
                    os.fchmod(fd, stat.S_IMODE(found.st_mode))
                os.fsync(fd)
                beside.replace(path)  # while it is locked: else another export may take it for abandoned
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise
    with _naming(path):
        sync_names(path.parent)


def _begun_beside(path: Path) -> tuple[Path, int]:
    """A file of this export, locked as long as it is open. Those of exports to the same name that were killed go."""
    target = hashlib.blake2s(os.fsencode(path.name), digest_size=4).hexdigest()
    for left in path.parent.glob(f".topics-export-{target}-{'[0-9a-f]' * 2 * _TOKEN_BYTES}"):
        with suppress(OSError):
            _remove_abandoned(left)
    while True:
        beside = path.parent / f".topics-export-{target}-{secrets.token_hex(_TOKEN_BYTES)}"
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        if beside.exists():  # nobody took it for abandoned before it was locked
            return beside, fd
        os.close(fd)


def _remove_abandoned(left: Path) -> None:
    """Raises OSError: it is locked, so somebody writes it."""
    fd = os.open(left, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left.unlink()
    finally:
        os.close(fd)


@contextmanager
def _closed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """It is closed in the end. What was not written could not be, and that has been told."""
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()
