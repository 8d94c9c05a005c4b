"""The header of a WAL file: who wrote it, and where it stands in its shard (storage 2).

    magic 8 | version u32 | generation u32 | shard u32 | reserved u32 = 0 | first_frame u64 | file_id 8 | xxh3 u64

The checksum covers everything before it. `file_id` is random: a CommitMark names it, so bytes of one file found in
another are never taken for a mark of it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import attrs

from topics.codec.primitives import U64, Buffer, checksum
from topics.kernel.errors import Corrupt

WAL_MAGIC: Final = b"TOPICWAL"
WAL_VERSION: Final = 1
HEADER: Final = Struct("<8sIIIIQ8sQ")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 48
FILE_ID_SIZE: Final = 8
_COVERED: Final = HEADER_SIZE - U64.size


@attrs.frozen(kw_only=True)
class WalHeader:
    """Frame numbers count a shard's frames from 1."""

    version: int = WAL_VERSION
    generation: int
    shard: int
    first_frame: int
    file_id: bytes

    def encode(self) -> bytes:
        assert len(self.file_id) == FILE_ID_SIZE
        assert self.first_frame >= 1
        fields = (WAL_MAGIC, self.version, self.generation, self.shard, 0, self.first_frame, self.file_id)
        head = HEADER.pack(*fields, 0)[:_COVERED]
        return head + U64.pack(checksum(head))

    @staticmethod
    def decode(buffer: Buffer) -> WalHeader:
        """The header at the start of the buffer. Raises `Corrupt` naming what is wrong."""
        if len(buffer) < HEADER_SIZE:
            raise Corrupt(f"WAL header: {len(buffer)} bytes are less than its {HEADER_SIZE}", field="length")
        magic, version, generation, shard, reserved, first_frame, file_id, crc = HEADER.unpack_from(buffer)
        if magic != WAL_MAGIC:
            raise Corrupt("WAL header: the magic is wrong, this is no WAL file", field="magic")
        if checksum(buffer[:_COVERED]) != crc:
            raise Corrupt("WAL header: the checksum does not match", field="checksum")
        if version != WAL_VERSION:
            raise Corrupt(f"WAL header: version {version} is not {WAL_VERSION}", field="version")
        if reserved != 0:
            raise Corrupt("WAL header: the reserved field is not zero", field="reserved")
        if first_frame < 1:
            raise Corrupt("WAL header: frame numbers count from 1", field="first_frame")
        return WalHeader(generation=generation, shard=shard, first_frame=first_frame, file_id=file_id)


def decode_header(buffer: Buffer) -> WalHeader:
    return WalHeader.decode(buffer)
