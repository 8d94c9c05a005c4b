r"""The container of a metadata snapshot: which one it is, and that it is whole (storage 1 and 5).

    magic "TOPSNAP\0" | version u32 | reserved u32 = 0 | number u64 | body_len u64 | body | xxh3 u64

The checksum covers everything before it. A snapshot is a file of its own that is replaced as a whole, so a byte too
many is damage as much as a byte too few. What the body says is not known here.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from topics.codec.primitives import U64, Buffer, checksum
from topics.kernel.errors import Corrupt
from topics.kernel.limits import SNAPSHOT_BYTES_MAX, U64_MAX

SNAPSHOT_MAGIC: Final = b"TOPSNAP\0"
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEAD: Final = Struct("<8sIIQQ")
assert SNAPSHOT_HEAD.size == 32
SNAPSHOT_OVERHEAD: Final = SNAPSHOT_HEAD.size + U64.size


def encode_snapshot(number: int, body: Buffer) -> bytes:
    """The snapshot file of this number; numbers count from 1."""
    assert 0 < number <= U64_MAX
    head = SNAPSHOT_HEAD.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, 0, number, len(body))
    covered = b"".join((head, body))
    return covered + U64.pack(checksum(covered))


def decode_snapshot(buffer: Buffer) -> tuple[int, bytes]:
    """The number and the body of a whole snapshot file. Raises `Corrupt` naming what is wrong."""
    view = memoryview(buffer)
    check_head(view, len(view))
    _, version, reserved, number, _ = SNAPSHOT_HEAD.unpack_from(view)
    end = len(view) - U64.size
    if checksum(view[:end]) != U64.unpack_from(view, end)[0]:
        raise _corrupt("checksum", "the checksum does not match")
    if version != SNAPSHOT_VERSION:
        raise _corrupt("version", f"version {version} is not {SNAPSHOT_VERSION}")
    if reserved != 0:
        raise _corrupt("reserved", "the reserved field is not zero")
    if number == 0:
        raise _corrupt("number", "snapshots count from 1")
    return number, bytes(view[SNAPSHOT_HEAD.size : end])


def check_head(head: Buffer, size: int) -> None:
    """Whether a file of that size may be a snapshot, by its first bytes: nothing else is read. Raises `Corrupt`."""
    if size < SNAPSHOT_OVERHEAD or len(head) < SNAPSHOT_HEAD.size:
        raise _corrupt("length", f"{size} bytes are less than its {SNAPSHOT_OVERHEAD}")
    magic, _, _, _, body_len = SNAPSHOT_HEAD.unpack_from(head)
    if magic != SNAPSHOT_MAGIC:
        raise _corrupt("magic", "the magic is wrong, this is no snapshot")
    if size > SNAPSHOT_BYTES_MAX:
        raise _corrupt("length", f"{size} bytes are more than the limit of {SNAPSHOT_BYTES_MAX}")
    if body_len != size - SNAPSHOT_OVERHEAD:
        raise _corrupt("length", f"a body of {body_len} bytes does not fill {size} bytes")


def _corrupt(field: str, what: str) -> Corrupt:
    return Corrupt(f"snapshot: {what}", field=field)
