"""BACKUP.json: what a backup is made of, written last (storage 7).

One JSON object in one line. Its last member, `xxh3`, is the checksum of the text before it, so a manifest that was cut
short or edited is none. All fields but the checksums of the files are known before the first byte is copied, and a
checksum has a fixed width, so how long the manifest will be is known too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Annotated, Final, TypeVar

import msgspec

from topics.codec.primitives import Buffer, checksum
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MANIFEST_BYTES_MAX, U32_MAX
from topics.kernel.ports import is_below
from topics.kernel.whole_numbers import Count, Generation, ShardNumber

MANIFEST_FILE: Final = "BACKUP.json"
MANIFEST_VERSION: Final = 1
NO_CHECKSUM: Final = "0" * 16
_TAIL: Final = re.compile(rb',"xxh3":"([0-9a-f]{16})"}\n', re.ASCII)
_TAIL_SIZE: Final = len(',"xxh3":""}\n') + 16
_T = TypeVar("_T", bound=Hashable)
_FileSize = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]  # no kind of file is larger
_Checksum = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]


class LogEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a shard's log ends in the backup: behind `offset` bytes of the WAL file whose first frame is `file`. The
    next frame is number `next_frame`.
    """

    generation: Generation
    shard: ShardNumber
    file: Count
    offset: Count
    next_frame: Count


class TopicEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic at the cut."""

    name: str
    id: Count
    epoch: Count
    head_seq: Count


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the backup: its checksum is XXH3-64, in 16 hex digits."""

    path: str
    size: _FileSize
    xxh3: _Checksum


class ColdEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment whose data is not in the backup but in the cold tier."""

    topic_id: Count
    first_seq: Count
    size: _FileSize


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ts`: of the cut. `vector`: one position a shard of the present generation."""

    backup: int
    ts: Count
    vector: list[LogEnd]
    topics: list[TopicEntry]
    files: list[FileEntry]
    cold: list[ColdEntry]

    @property
    def size(self) -> int:
        """Bytes of all its files, without the manifest."""
        return sum(file.size for file in self.files)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that is whole. `linked`: bytes of it that take no space of their own."""

    manifest: Manifest
    linked: int = 0


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    body = msgspec.json.encode(manifest)[:-1]
    data = b'%b,"xxh3":"%016x"}\n' % (body, checksum(body))
    assert len(data) == len(body) + _TAIL_SIZE
    return data


def decode_manifest(buffer: Buffer) -> Manifest:
    """The manifest of a file. Its paths lead nowhere but below the backup, and no two are the same.

    Raises:
        Corrupt: it is none, or damaged, or of a newer version, or names what cannot be.
    """
    if len(buffer) > MANIFEST_BYTES_MAX:
        raise too_large(len(buffer))
    data = bytes(buffer)
    tail = _TAIL.fullmatch(data[-_TAIL_SIZE:])
    if tail is None or int(tail[1], 16) != checksum(data[:-_TAIL_SIZE]):
        raise Corrupt(f"{MANIFEST_FILE}: cut short, or changed since it was written", field="xxh3")
    try:
        manifest = msgspec.json.decode(data[:-_TAIL_SIZE] + b"}", type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{MANIFEST_FILE}: {error}; a newer topics may read it", field="body") from None
    if manifest.backup != MANIFEST_VERSION:
        raise Corrupt(f"{MANIFEST_FILE}: version {manifest.backup} is not {MANIFEST_VERSION}", field="backup")
    for file in manifest.files:
        if not is_below(file.path):
            raise _names(f"the file {file.path!r:.100}, which would lie outside the backup", "files")
    if (twice := _twice(file.path for file in manifest.files)) is not None:
        raise _names(f"the file {twice!r:.100} twice", "files")
    if _twice((end.generation, end.shard) for end in manifest.vector) is not None:
        raise _names("the end of one log twice", "vector")
    return manifest


def too_large(size: int) -> Corrupt:
    """What is said of a manifest that is not even read."""
    return Corrupt(
        f"{MANIFEST_FILE}: {size} bytes are more than the limit of {MANIFEST_BYTES_MAX}", field="size"
    )


def _twice(values: Iterable[_T]) -> _T | None:
    """One that is there twice."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _names(what: str, field: str) -> Corrupt:
    return Corrupt(f"{MANIFEST_FILE}: it names {what}: it was forged, take another backup", field=field)
