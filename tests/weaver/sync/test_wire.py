"""Messages round-trip, have one encoding each, and nonsense is refused in words before anything is allocated for it."""

from __future__ import annotations

import struct
import tracemalloc

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.errors import Rejected
from topics.weaver.model.envelope import Envelope
from topics.weaver.store.witness import Witness
from topics.weaver.sync.limits import FETCH_MAX, LISTING_MAX, MESSAGE_MAX, PARTS_MAX, REASON_MAX
from topics.weaver.sync.messages import (
    BootstrapBatch,
    BootstrapRequest,
    ChainReply,
    ChainRequest,
    Ending,
    Fetch,
    FetchReply,
    FrontierTips,
    Gossip,
    Hello,
    Join,
    ListedHash,
    NeedsSnapshot,
    RangeDone,
    RangeFingerprint,
    RangeItemsReply,
    RangeItemsRequest,
    Ranges,
    Refusal,
    SnapshotPart,
    SnapshotRequest,
    SyncDone,
    Welcome,
)
from topics.weaver.sync.ranges import FULL, HashRange, Scheme
from topics.weaver.sync.wire import VERSION, decode, encode

hashes = st.binary(min_size=32, max_size=32)
u64 = st.integers(0, 2**64 - 1)
ranges = st.builds(HashRange, hashes, st.none() | hashes).filter(lambda over: not over.is_empty)
envelopes = st.builds(Envelope, st.binary(max_size=300), st.binary(min_size=64, max_size=64))
records = st.builds(
    Witness, st.binary(min_size=16, max_size=16), hashes, u64, hashes, st.binary(min_size=64, max_size=64)
)
store_ids = st.binary(min_size=16, max_size=16)


@st.composite
def listings(draw, kind):
    over = draw(ranges)
    inside = sorted(name for name in draw(st.sets(hashes, max_size=8)) if over.holds(name))
    return kind(over, tuple(ListedHash(name, draw(u64)) for name in inside))


parts = st.one_of(
    st.builds(RangeDone, ranges),
    st.builds(RangeFingerprint, ranges, hashes, u64),
    listings(RangeItemsRequest),
    listings(RangeItemsReply),
)


def tuples(of, most=5):
    return st.lists(of, max_size=most).map(tuple)


messages = st.one_of(
    st.builds(Hello, store_ids, st.sampled_from(Scheme), hashes),
    st.dictionaries(hashes, hashes, max_size=5).map(lambda tips: FrontierTips(tuple(sorted(tips.items())))),
    st.builds(Ranges, tuples(parts)),
    st.builds(Fetch, tuples(hashes)),
    st.builds(FetchReply, tuples(envelopes), st.booleans()),
    st.just(SyncDone()),
    st.just(NeedsSnapshot()),
    st.builds(ChainRequest, hashes, hashes),
    st.builds(ChainReply, tuples(envelopes), st.sampled_from(Ending)),
    st.builds(BootstrapRequest, u64, st.integers(0, 2**32 - 1)),
    st.builds(BootstrapBatch, tuples(records), tuples(envelopes), u64, st.booleans()),
    st.builds(Gossip, envelopes),
    st.builds(Join, store_ids, hashes, hashes, st.binary(min_size=64, max_size=64)),
    st.builds(Welcome, store_ids),
    st.builds(Refusal, st.text(max_size=60)),
    st.builds(SnapshotRequest, u64),
    st.builds(SnapshotPart, u64, st.binary(max_size=300)),
)


@given(messages)
def test_every_message_comes_back_as_it_was(message):
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_every_cut_and_every_extra_byte_is_refused(message, data):
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(Rejected):
        decode(whole[:cut])
    with pytest.raises(Rejected, match="behind its end"):
        decode(whole + b"\x00")


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_with_this_encoding_or_refused(data):
    try:
        message = decode(bytes((VERSION,)) + data)
    except Rejected:
        return
    assert encode(message) == bytes((VERSION,)) + data


def listing(*names: bytes, over: HashRange = FULL) -> bytes:
    """A request with these hashes as they are, in whatever order."""
    head = bytes((VERSION, 3)) + struct.pack("<I", 1) + b"\x02" + over.start + bytes((over.stop is not None,))
    listed = b"".join(name + struct.pack("<Q", 1) for name in names)
    return head + (over.stop or b"") + struct.pack("<I", len(names)) + listed


LOW, HIGH = b"\x01" * 32, b"\x02" * 32


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (b"\x02\x06", "version 1"),
        (b"\x01\x00", "0 is unknown"),
        (b"\x01\x63", "99 is unknown"),
        (listing(HIGH, LOW), "must ascend"),
        (listing(LOW, LOW), "must ascend"),
        (listing(LOW, over=HashRange(HIGH, None)), "outside their range"),
        (listing(HIGH, over=HashRange(LOW, HIGH)), "outside their range"),
        (b"\x01\x03" + struct.pack("<I", 1) + b"\x00" + HIGH + b"\x01" + LOW, "holds nothing"),
        (b"\x01\x03" + struct.pack("<I", 1) + b"\x00" + HIGH + b"\x02" + LOW, "0 or 1, not 2"),
        (b"\x01\x03" + struct.pack("<I", 1) + b"\x09" + HIGH + b"\x00" + LOW, "part: 9 is unknown"),
        (b"\x01\x03" + struct.pack("<I", PARTS_MAX + 1), f"at most {PARTS_MAX}"),
        (b"\x01\x04" + struct.pack("<I", FETCH_MAX + 1), f"at most {FETCH_MAX}"),
        (b"\x01\x01" + bytes(16) + b"\x07" + bytes(32), "scheme: 7 is unknown"),
        (b"\x01\x09" + struct.pack("<I", 0) + b"\x04", "ending: 4 is unknown"),
        (b"\x01\x02" + struct.pack("<I", 2) + HIGH + LOW + LOW + LOW, "frontier: must ascend"),
        (b"\x01\x0f" + struct.pack("<I", 1) + b"\xff", "not UTF-8"),
        (bytes(MESSAGE_MAX + 1), f"at most {MESSAGE_MAX}"),
    ],
    ids=range(18),
)
def test_what_cannot_be_said_is_refused_in_words(data, why):
    with pytest.raises(Rejected, match=why):
        decode(data)


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("kind", range(1, 18))
def test_a_claimed_length_allocates_nothing(kind):
    claims = bytes((VERSION, kind)) + b"\x00\x00\x00\x7f" * 40
    tracemalloc.start()
    try:
        with pytest.raises(Rejected):
            decode(claims + b"\x01")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 64 * 1024


def test_a_long_reason_is_cut_between_characters():
    said = decode(encode(Refusal("é" * REASON_MAX)))

    assert said == Refusal("é" * (REASON_MAX // 2))


def test_a_full_listing_fits_its_message():
    names = [i.to_bytes(32) for i in range(LISTING_MAX)]
    whole = Ranges((RangeItemsReply(FULL, tuple(ListedHash(name, 1) for name in names)),))

    assert decode(encode(whole)) == whole


def test_messages_are_values():
    assert attrs.has(Hello)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SyncDone().x = 1
