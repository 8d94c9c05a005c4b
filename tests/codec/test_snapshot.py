"""The container of a snapshot: what is wrong with it is named."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.snapshot import SNAPSHOT_OVERHEAD, decode_snapshot, encode_snapshot
from topics.kernel.errors import Corrupt

SAMPLE = encode_snapshot(3, b"state")


def spelled(*, version=1, reserved=0, number=1, size=2, body=b"{}"):
    covered = struct.pack("<8sIIQQ", b"TOPSNAP\0", version, reserved, number, size) + body
    return covered + struct.pack("<Q", xxhash.xxh3_64_intdigest(covered))


@pytest.mark.rule("T1.4", "T0.2")
@given(st.integers(1, 2**64 - 1), st.binary(max_size=99))
def test_a_snapshot_comes_back(number, body):
    encoded = encode_snapshot(number, body)

    assert encoded == spelled(number=number, size=len(body), body=body)
    assert len(encoded) == len(body) + SNAPSHOT_OVERHEAD
    assert decode_snapshot(encoded) == (number, body)
    assert decode_snapshot(memoryview(bytearray(encoded))) == (number, body)


@pytest.mark.rule("T1.4")
@pytest.mark.invariant("I-18")
def test_every_flipped_bit_every_cut_and_every_byte_too_many_is_found():
    for bit in range(len(SAMPLE) * 8):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt) as caught:
            decode_snapshot(damaged)
        field = "magic" if bit < 64 else "length" if 24 <= bit // 8 < 32 else "checksum"
        assert caught.value.detail["field"] == field
    for size in range(len(SAMPLE)):
        with pytest.raises(Corrupt, match="bytes"):
            decode_snapshot(SAMPLE[:size])
    for more in (b"\0", SAMPLE, bytes(4096)):
        with pytest.raises(Corrupt, match="does not fill"):
            decode_snapshot(SAMPLE + more)


@pytest.mark.rule("T0.2")
@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "length"),
        (spelled(size=3), "length"),
        (spelled(size=2**64 - 1), "length"),
        (spelled(version=2), "version"),
        (spelled(version=0), "version"),
        (spelled(reserved=1), "reserved"),
        (spelled(number=0), "number"),
    ],
    ids=range(7),
)
def test_a_snapshot_that_says_the_impossible_is_refused_though_its_checksum_is_right(data, field):
    with pytest.raises(Corrupt, match="snapshot: ") as caught:
        decode_snapshot(data)

    assert caught.value.detail["field"] == field
