"""A record of a replicated queue: key, value, producer's timestamp, headers (replication 2.1).

It is four cells in a row and never changes once it has an offset. A peer of a later version may send more of them: they
are kept and hashed like the rest, so that what passes through an older node is not shortened on the way. A value is
never nil, because nil is what a reader gets where there is no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeGuard

from topics.codec.cell import (
    INT_MAX,
    INT_MIN,
    VALUE_DEPTH_MAX,
    Cell,
    decode_cell,
    encode_cell,
)
from topics.crypto.hashing import HASH_SIZE, blake3
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import MIB

RECORD_BYTES_MAX: Final = 1 * MIB
RECORD_SLOTS: Final = 4
RECORD_SLOTS_MAX: Final = 16
_KEY, _VALUE, _TIMESTAMP, _HEADERS = range(RECORD_SLOTS)


class QueueRecord:
    """One immutable record. Two records are the same iff their digests are."""

    __slots__ = ("_digest", "cells")

    def __init__(self, cells: tuple[Cell, ...]) -> None:
        assert is_record(cells)
        self.cells: Final = cells
        self._digest: bytes | None = None

    @property
    def key(self) -> Cell:
        return self.cells[_KEY]

    @property
    def value(self) -> Cell:
        return self.cells[_VALUE]

    @property
    def timestamp(self) -> int:
        timestamp = self.cells[_TIMESTAMP]
        assert is_whole(timestamp)
        return timestamp

    @property
    def headers(self) -> Mapping[Cell, Cell] | None:
        headers = self.cells[_HEADERS]
        return headers if isinstance(headers, Mapping) else None

    @property
    def digest(self) -> bytes:
        """H of the cells, computed once."""
        if self._digest is None:
            self._digest = blake3(encode_cell(self.cells))
        assert len(self._digest) == HASH_SIZE
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, QueueRecord) and self.digest == other.digest)

    def __hash__(self) -> int:
        return int.from_bytes(self.digest[:8], "big")

    def __repr__(self) -> str:
        return f"Record{self.cells!r:.200}"


def make_record(value: Cell, *, key: Cell = None, headers: Cell = None, timestamp: int) -> QueueRecord:
    """The record a producer offers.

    Raises:
        Rejected: a nil value, headers that are no map, what is no cell, or more than `RECORD_BYTES_MAX` bytes.
    """
    if value is None:
        raise invalid("value", "must not be None: None is what a reader gets where there is no record")
    if headers is not None and not isinstance(headers, Mapping):
        raise invalid("headers", f"must be a mapping or None, not {type(headers).__name__}")
    fields = {"key": key, "value": value, "headers": headers}
    for name, cell in fields.items():
        encode_field(name, cell)
    cells = (key, value, timestamp, headers)
    encoded = encode_cell(cells)
    if len(encoded) > RECORD_BYTES_MAX:
        raise Rejected(
            Code.RECORD_TOO_LARGE,
            f"value: the record is {len(encoded)} bytes, at most {RECORD_BYTES_MAX}; offer where it is stored",
            field="value",
        )
    record = QueueRecord(_frozen(cells, encoded))
    assert record.timestamp == timestamp
    return record


def _frozen(cells: tuple[Cell, ...], encoded: bytes) -> tuple[Cell, ...]:
    """The cells as their bytes give them back: the caller may go on changing a mapping that was passed in."""
    if not any(isinstance(cell, tuple | Mapping) for cell in cells):
        return cells
    decoded = decode_cell(encoded)
    assert isinstance(decoded, tuple)
    assert len(decoded) == len(cells)
    return decoded


def encode_field(field: str, cell: Cell) -> bytes:
    """The bytes of what a user passed; raises `Rejected` naming the field if it is no cell."""
    try:
        return encode_cell(cell, depth_max=VALUE_DEPTH_MAX)
    except Rejected as refused:
        raise invalid(field, refused.message.removeprefix("value: ")) from None


def is_record(cell: object) -> TypeGuard[tuple[Cell, ...]]:
    """Whether a foreign cell has the form of a record: at least four slots, a value, a timestamp, headers or none."""
    return (
        isinstance(cell, tuple)
        and RECORD_SLOTS <= len(cell) <= RECORD_SLOTS_MAX
        and cell[_VALUE] is not None
        and is_whole(cell[_TIMESTAMP])
        and (cell[_HEADERS] is None or isinstance(cell[_HEADERS], Mapping))
    )


def is_whole(cell: object) -> TypeGuard[int]:
    """Whether it is an integer that a cell can hold; True is none."""
    return isinstance(cell, int) and not isinstance(cell, bool) and INT_MIN <= cell <= INT_MAX
