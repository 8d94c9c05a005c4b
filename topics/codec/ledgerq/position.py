"""How far a queue of ledgerq is written and read: `metadata.json` in the seed's dialect, `metadata.dat` in the
release's.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from topics.codec.ledgerq.layout import RELEASE, Dialect
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U64_MAX

SEED_METADATA: Final = "metadata.json"
RELEASE_METADATA: Final = "metadata.dat"
# By the files: the page that draws three u64 is wrong (decision 86).
_RELEASE: Final = Struct("<IQQI")
assert _RELEASE.size == 24
_VERSION: Final = 1


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """`next_id`: of the next message. `read_id`: of the first that is not consumed. Times in seconds."""

    version: int = _VERSION
    next_id: int = msgspec.field(name="next_message_id")
    read_id: int = msgspec.field(name="read_message_id")
    created_s: int = msgspec.field(name="created_at", default=0)
    updated_s: int = msgspec.field(name="updated_at", default=0)
    segments: int = msgspec.field(name="segment_count", default=0)


_decode: Final = msgspec.json.Decoder(Position).decode


def decode_position(data: bytes, dialect: Dialect) -> Position:
    """Raises `Corrupt`."""
    try:
        if dialect is RELEASE:
            if len(data) != _RELEASE.size:
                raise Corrupt(f"it has {len(data)} bytes, not {_RELEASE.size}")
            version, next_id, read_id, _ = _RELEASE.unpack(data)
            found = Position(version=version, next_id=next_id, read_id=read_id)
        else:
            found = _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(f"it is no metadata: {error}") from None
    if found.version != _VERSION:
        raise Corrupt(f"version {found.version} is not known")
    if not 1 <= found.read_id <= found.next_id <= U64_MAX:
        raise Corrupt(f"the next id {found.next_id} and the first unread one {found.read_id} cannot be")
    return found


def encode_position(position: Position) -> bytes:
    """As the seed's dialect has it."""
    assert 1 <= position.read_id <= position.next_id
    return msgspec.json.format(msgspec.json.encode(position), indent=2)
