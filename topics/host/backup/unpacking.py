"""A backup that comes as a stream, written to a directory as it comes: every file's checksum is held against the
manifest.

The stream is a stranger's: nothing but plain files under the names that a backup has is taken from it, each once, and
the manifest decides at the end. Reading blocks, as whoever gives the pieces does.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from typing import Final

import xxhash

from topics.codec.manifest import MANIFEST_FILE, FileEntry, Manifest, Written, too_large
from topics.host.backup.destination import Destination, finish_backup, make_parents, why_unwritable
from topics.host.backup.verifying import is_of_a_backup, manifest_of
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MANIFEST_BYTES_MAX
from topics.kernel.ports import Disk

_BLOCK: Final = tarfile.BLOCKSIZE


def unpack_backup(
    pieces: Iterator[bytes], target: Disk, *, tell: Callable[[int], None] | None = None
) -> Written:
    """Write the backup that an archive holds into an empty directory, all of it durable. `tell`: bytes that came.

    Raises:
        Corrupt: the archive ended early, or holds what no backup does, or not what its manifest says.
        OSError: it cannot be written.
    """
    stream = _ArchiveStream(pieces, tell)
    found: dict[str, FileEntry] = {}
    made: dict[str, None] = {"": None}
    while True:
        path, size = _header(stream)
        if path == MANIFEST_FILE:
            break
        if path in found or not is_of_a_backup(path):
            raise Corrupt(f"the archive holds {path!r:.100}, which is no file of a backup, or comes twice")
        make_parents(target, path, made)
        found[path] = _file(stream, target, path, size)
    manifest = _manifest(stream, size)
    if list(found.values()) != manifest.files:
        raise Corrupt("the archive does not hold what its manifest says")
    finish_backup(target, manifest, made)
    return Written(manifest=manifest)


def receive_backup(
    pieces: Iterator[bytes], dest: str | os.PathLike[str], tell: Callable[[int], None]
) -> Written:
    """The same to a directory that is not there yet. If it fails, nothing is left of it.

    Raises:
        Rejected: something is at `dest`.
        CannotOpen: it cannot be written.
        Corrupt: as above.
    """
    target = Destination.claim(dest)
    try:
        try:
            written = unpack_backup(pieces, target.disk, tell=tell)
        except OSError as error:
            raise why_unwritable(dest, error) from error
        target.finish()
    except BaseException:
        target.discard()
        raise
    return written


class _ArchiveStream:
    """Bytes by count out of pieces of any size."""

    def __init__(self, pieces: Iterator[bytes], tell: Callable[[int], None] | None) -> None:
        self._pieces = pieces
        self._tell = tell
        self._left = memoryview(b"")
        self._taken = 0

    def some(self, most: int) -> bytes:
        """At least one byte."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                raise Corrupt("the archive ends before its manifest: it was broken off")
            self._left = memoryview(piece)
            self._taken += len(piece)
            if self._tell is not None:
                self._tell(self._taken)
        some = bytes(self._left[:most])
        self._left = self._left[most:]
        return some

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            parts.append(self.some(size))
            size -= len(parts[-1])
        return b"".join(parts)


def _header(stream: _ArchiveStream) -> tuple[str, int]:
    try:
        info = tarfile.TarInfo.frombuf(stream.read(_BLOCK), "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise Corrupt(f"the archive cannot be read: {error}") from None
    if info.type != tarfile.REGTYPE or info.size < 0:
        raise Corrupt(f"the archive holds {info.name!r:.100}, which is no plain file")
    return info.name, info.size


def _file(stream: _ArchiveStream, target: Disk, path: str, size: int) -> FileEntry:
    digest = xxhash.xxh3_64()
    target.create(path, 0)
    at = 0
    while at < size:
        piece = stream.some(size - at)
        digest.update(piece)
        target.write(path, at, [piece])
        at += len(piece)
    target.sync_data(path)
    stream.read(-size % _BLOCK)
    return FileEntry(path, size, f"{digest.intdigest():016x}")


def _manifest(stream: _ArchiveStream, size: int) -> Manifest:
    if size > MANIFEST_BYTES_MAX:
        raise too_large(size)
    return manifest_of(stream.read(size))
