"""Where the records of a segment lie: its `.idx` file (storage 5).

20 bytes an entry, entry i for seq first + i, then a trailer:

    offset u32 | len u32 | ts u64 | flags u8 | pad 3 = 0     ...     count u32 | xxh3 u64

`len` leaves the delete byte out and is 0 where a rewrite has dropped the record. The low six bits of `flags` are the
frame's. EXPIRED and DELETED are the two ends of a record, set in place, so the checksum is over the entries with both
cleared (the page speaks of the deleted bit; a record may also expire). It begins with a seed that says whose file it is
(`host.segments.segment_seals`).

Columns are copied as they lie, a million entries in some 30 ms, so the machine must be a little-endian one.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

from topics.codec.log.layout import FLAGS_ALL
from topics.codec.primitives import U32, U64, Buffer, checksum
from topics.kernel.errors import Corrupt

assert array("I", [1]).tobytes() == U32.pack(1), "segments need a little-endian machine"
assert array("Q", [1]).tobytes() == U64.pack(1), "segments need a little-endian machine"

ENTRY: Final = Struct("<IIQB3x")
ENTRY_SIZE: Final = ENTRY.size
assert ENTRY_SIZE == 20
TRAILER: Final = Struct("<IQ")
TRAILER_SIZE: Final = TRAILER.size
assert TRAILER_SIZE == 12

EXPIRED: Final = 64
DELETED: Final = 128
ENDS: Final = EXPIRED | DELETED
assert FLAGS_ALL | ENDS == 0xFF
assert FLAGS_ALL & ENDS == 0


_FRAME_FLAGS_OF: Final = bytes(flags & ~ENDS for flags in range(256))


class IdxColumns:
    """An `.idx` as columns: `offsets` and `lengths` u32, `ts` u64, `flags` a byte a record."""

    __slots__ = ("flags", "lengths", "offsets", "ts")

    def __init__(self, offsets: array[int], lengths: array[int], ts: array[int], flags: bytearray) -> None:
        assert len(offsets) == len(lengths) == len(ts) == len(flags)
        self.offsets = offsets
        self.lengths = lengths
        self.ts = ts
        self.flags = flags

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdxColumns):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # columns are a mutable value

    def first(self, count: int) -> IdxColumns:
        """The first `count` entries."""
        assert count <= len(self)
        return IdxColumns(self.offsets[:count], self.lengths[:count], self.ts[:count], self.flags[:count])

    def skip(self, count: int, ts: int) -> None:
        """`count` records that are not there."""
        assert count >= 0
        if count:
            self.offsets.frombytes(bytes(U32.size * count))
            self.lengths.frombytes(bytes(U32.size * count))
            self.ts.extend(array("Q", [ts]) * count)
            self.flags.extend(bytes(count))


_WORDS: Final = ENTRY_SIZE // U32.size
ENTRY_FLAGS_AT: Final = 16
assert _WORDS == 5


def encode_entries(
    offsets: array[int], lengths: array[int], ts: array[int], flags: bytes | bytearray
) -> bytes:
    """Entries of an `.idx`, without its trailer: columns as in `IdxColumns`."""
    count = len(offsets)
    assert len(lengths) == len(ts) == len(flags) == count
    assert (offsets.typecode, lengths.typecode, ts.typecode) == ("I", "I", "Q")
    words = array("I", bytes(ENTRY_SIZE * count))
    words[0::_WORDS] = offsets
    words[1::_WORDS] = lengths
    halves = array("I", ts.tobytes())
    words[2::_WORDS] = halves[0::2]
    words[3::_WORDS] = halves[1::2]
    entries = bytearray(words.tobytes())
    entries[ENTRY_FLAGS_AT::ENTRY_SIZE] = flags
    assert len(entries) == ENTRY_SIZE * count
    return bytes(entries)


def encode_trailer(entries: Buffer, seed: int) -> bytes:
    """The trailer of these entries, however their ends are set."""
    assert len(entries) % ENTRY_SIZE == 0
    return TRAILER.pack(len(entries) // ENTRY_SIZE, _digest(entries, seed))


def decode_idx(buffer: Buffer, seed: int) -> IdxColumns:
    """The columns of a whole `.idx` file. Raises `Corrupt` naming what is wrong."""
    size = len(buffer) - TRAILER_SIZE
    if size < 0 or size % ENTRY_SIZE:
        raise Corrupt(f"idx: {len(buffer)} bytes are no entries and a trailer", field="size")
    count, crc = TRAILER.unpack_from(buffer, size)
    if count != size // ENTRY_SIZE:
        raise Corrupt(
            f"idx: the trailer counts {count} entries, {size // ENTRY_SIZE} are there", field="count"
        )
    entries = bytes(buffer[:size])
    if _digest(entries, seed) != crc:
        raise Corrupt("idx: the checksum does not match: damaged, or of another segment", field="checksum")
    zeros = bytes(count)
    if any(entries[at::ENTRY_SIZE] != zeros for at in range(ENTRY_FLAGS_AT + 1, ENTRY_SIZE)):
        raise Corrupt("idx: the padding of an entry is not zero", field="pad")
    words = array("I", entries)
    halves = array("I", bytes(U64.size * count))
    halves[0::2] = words[2::_WORDS]
    halves[1::2] = words[3::_WORDS]
    return IdxColumns(
        words[0::_WORDS],
        words[1::_WORDS],
        array("Q", halves.tobytes()),
        bytearray(entries[ENTRY_FLAGS_AT::ENTRY_SIZE]),
    )


def _digest(entries: Buffer, seed: int) -> int:
    """The checksum of entries with both ends of each cleared."""
    covered = bytearray(entries)
    covered[ENTRY_FLAGS_AT::ENTRY_SIZE] = covered[ENTRY_FLAGS_AT::ENTRY_SIZE].translate(_FRAME_FLAGS_OF)
    return checksum(covered, seed)
