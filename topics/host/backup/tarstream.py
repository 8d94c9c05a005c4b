"""A backup as a tar archive that is made while it is read: its size is known at once, and no more than a piece is held.

The manifest is its last file. What ends before it is no backup, whatever was unpacked of it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Final

import msgspec

from topics.codec.manifest import MANIFEST_FILE, FileEntry, encode_manifest
from topics.host.backup.contents import PIECE_SIZE, Contents
from topics.host.backup.live_backup import Summing

_BLOCK: Final = tarfile.BLOCKSIZE
_MODE: Final = 0o600
_END: Final = bytes(2 * _BLOCK)


def tar_size(contents: Contents) -> int:
    """Bytes of the archive, before the first part is read."""
    sizes = [part.size for part in contents.parts] + [len(encode_manifest(contents.manifest))]
    return sum(_BLOCK + size + _padding(size) for size in sizes) + len(_END)


def tar_pieces(contents: Contents) -> Iterator[bytes]:
    """The archive, in pieces of about PIECE_SIZE. Blocks. Takes the parts away as it goes.

    Raises:
        Corrupt: a file of the store cannot be read, or is not as long as it was; the archive has no end.
    """
    gathered = bytearray()
    for text in _texts(contents):
        if len(gathered) + len(text) > PIECE_SIZE and gathered:
            yield bytes(gathered)
            gathered.clear()
        gathered += text
    yield bytes(gathered)


def _texts(contents: Contents) -> Iterator[bytes]:
    entries: list[FileEntry] = []
    mtime = contents.manifest.ts // 1000
    while contents.parts:
        part = contents.parts.popleft()
        summing = Summing(part)
        yield _header(part.path, part.size, mtime)
        yield from summing
        entries.append(summing.entry())
        yield bytes(_padding(part.size))
    manifest = encode_manifest(msgspec.structs.replace(contents.manifest, files=entries))
    yield _header(MANIFEST_FILE, len(manifest), mtime)
    yield manifest + bytes(_padding(len(manifest)))
    yield _END


def _header(path: str, size: int, mtime: int) -> bytes:
    info = tarfile.TarInfo(path)
    info.size, info.mtime, info.mode = size, mtime, _MODE
    header = info.tobuf(tarfile.GNU_FORMAT)
    assert len(header) == _BLOCK, "our paths are short"
    return header


def _padding(size: int) -> int:
    return -size % _BLOCK
