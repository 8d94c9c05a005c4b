"""The two dialects of ledgerq (queues 7, `data/ledgerq`): one of its seed's page, one that its release 1.4.1 writes.

    length u32 · type u8 · flags u8 · id u64 · timestamp u64 · priority u8? · expires u64? · headers? · compression u8?
    · payload · CRC u32 · zeros?

Integers are little-endian, times nanoseconds since the Unix epoch. `length` counts all that comes behind it. What is
there with a `?` a flag says; `compression` and the four zeros are the release's alone. The seed's page draws no byte
for the priority that its flag 8 announces; it is where the release has it.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

import attrs

from topics.codec.ledgerq.crc import CASTAGNOLI, IEEE, Crc32
from topics.kernel.limits import DECOMPRESSED_MAX, KIB

ENTRY_HEAD: Final = Struct("<IBBQQ")
assert ENTRY_HEAD.size == 22
LENGTH_SIZE: Final = 4
CHECKSUM_SIZE: Final = 4
RELEASE_HEADER: Final = Struct("<IHHQQQQ20sI")
assert RELEASE_HEADER.size == 64
RELEASE_MAGIC: Final = 0x4C445151
# Compressed bytes may be a little more than what they unfold to; headers are counted with it.
ENTRY_BYTES_MAX: Final = DECOMPRESSED_MAX + 1024 * KIB
NS_A_MS: Final = 1_000_000


class EntryType(IntEnum):
    DATA = 1
    TOMBSTONE = 2
    CHECKPOINT = 3


class Level(IntEnum):
    """A priority as ledgerq has it."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


@attrs.frozen(kw_only=True)
class Dialect:
    """What differs. Flags: 0 where the dialect has none. `trailer`: zeros behind the checksum."""

    name: str
    ttl: int
    headers: int
    compressed: int
    priority: int
    encrypted: int
    crc: Crc32
    has_compression_byte: bool
    trailer: int
    header_size: int

    @property
    def known_flags(self) -> int:
        return self.ttl | self.headers | self.compressed | self.priority | self.encrypted


SEED: Final = Dialect(
    name="the seed's dialect", ttl=1, headers=2, compressed=4, priority=8, encrypted=0, crc=IEEE,
    has_compression_byte=False, trailer=0, header_size=0,
)  # fmt: skip
RELEASE: Final = Dialect(
    name="release 1.4.1", ttl=4, headers=8, compressed=1, priority=16, encrypted=2, crc=CASTAGNOLI,
    has_compression_byte=True, trailer=4, header_size=RELEASE_HEADER.size,
)  # fmt: skip
assert SEED.known_flags == 0x0F
assert RELEASE.known_flags == 0x1F
