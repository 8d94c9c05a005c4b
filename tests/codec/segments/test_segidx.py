"""`.idx` files: columns come back, and every flip but of a record's two ends is found."""

import struct
from array import array

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.segments.segidx import (
    DELETED,
    ENDS,
    ENTRY,
    ENTRY_SIZE,
    EXPIRED,
    TRAILER_SIZE,
    IdxColumns,
    decode_idx,
    encode_entries,
    encode_trailer,
)
from topics.kernel.errors import Corrupt

SEED = 0x5EED
U32 = st.integers(0, 2**32 - 1)
ROW = st.tuples(U32, U32, st.integers(0, 2**64 - 1), st.integers(0, 255))
SAMPLE = [
    (0, 47, 2**40, 4),
    (48, 0, 2**40 + 1, 0),
    (48, 50, 2**63 + 5, 1 | DELETED),
    (99, 60, 2**64 - 1, EXPIRED),
]


def as_columns(rows):
    offsets, lengths, ts, flags = zip(*rows, strict=True) if rows else ((), (), (), ())
    return IdxColumns(array("I", offsets), array("I", lengths), array("Q", ts), bytearray(flags))


def file_of(rows):
    columns = as_columns(rows)
    entries = encode_entries(columns.offsets, columns.lengths, columns.ts, columns.flags)
    return entries + encode_trailer(entries, SEED)


def resealed(entries, count=None):
    covered = bytearray(entries)
    for at in range(16, len(covered), 20):
        covered[at] &= 0x3F
    count = len(entries) // 20 if count is None else count
    return bytes(entries) + struct.pack("<IQ", count, xxhash.xxh3_64_intdigest(bytes(covered), SEED))


@pytest.mark.rule("T5.3", "T0.1")
@given(st.lists(ROW, max_size=20))
def test_columns_come_back(rows):
    data = file_of(rows)
    expected = b"".join(struct.pack("<IIQB3x", *row) for row in rows)

    assert data == resealed(expected)
    assert decode_idx(data, SEED) == decode_idx(memoryview(data), SEED) == as_columns(rows)
    assert [ENTRY.unpack_from(data, at) for at in range(0, len(expected), ENTRY_SIZE)] == rows


@pytest.mark.rule("T5.4")
@given(st.lists(ROW, min_size=1, max_size=8), st.data())
def test_the_checksum_leaves_both_ends_of_a_record_out(rows, data):
    entries = bytearray(file_of(rows)[:-TRAILER_SIZE])
    before = encode_trailer(entries, SEED)
    index = data.draw(st.integers(0, len(rows) - 1))
    entries[index * ENTRY_SIZE + 16] ^= data.draw(st.sampled_from((EXPIRED, DELETED, ENDS)))

    assert encode_trailer(entries, SEED) == before
    assert decode_idx(bytes(entries) + before, SEED).flags[index] == entries[index * ENTRY_SIZE + 16]


@pytest.mark.rule("T5.4")
@pytest.mark.invariant("I-18")
def test_every_flipped_bit_but_an_end_and_every_cut_is_found():
    data = file_of(SAMPLE)
    size = len(data) - TRAILER_SIZE
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit // 8 < size and bit // 8 % ENTRY_SIZE == 16 and bit % 8 >= 6:
            assert decode_idx(damaged, SEED).flags[bit // 8 // ENTRY_SIZE] == damaged[bit // 8]
            continue
        with pytest.raises(Corrupt) as caught:
            decode_idx(damaged, SEED)
        assert caught.value.detail["field"] == ("count" if size <= bit // 8 < size + 4 else "checksum")
    for cut in range(len(data)):
        with pytest.raises(Corrupt):
            decode_idx(data[:cut], SEED)
    for more in range(1, 50):
        with pytest.raises(Corrupt):
            decode_idx(data + bytes(more), SEED)


@pytest.mark.rule("T5.4")
@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "size"),
        (bytes(11), "size"),
        (bytes(13), "size"),
        (bytes(31), "size"),
        (resealed(bytes(40), count=1), "count"),
        (resealed(bytes(40), count=3), "count"),
        (resealed(bytes(40), count=2**32 - 1), "count"),
        (bytes(32), "count"),
        (struct.pack("<IQ", 0, 0), "checksum"),
        (resealed(bytes(17) + b"\x01" + bytes(2)), "pad"),
        (resealed(bytes(18) + b"\x80" + bytes(1)), "pad"),
        (resealed(bytes(20) + bytes(19) + b"\x01"), "pad"),
    ],
    ids=range(12),
)
def test_what_is_wrong_is_named(data, field):
    with pytest.raises(Corrupt, match="idx: ") as caught:
        decode_idx(data, SEED)

    assert caught.value.detail["field"] == field


def test_records_that_are_not_there_are_entries_of_length_0():
    columns = as_columns(SAMPLE[:1])
    columns.skip(0, 5)
    columns.skip(2, 2**50)

    assert columns == as_columns([*SAMPLE[:1], (0, 0, 2**50, 0), (0, 0, 2**50, 0)])
    assert columns != as_columns(SAMPLE)


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=200))
def test_any_bytes_are_columns_or_corrupt(data):
    try:
        found = decode_idx(data, SEED)
    except Corrupt:
        return
    assert len(found) * ENTRY_SIZE + TRAILER_SIZE == len(data)


@pytest.mark.rule("T5.4")
@pytest.mark.parametrize("other", [0, SEED + 1, SEED << 32])
def test_the_file_of_another_segment_fails_its_checksum(other):
    with pytest.raises(Corrupt, match="of another segment"):
        decode_idx(file_of(SAMPLE), other)
