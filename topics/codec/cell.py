"""Cells: the values replication speaks of, and the one way to write each (replication 1.2).

A cell is nil, a bool, a 64-bit int, a float, text, bytes, a list or a map of cells. Its canonical bytes are what is
hashed, signed, stored and compared: two cells are the same iff their bytes are. So 1, 1.0 and True are three cells, 0.0
and -0.0 one, and NaN is none.

The bytes sort as the values do. A tag says the kind; numbers are written so that bytes compare as they do; text and
bytes end in a zero, and a zero inside is followed by FF; a list ends in a zero, which sorts before every tag. A tie
that is broken by "the larger canonical bytes" is thus broken by the larger number or the later text.

    00 end   01 nil   02 false   03 true   04 int: u64 big-endian, value + 2^63
    05 float: IEEE 754 big-endian, sign bit flipped, all bits flipped if negative
    06 text in UTF-8, ended   07 bytes, ended   08 list: cells, end   09 map: key and value by key, end

Maps are kept as `CellMap`, found by the bytes of their keys: a dict would take 1, 1.0 and True for one key. A key is no
map and holds none, so the bytes of keys are kept once, not once a level. Neither direction recurses; depth is bounded.
Encoding refuses (`Rejected`) what the caller passed, decoding (`Corrupt`) what was read. What is read takes up to 85
times its bytes in memory (maps of one nil), so bound what a peer may send.
"""

from __future__ import annotations

import re
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping
from itertools import pairwise
from struct import Struct
from typing import Final, TypeAlias

from topics.crypto.hashing import blake3
from topics.kernel.errors import Corrupt, Rejected, invalid

Cell: TypeAlias = "bool | int | float | str | bytes | tuple[Cell, ...] | Mapping[Cell, Cell] | None"

CELL_DEPTH_MAX: Final = 256  # of what is written: a state, with the values of users in it
VALUE_DEPTH_MAX: Final = 128  # of what a user stores, so that it fits wherever it is merged to

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_END: Final = b"\x00"
_NIL: Final = b"\x01"
_FALSE: Final = b"\x02"
_TRUE: Final = b"\x03"
_INT, _FLOAT, _TEXT, _BYTES, _LIST, _MAP = 4, 5, 6, 7, 8, 9
_LIST_BEGINS, _MAP_BEGINS = bytes((_LIST,)), bytes((_MAP,))
_TAGGED: Final = Struct(">BQ")  # tag and ordered number
_NUMBER: Final = Struct(">Q")
_DOUBLE: Final = Struct(">d")
assert (_TAGGED.size, _NUMBER.size, _DOUBLE.size) == (9, 8, 8)
_HIGH_BIT: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1
_STOP: Final = re.compile(rb"\x00(?!\xff)")  # the zero that ends text or bytes


class CellMap(Mapping["Cell", "Cell"]):
    """An immutable map, ordered and found by the canonical bytes of its keys.

    It equals any mapping of the same cells. Like every map of cells it has no hash: index it by `digest_of`.
    """

    __slots__ = ("_pairs",)

    def __init__(self, items: Mapping[Cell, Cell] | Iterable[tuple[Cell, Cell]] = ()) -> None:
        pairs = items.items() if isinstance(items, Mapping) else items
        found = {encode_cell(key): (key, value) for key, value in pairs}
        self._pairs: dict[bytes, tuple[Cell, Cell]] = dict(sorted(found.items()))

    @classmethod
    def of_ordered(cls, pairs: dict[bytes, tuple[Cell, Cell]]) -> CellMap:
        """The map of pairs under the bytes of their keys, in the order of these. The dict now belongs to the map."""
        assert len(pairs) < 2 or next(iter(pairs)) < next(reversed(pairs))
        made = cls.__new__(cls)
        object.__setattr__(made, "_pairs", pairs)
        return made

    def scalar_keys(self) -> list[bytes] | None:
        """The bytes of the keys in their order; None if one of them is a list or map."""
        keys = list(self._pairs)
        return keys if not keys or keys[-1][0] < _LIST else None

    def items(self) -> ItemsView[Cell, Cell]:
        return _CellItems(self)

    def pairs(self) -> Collection[tuple[Cell, Cell]]:
        """Keys with their values, in the order of the keys' bytes."""
        return self._pairs.values()

    def __getitem__(self, key: Cell) -> Cell:
        return self._pairs[encode_cell(key)][1]

    def __iter__(self) -> Iterator[Cell]:
        return iter([key for key, _ in self._pairs.values()])

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        try:
            return encode_cell(self) == encode_cell(other)
        except Rejected:
            return False  # the other one is no cell

    __hash__ = None  # type: ignore[assignment]  # what mypy expects of every object, Mapping has taken back already

    def __repr__(self) -> str:
        return f"CellMap({list(self._pairs.values())!r:.200})"


_EMPTY: Final = CellMap()  # one for all that are read: each would take 28 times its bytes


class _CellItems(ItemsView["Cell", "Cell"]):
    """The pairs of a map, without looking each key up again."""

    __slots__ = ()
    _mapping: CellMap

    def __iter__(self) -> Iterator[tuple[Cell, Cell]]:
        return iter(self._mapping.pairs())


def digest_of(value: Cell) -> bytes:
    """H(value): BLAKE3 of the canonical bytes."""
    return blake3(encode_cell(value))


def is_cell(value: object) -> bool:
    """Whether a user may store the value as it is: a cell, not deeper than `VALUE_DEPTH_MAX`."""
    try:
        encode_cell(value, depth_max=VALUE_DEPTH_MAX)  # type: ignore[arg-type]  # whether it is one is the question
    except Rejected:
        return False
    return True


# --- writing


class _Open:
    """A list or map that is being written: what is left of it, and where its bytes go.

    Pieces go straight to where those of the list around it go, so that bytes are not copied once a level. A `CellMap`
    knows the order of its keys, so it does the same; of another map the cells are kept apart until they can be sorted.
    """

    __slots__ = ("in_key", "into", "keys", "left", "on_key", "out", "whole")

    def __init__(self, value: Cell, parent: _Open | None = None) -> None:
        self.in_key: bool = parent is not None and parent.holds_keys()
        self.on_key: bool | None = (
            None  # whether `left` gave a key last, if it gives both and `out` does not tell
        )
        self.keys: Iterator[bytes] | None = None  # what to write before each cell
        self.whole: list[bytes] | None = None  # takes all of this as one piece
        self.into: list[bytes] = []
        if parent is not None:
            if parent.out is parent.into:
                self.into = parent.into
            else:
                self.whole = parent.out
        self.out: list[bytes] = self.into
        self.left: Iterator[Cell]
        if isinstance(value, tuple):
            self.into.append(_LIST_BEGINS)
            self.left = iter(value)
        elif isinstance(value, Mapping):
            if self.in_key:
                raise invalid("value", "a key of a map is a map or holds one; use a tuple of pairs")
            self.into.append(_MAP_BEGINS)
            self._begin(value)
        else:
            kinds = "None, bool, int, float, str, bytes, tuples and mappings"
            raise invalid("value", f"{type(value).__name__} is no cell; cells are {kinds}")

    def _begin(self, value: Mapping[Cell, Cell]) -> None:
        if type(value) is not CellMap:
            self.out = []
            self.left = (cell for pair in value.items() for cell in pair)
        elif (keys := value.scalar_keys()) is not None:
            self.keys, self.left = iter(keys), iter([cell for _, cell in value.pairs()])
        else:  # a key that is a list may be too deep here, or hold a map
            self.left = self._keys_and_values(value)

    def _keys_and_values(self, value: CellMap) -> Iterator[Cell]:
        for key, cell in value.pairs():
            self.on_key = True
            yield key
            self.on_key = False
            yield cell

    def holds_keys(self) -> bool:
        """Whether the cell that `left` gave last is a key, or part of one."""
        if self.in_key or self.on_key is not None:
            return self.in_key or self.on_key is True
        return self.out is not self.into and len(self.out) % 2 == 0

    def close(self) -> list[bytes]:
        """Write the end, and give back where the pieces went."""
        if self.out is not self.into:
            self.into += self._sorted()
        self.into.append(_END)
        if self.whole is not None:
            self.whole.append(b"".join(self.into))
        return self.into

    def _sorted(self) -> Iterator[bytes]:
        parts = self.out
        assert len(parts) % 2 == 0
        pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
        for (key, _), (following, _) in pairwise(pairs):
            if key == following:
                raise invalid("value", "a map has one key twice")
        return (part for pair in pairs for part in pair)


def encode_cell(value: Cell, *, depth_max: int = CELL_DEPTH_MAX) -> bytes:
    """canon(value). Raises `Rejected` if it is no cell, or nested deeper than `depth_max` lists and maps."""
    assert depth_max >= 1
    encoded = _scalar(value)
    if encoded is not None:
        return encoded
    stack = [_Open(value)]
    while True:
        top = stack[-1]
        out, keys = top.out, top.keys
        for child in top.left:
            if keys is not None:
                out.append(next(keys))
            encoded = _scalar(child)
            if encoded is None:
                if len(stack) == depth_max:
                    raise invalid("value", f"nested deeper than {depth_max} lists and maps")
                stack.append(_Open(child, top))
                break
            out.append(encoded)
        else:
            pieces = stack.pop().close()
            assert pieces[-1] == _END
            if not stack:
                return b"".join(pieces)


def _scalar(value: Cell) -> bytes | None:
    """The bytes of what holds no other cell; None for what does, or is no cell at all."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return b"\x07" + value.replace(b"\x00", b"\x00\xff") + _END
    if value is None:
        return _NIL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            bits = value.bit_length()
            raise invalid(
                "value", f"an int of {bits} bits does not fit a signed 64-bit integer; store it as text"
            )
        return _TAGGED.pack(_INT, value + _HIGH_BIT)
    if isinstance(value, float):
        return _TAGGED.pack(_FLOAT, _ordered(value))
    return None


def _text(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise invalid("value", "text with a lone surrogate has no UTF-8; store it as bytes") from None
    return b"\x06" + data.replace(b"\x00", b"\x00\xff") + _END


def _ordered(value: float) -> int:
    """The double as an unsigned integer that sorts as it does."""
    if value != value:  # noqa: PLR0124  # only NaN differs from itself
        raise invalid("value", "NaN is not equal to itself, so it cannot be stored; use None")
    bits: int = _NUMBER.unpack(_DOUBLE.pack(value + 0.0))[0]  # -0.0 + 0.0 is 0.0
    ordered = bits ^ _ALL_BITS if bits & _HIGH_BIT else bits | _HIGH_BIT
    assert 0 < ordered < _ALL_BITS  # the ends would be NaN
    return ordered


# --- reading


class _Closing:
    """A list or map that is being read. Of a map, `key` is what waits for its value: bytes and cell."""

    __slots__ = ("cells", "in_key", "key", "pairs", "start", "tag")

    def __init__(self, tag: int, start: int, parent: _Closing | None) -> None:
        self.tag = tag
        self.start = start
        self.in_key = parent is not None and parent.holds_keys()
        if tag == _MAP and self.in_key:
            raise _damaged(start, "a key of a map is a map or holds one")
        self.cells: list[Cell] = []
        self.pairs: dict[bytes, tuple[Cell, Cell]] = {}
        self.key: tuple[bytes, Cell] | None = None

    def holds_keys(self) -> bool:
        return self.in_key or (self.tag == _MAP and self.key is None)

    def add(self, cell: Cell, data: bytes, start: int, stop: int) -> None:
        """Take the cell that was read from [start, stop)."""
        assert start < stop <= len(data)
        if self.tag == _LIST:
            self.cells.append(cell)
        elif self.key is None:
            encoded = data[start:stop]
            if self.pairs and encoded <= next(reversed(self.pairs)):
                raise _damaged(start, "the keys of a map are not in order")
            self.key = (encoded, cell)
        else:
            encoded, key = self.key
            self.pairs[encoded] = (key, cell)
            self.key = None

    def close(self, at: int) -> Cell:
        if self.tag == _LIST:
            return tuple(self.cells)
        if self.key is not None:
            raise _damaged(at, "a key without a value")
        return CellMap.of_ordered(self.pairs) if self.pairs else _EMPTY


def decode_cell(data: bytes, *, depth_max: int = CELL_DEPTH_MAX) -> Cell:
    """The cell whose canonical bytes these are. Raises `Corrupt` for anything else, a second spelling included."""
    assert depth_max >= 1
    stack: list[_Closing] = []
    at = 0
    while True:
        start = at
        if at >= len(data):
            raise _damaged(at, "the bytes end inside a cell")
        tag = data[at]
        if tag in (_LIST, _MAP):
            if len(stack) == depth_max:
                raise _damaged(at, f"nested deeper than {depth_max} lists and maps")
            stack.append(_Closing(tag, start, stack[-1] if stack else None))
            at += 1
            continue
        cell: Cell
        if tag == 0 and stack:
            at += 1
            closed = stack.pop()
            start = closed.start
            cell = closed.close(at)
        else:
            cell, at = _read_scalar(data, at)
            assert start < at <= len(data)
        if not stack:
            if at != len(data):
                raise _damaged(at, "bytes after the cell")
            return cell
        stack[-1].add(cell, data, start, at)


def _read_scalar(data: bytes, at: int) -> tuple[Cell, int]:
    tag = data[at]
    if tag in (1, 2, 3):
        return (None, False, True)[tag - 1], at + 1
    if tag in (_INT, _FLOAT):
        stop = at + _TAGGED.size
        if stop > len(data):
            raise _damaged(at, "a number is cut short")
        number: int = _NUMBER.unpack_from(data, at + 1)[0]
        return (number - _HIGH_BIT if tag == _INT else _double(number, at)), stop
    if tag in (_TEXT, _BYTES):
        end = _STOP.search(data, at + 1)
        if end is None:
            raise _damaged(at, "text or bytes without an end")
        raw = data[at + 1 : end.start()].replace(b"\x00\xff", b"\x00")
        return (raw if tag == _BYTES else _utf8(raw, at)), end.end()
    raise _damaged(at, f"{tag:#04x} begins no cell")


def _double(number: int, at: int) -> float:
    assert 0 <= number <= _ALL_BITS
    bits = number ^ _HIGH_BIT if number & _HIGH_BIT else number ^ _ALL_BITS
    value: float = _DOUBLE.unpack(_NUMBER.pack(bits))[0]
    if value != value or bits == _HIGH_BIT:  # noqa: PLR0124  # only NaN differs from itself; the bits are those of -0.0
        raise _damaged(at, "NaN and -0.0 have no canonical bytes")
    return value


def _utf8(raw: bytes, at: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _damaged(at, "text that is not UTF-8") from None


def _damaged(at: int, why: str) -> Corrupt:
    assert at >= 0
    return Corrupt(f"cell at offset {at}: {why}", offset=at)
