"""The header of a WAL file: what is wrong with it is named."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.log.walheader import HEADER_SIZE, WalHeader, decode_header
from topics.kernel.errors import Corrupt

HEADER = WalHeader(generation=2, shard=3, first_frame=100, file_id=b"\x01\x02\x03\x04\x05\x06\x07\x08")
U32 = st.integers(0, 2**32 - 1)


def resealed(offset, value):
    body = bytearray(HEADER.encode()[:-8])
    body[offset : offset + len(value)] = value
    return bytes(body) + struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(body)))


@pytest.mark.rule("T2.1", "T0.2")
@given(U32, U32, st.integers(1, 2**64 - 1), st.binary(min_size=8, max_size=8), st.binary(max_size=9))
def test_a_header_comes_back(generation, shard, first_frame, file_id, after):
    header = WalHeader(generation=generation, shard=shard, first_frame=first_frame, file_id=file_id)
    encoded = header.encode()

    assert len(encoded) == HEADER_SIZE
    assert decode_header(encoded + after) == header
    assert decode_header(memoryview(encoded)) == header


@pytest.mark.invariant("I-18")
def test_every_flipped_bit_and_every_cut_is_found():
    encoded = HEADER.encode()
    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match="magic" if bit < 64 else "checksum"):
            WalHeader.decode(damaged)
    for size in range(HEADER_SIZE):
        with pytest.raises(Corrupt, match=f"{size} bytes"):
            WalHeader.decode(encoded[:size])


@pytest.mark.rule("T0.2")
@pytest.mark.parametrize(
    ("offset", "value", "field"),
    [
        (8, b"\x02", "version"),
        (8, b"\x00", "version"),
        (20, b"\x01", "reserved"),
        (24, bytes(8), "first_frame"),
    ],
)
def test_a_header_that_says_the_impossible_is_refused_though_its_checksum_is_right(offset, value, field):
    with pytest.raises(Corrupt) as caught:
        WalHeader.decode(resealed(offset, value))

    assert caught.value.detail["field"] == field
