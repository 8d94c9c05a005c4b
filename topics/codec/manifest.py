"""BACKUP.json: what a backup is made of, written last (storage 7).

One JSON object in one line. Its last member, `xxh3`, is the checksum of the text before it, so a manifest that was cut
short or edited is none. All fields but the checksums of the files are known before the first byte is copied, and a
checksum has a fixed width, so how long the manifest will be is known too.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from topics.codec.primitives import Buffer, checksum
from topics.kernel.errors import Corrupt

MANIFEST_FILE: Final = "BACKUP.json"
MANIFEST_VERSION: Final = 1
NO_CHECKSUM: Final = "0" * 16
_TAIL: Final = re.compile(rb',"xxh3":"([0-9a-f]{16})"}\n', re.ASCII)
_TAIL_SIZE: Final = len(',"xxh3":""}\n') + 16


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a shard's log ends in the backup: behind `offset` bytes of the WAL file whose first frame is `file`. The
    next frame is number `next_frame`.
    """

    generation: int
    shard: int
    file: int
    offset: int
    next_frame: int


class TopicEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic at the cut."""

    name: str
    id: int
    epoch: int
    head_seq: int


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the backup: its checksum is XXH3-64, in 16 hex digits."""

    path: str
    size: int
    xxh3: str


class ColdEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment whose data is not in the backup but in the cold tier."""

    topic_id: int
    first_seq: int
    size: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ts`: of the cut. `vector`: one position a shard of the present generation."""

    backup: int
    ts: int
    vector: list[Position]
    topics: list[TopicEntry]
    files: list[FileEntry]
    cold: list[ColdEntry]

    @property
    def size(self) -> int:
        """Bytes of all its files, without the manifest."""
        return sum(file.size for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    body = msgspec.json.encode(manifest)[:-1]
    data = b'%b,"xxh3":"%016x"}\n' % (body, checksum(body))
    assert len(data) == len(body) + _TAIL_SIZE
    return data


def decode_manifest(buffer: Buffer) -> Manifest:
    """The manifest of a file.

    Raises:
        Corrupt: it is none, or damaged, or of a newer version.
    """
    data = bytes(buffer)
    tail = _TAIL.fullmatch(data[-_TAIL_SIZE:])
    if tail is None or int(tail[1], 16) != checksum(data[:-_TAIL_SIZE]):
        raise Corrupt(f"{MANIFEST_FILE}: cut short, or changed since it was written", field="xxh3")
    try:
        manifest = msgspec.json.decode(data[:-_TAIL_SIZE] + b"}", type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"{MANIFEST_FILE}: {error}; a newer topics may read it", field="body") from None
    if manifest.backup != MANIFEST_VERSION:
        raise Corrupt(f"{MANIFEST_FILE}: version {manifest.backup} is not {MANIFEST_VERSION}", field="backup")
    return manifest
