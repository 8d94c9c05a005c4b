"""Canonical cells: one encoding a value, one value an encoding, and an order that a reader can foresee."""

from __future__ import annotations

import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cells import CELLS, KEYS
from topics.codec.cell import (
    CELL_DEPTH_MAX,
    INT_MAX,
    INT_MIN,
    VALUE_DEPTH_MAX,
    CellMap,
    _Open,
    decode_cell,
    digest_of,
    encode_cell,
    is_cell,
)
from topics.crypto.hashing import blake3
from topics.kernel.errors import Corrupt, Rejected

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "cell.bin"


def nested(depth, inner=()):
    cell = inner
    for _ in range(depth - 1):
        cell = (cell,)
    return cell


@pytest.mark.rule("R1.2.1")
@given(CELLS)
def test_a_cell_comes_back_from_its_bytes(cell):
    """And its bytes from it: nothing is lost, and nothing has two spellings."""
    data = encode_cell(cell)
    back = decode_cell(data)

    assert encode_cell(back) == data
    assert back == cell


@pytest.mark.rule("R1.2.1")
@given(CELLS, CELLS)
def test_bytes_say_where_a_cell_ends(one, other):
    """No encoding is the beginning of another, so cells may stand one after another in what is signed."""
    a, b = encode_cell(one), encode_cell(other)

    assert a == b or not (a.startswith(b) or b.startswith(a))


@pytest.mark.rule("R1.2.1", "R1.2.2")
def test_the_format():
    """The bytes of each kind, which are stored and signed, so they never change."""
    assert encode_cell(None).hex() == "01"
    assert encode_cell(False).hex() == "02"
    assert encode_cell(True).hex() == "03"
    assert encode_cell(1).hex() == "048000000000000001"
    assert encode_cell(-1).hex() == "047fffffffffffffff"
    assert encode_cell(1.0).hex() == "05bff0000000000000"
    assert encode_cell(-1.0).hex() == "05400fffffffffffff"
    assert encode_cell("aé\x00").hex() == "0661c3a900ff00"
    assert encode_cell(b"\x00\xff").hex() == "0700ffff00"
    assert encode_cell((1, ())).hex() == "08048000000000000001080000"
    assert encode_cell({"b": 1, "a": None}).hex() == "090661000106620004800000000000000100"


@pytest.mark.rule("R1.2.1")
def test_the_golden_cell_is_read_by_every_version():
    """Signatures and stored states rest on these bytes."""
    cell = (
        (None, False, True), (INT_MIN, -1, 0, 1, INT_MAX), (-math.inf, -1.5, 0.0, 5e-324, math.inf),
        ("", "a\x00é", "\U0001f600"), (b"", b"\x00\xff"), (),
        CellMap([(1, "int"), (1.0, "float"), (True, "bool"), ("k", CellMap([((1, ("x",)), ())]))]),
    )  # fmt: skip

    assert encode_cell(cell) == GOLDEN.read_bytes()
    assert decode_cell(GOLDEN.read_bytes()) == cell


@pytest.mark.rule("R1.2.2", "R13.1")
def test_one_and_one_point_nought_and_true_are_three():
    """Python's dict takes them for one key; a map of cells keeps them apart, in both directions."""
    cells = CellMap([(1, "int"), (1.0, "float"), (True, "bool"), ("1", "text"), (b"1", "bytes")])

    assert len(dict.fromkeys([1, 1.0, True])) == 1, "what a dict does"
    assert len(cells) == 5
    assert [cells[key] for key in (1, 1.0, True)] == ["int", "float", "bool"]
    back = decode_cell(encode_cell(cells))
    assert back == cells
    assert [type(key) for key in back] == [bool, int, float, str, bytes]
    assert len({digest_of(1), digest_of(1.0), digest_of(True)}) == 3
    assert encode_cell((1,)) != encode_cell((True,))


@pytest.mark.rule("R1.2.2")
def test_zero_has_one_sign_and_nan_is_refused():
    """-0.0 is 0.0, and what differs from itself cannot be kept."""
    assert encode_cell(-0.0) == encode_cell(0.0)
    assert math.copysign(1, decode_cell(encode_cell(-0.0))) == 1
    for nan in (math.nan, -math.nan):
        with pytest.raises(Rejected, match="NaN"):
            encode_cell(nan)


@pytest.mark.rule("R1.2.2")
def test_ints_have_64_bits():
    """The ends pass, one more is refused, never wrapped."""
    for value in (INT_MIN, INT_MAX):
        assert decode_cell(encode_cell(value)) == value
    for value in (INT_MIN - 1, INT_MAX + 1, 10**400):
        with pytest.raises(Rejected, match="64-bit"):
            encode_cell(value)


@pytest.mark.rule("R1.2.3")
@given(CELLS)
def test_the_digest_is_blake3_of_the_bytes(cell):
    assert digest_of(cell) == blake3(encode_cell(cell))


@given(st.integers(INT_MIN, INT_MAX), st.integers(INT_MIN, INT_MAX))
def test_ints_sort_as_their_bytes(a, b):
    assert (encode_cell(a) < encode_cell(b)) == (a < b)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_sort_as_their_bytes(a, b):
    assert (encode_cell(a) < encode_cell(b)) == (a < b)


@given(st.binary(), st.binary())
def test_bytes_sort_as_their_bytes(a, b):
    """Zeros inside and shorter ones too."""
    assert (encode_cell(a) < encode_cell(b)) == (a < b)


@given(st.text(), st.text())
def test_text_sorts_by_code_point(a, b):
    assert (encode_cell(a) < encode_cell(b)) == (a < b)


@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_lists_sort_as_lists(a, b):
    """The beginning of a list comes before the list."""
    assert (encode_cell(tuple(a)) < encode_cell(tuple(b))) == (a < b)


@given(st.lists(st.tuples(KEYS, st.integers(0, 2)), max_size=5), st.randoms(use_true_random=False))
def test_a_map_does_not_remember_how_it_was_made(pairs, random):
    """The same pairs in any order are the same map with the same bytes."""
    unique = list(CellMap(pairs).items())
    shuffled = random.sample(unique, len(unique))

    assert encode_cell(CellMap(shuffled)) == encode_cell(CellMap(unique))
    assert CellMap(shuffled) == CellMap(unique)
    assert list(CellMap(shuffled)) == sorted(CellMap(unique), key=encode_cell)


def test_a_map_equals_a_dict_of_the_same_cells():
    """And no other thing; it cannot be a key of a dict."""
    cells = CellMap({"a": 1, "b": (2,)})

    assert cells == {"b": (2,), "a": 1}
    assert cells != {"a": 1}
    assert cells != {"a": 1, "b": [2]}
    assert cells != "a"
    assert cells.get("z") is None
    with pytest.raises(TypeError):
        hash(cells)


@pytest.mark.parametrize(
    "value",
    [
        [1],
        {1},
        object(),
        1j,
        range(3),
        bytearray(b"a"),
        ([],),
        {"a": [1]},
        {"a": object()},
        "\ud800",
        {"\ud800": 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_cell_is_refused(value):
    """Lists and sets can change after they are stored; the others have no canonical bytes."""
    assert is_cell(value) is False
    with pytest.raises(Rejected, match="value: "):
        encode_cell(value)


def test_a_key_holds_no_map():
    """Else its bytes would be kept once for each map around it."""
    for key in (CellMap(), (CellMap(),), ((1, (CellMap([(1, 1)]),)),)):
        with pytest.raises(Rejected, match="key of a map"):
            encode_cell((_Pairs([(key, 1)]),))
        with pytest.raises(Rejected, match="key of a map"):
            encode_cell(CellMap([(key, 1)]))
    assert is_cell(CellMap([((1, (2,)), CellMap([(3, CellMap())]))])) is True
    with pytest.raises(Corrupt, match="key of a map"):
        decode_cell(bytes.fromhex("09 0809 00 00 01 00"))


class _Pairs(CellMap):
    """A map that hands its pairs out as they are."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def items(self):
        return self.pairs


def test_a_map_with_one_key_twice_is_refused():
    """However its mapping type came to it."""
    with pytest.raises(Rejected, match="twice"):
        encode_cell(_Pairs([("a", 1), ("a", 2)]))


def test_depth_is_bounded_both_ways():
    """The maximum passes, one more is refused; a user's value leaves room for what is around it."""
    deepest = encode_cell(nested(CELL_DEPTH_MAX))

    assert encode_cell(decode_cell(deepest)) == deepest
    with pytest.raises(Rejected, match="deeper"):
        encode_cell(nested(CELL_DEPTH_MAX + 1))
    with pytest.raises(Corrupt, match="deeper"):
        decode_cell(b"\x08" * (CELL_DEPTH_MAX + 1) + b"\x00" * (CELL_DEPTH_MAX + 1))
    with pytest.raises(Corrupt, match="deeper"):
        decode_cell(b"\x08" * 1_000_000)
    assert is_cell(nested(VALUE_DEPTH_MAX)) is True
    assert is_cell(nested(VALUE_DEPTH_MAX + 1)) is False


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "end inside"),
        ("00", "begins no cell"),
        ("0a", "begins no cell"),
        ("ff", "begins no cell"),
        ("0101", "after the cell"),
        ("04800000", "cut short"),
        ("0500", "cut short"),
        ("0561", "cut short"),
        ("0661", "without an end"),
        ("066100ff", "without an end"),
        ("06c300", "not UTF-8"),
        ("06eda08000", "not UTF-8"),
        ("08", "end inside"),
        ("0801", "end inside"),
        ("090100", "without a value"),
        ("0901", "end inside"),
        ("09030102010100", "not in order"),
        ("090101010100", "not in order"),
        ("05fff8000000000000", "no canonical"),
        ("057fffffffffffffff", "no canonical"),
        ("050007ffffffffffff", "no canonical"),
    ],
)
def test_damaged_bytes_are_no_cell(data, why):
    """Cut, trailing, unsorted, NaN, a negative zero: each says what is wrong and where."""
    with pytest.raises(Corrupt, match=why) as caught:
        decode_cell(bytes.fromhex(data))
    assert isinstance(caught.value.detail["offset"], int)


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=40))
def test_any_bytes_are_the_encoding_of_one_cell_or_are_refused(data):
    """Nothing else is raised, and what decodes encodes to the very bytes."""
    try:
        cell = decode_cell(data)
    except Corrupt:
        return
    assert encode_cell(cell) == data


@given(CELLS, st.data())
def test_one_changed_byte_is_another_cell_or_none(cell, data):
    """Never the same one: an encoding has no slack."""
    encoded = bytearray(encode_cell(cell))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        other = decode_cell(bytes(encoded))
    except Corrupt:
        return
    assert encode_cell(other) == bytes(encoded) != encode_cell(cell)


def test_empty_maps_that_are_read_are_one():
    """Two bytes each, and a peer may send millions."""
    first, second = decode_cell(encode_cell(({}, {})))

    assert first is second
    assert dict(first) == {}


@pytest.mark.parametrize(
    "outer", [(1,), CellMap({"k": 1}), CellMap([((1,), 1)])], ids=["list", "map", "keyed"]
)
def test_what_is_nested_is_not_copied_once_a_level(outer):
    """A megabyte under 250 lists or maps, as a peer may send it, is written once: its pieces go to the outermost."""
    around = _Open(outer)

    assert _Open((2,), _Open((3,), around)).into is around.into
