"""The `.del` file of a cold segment: what it says comes back, and what is wrong with it is named."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.segments.segdel import ENTRIES_MAX, EndedRecords, decode_del, encode_del
from topics.codec.segments.segidx import DELETED, ENDS, EXPIRED
from topics.kernel.errors import Corrupt

SEED = 0x5EED
SAMPLE = encode_del(EndedRecords(7, 3, bytes((0, DELETED, DELETED, EXPIRED, 0))), SEED)


def spelled(*runs, magic=b"TOPSDEL\0", version=1, reserved=0, topic_id=7, first_seq=3, entries=5, count=None):
    count = len(runs) if count is None else count
    head = struct.pack("<8sIIQQII", magic, version, reserved, topic_id, first_seq, entries, count)
    covered = head + b"".join(struct.pack("<IIB3s", *run, b"\0\0\0") for run in runs)
    return covered + struct.pack("<Q", xxhash.xxh3_64_intdigest(covered, SEED))


@pytest.mark.rule("T5.8", "T0.2")
@given(
    st.integers(1, 2**64 - 1),
    st.integers(1, 2**64 - 1),
    st.lists(st.sampled_from((0, DELETED, EXPIRED, ENDS))).map(bytes),
)
def test_what_ended_comes_back(topic_id, first_seq, ends):
    ended = EndedRecords(topic_id, first_seq, ends)

    assert decode_del(encode_del(ended, SEED), SEED) == ended
    assert decode_del(memoryview(bytearray(encode_del(ended, SEED))), SEED) == ended


@pytest.mark.rule("T5.8", "T0.1")
def test_its_spelling():
    assert spelled((1, 2, 128), (3, 1, 64)) == SAMPLE


@pytest.mark.rule("T5.8")
@pytest.mark.invariant("I-18")
def test_every_flipped_bit_every_cut_and_every_byte_too_many_is_found():
    for bit in range(len(SAMPLE) * 8):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_del(damaged, SEED)
    for size in range(len(SAMPLE)):
        with pytest.raises(Corrupt, match="bytes"):
            decode_del(SAMPLE[:size], SEED)
    with pytest.raises(Corrupt, match="do not fill"):
        decode_del(SAMPLE + b"\0", SEED)


@pytest.mark.rule("T5.8", "T0.2")
@pytest.mark.parametrize(
    ("data", "field"),
    [
        (spelled(magic=b"TOPSNAP\0"), "magic"),
        (spelled(version=2), "version"),
        (spelled(reserved=1), "version"),
        (spelled(count=1), "length"),
        (spelled(topic_id=0), "head"),
        (spelled(first_seq=0), "head"),
        (spelled((0, 1, 64), entries=0), "head"),
        (spelled(entries=ENTRIES_MAX + 1), "head"),
        (spelled((0, 6, 64)), "runs"),
        (spelled((0, 0, 64)), "runs"),
        (spelled((1, 1, 64), (0, 1, 64)), "runs"),
        (spelled((0, 1, 64), (1, 1, 64)), "runs"),
        (spelled((0, 1, 63)), "ends"),
        (spelled((0, 1, 0)), "ends"),
    ],
)
def test_what_is_wrong_is_named(data, field):
    with pytest.raises(Corrupt) as caught:
        decode_del(data, SEED)

    assert caught.value.detail["field"] == field


def test_more_entries_than_the_segment_has_are_refused_before_room_is_made_for_them():
    """A head may say ten million, with a checksum to it: whoever knows the segment knows better."""
    data = encode_del(EndedRecords(1, 1, bytes(999) + bytes((DELETED,))), SEED)
    assert len(decode_del(data, SEED, entries_max=1000).ends) == 1000
    with pytest.raises(Corrupt, match="1 runs in 1000 entries"):
        decode_del(data, SEED, entries_max=999)


@pytest.mark.rule("T5.4")
@pytest.mark.parametrize("other", [0, SEED + 1, SEED << 32])
def test_the_file_of_another_segment_fails_its_checksum(other):
    with pytest.raises(Corrupt, match="of another segment"):
        decode_del(SAMPLE, other)
