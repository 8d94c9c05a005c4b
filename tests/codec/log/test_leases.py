"""LEASE frames: every event survives encoding, and nothing else is taken for one."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.log.control import control_at, encode_control
from topics.codec.log.leases import (
    LEASE_EVENTS,
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    Grant,
    LeaseEvent,
    Moved,
    Paused,
    Purged,
    Released,
    ReleasedAll,
    Resumed,
    decode_lease,
    encode_lease,
)
from topics.codec.log.newer import is_newer
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U64_MAX

numbers = st.integers(0, U64_MAX)
names = st.binary(min_size=1, max_size=9)
texts = st.text(min_size=1, max_size=9).filter(str.isprintable).map(str.encode)


def lists(count, size):
    """Seqs, each of which is there once, and what is said of each."""
    seqs, *others = (
        st.lists(numbers, min_size=size, max_size=size, unique=not i).map(lambda values: array("Q", values))
        for i in range(count)
    )
    return st.tuples(seqs, *others)


def sized(build, count):
    return st.integers(1, 5).flatmap(lambda size: build(lists(count, size)))


@st.composite
def claims(draw):
    grants = draw(st.lists(st.builds(Grant, names, numbers, st.integers(1, 4)), min_size=1, max_size=3))
    count = sum(grant.jobs for grant in grants)
    (seqs,) = draw(lists(1, count))
    return Claimed(draw(numbers), draw(numbers), tuple(grants), seqs)


events = st.one_of(
    claims(),
    sized(lambda found: st.builds(lambda n, d, ab: Extended(n, d, *ab), names, numbers, found), 2),
    sized(lambda found: st.builds(lambda n, r, abc: Released(n, r, *abc), names, st.binary(max_size=9), found), 3),
    st.builds(ReleasedAll, names),
    sized(lambda found: st.builds(lambda n, ab: Acked(n, *ab), names, found), 2),
    sized(lambda found: st.builds(lambda d, r, a: DeadLettered(d, r, *a), texts, names, found), 1),
    sized(lambda found: st.builds(lambda a: Moved(*a), found), 1),
    st.just(Paused()),
    st.just(Resumed()),
    st.builds(Purged, numbers),
)  # fmt: skip


@given(events)
def test_an_event_is_what_was_encoded(event: LeaseEvent) -> None:
    data = encode_lease(event)
    assert decode_lease(data) == event
    frame = encode_control(event, topic_id=3, ts=5)
    assert control_at(frame, 0, len(frame)).payload == event


@given(events, st.data())
def test_an_event_cut_short_or_with_more_is_refused(event: LeaseEvent, data: st.DataObject) -> None:
    whole = encode_lease(event)
    with pytest.raises(Corrupt):
        decode_lease(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(Corrupt):
        decode_lease(whole + data.draw(st.binary(min_size=1, max_size=9)))


@pytest.mark.parametrize("data", [b"", b"\0", bytes([len(LEASE_EVENTS) + 1]), b"\xff"])
def test_no_event_of_this_version(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_lease(data)


@pytest.mark.parametrize(
    "event",
    [
        Moved(array("Q")),
        Acked(b"w", array("Q", [1, 2]), array("Q", [1])),
        Acked(b"w", array("Q", [1, 1]), array("Q", [1, 2])),
        DeadLettered(b"", b"why", array("Q", [1])),
        DeadLettered(b"\xff", b"why", array("Q", [1])),
        Claimed(1, 1, (), array("Q", [1])),
        Claimed(1, 1, (Grant(b"w", 9, 2),), array("Q", [1])),
        Claimed(1, 1, (Grant(b"", 9, 1),), array("Q", [1])),
        Claimed(1, 1, (Grant(b"w", 9, 0), Grant(b"v", 9, 1)), array("Q", [1])),
    ],
)
def test_what_no_writer_says(event: LeaseEvent) -> None:
    with pytest.raises(Corrupt):
        decode_lease(encode_lease(event))


def test_a_newer_event_is_no_damage() -> None:
    """Storage 2: a frame of which this version does not know all was written by a newer one."""
    frame = bytearray(encode_control(Paused(), topic_id=3, ts=5))
    assert not is_newer(bytes(frame), 0, len(frame))
    from topics.codec.log.layout import pack_frame

    for region in (bytes([len(LEASE_EVENTS) + 1]) + b"abc", encode_lease(Moved(array("Q", [4]))) + b"more"):
        newer = pack_frame(10, 0, 3, 0, 5, region)
        assert is_newer(newer, 0, len(newer))
