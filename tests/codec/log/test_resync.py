"""Past damage: whole frames are found again, marks wherever they lie, and somebody's data is not taken for either."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS, Log, columns
from topics.codec.log.control import CommitMark, HeadWatermark, encode_control
from topics.codec.log.frame import FrameType, encode_run
from topics.codec.log.layout import check_frame
from topics.codec.log.resync import find_frames, find_marks, plausible_head
from topics.kernel.columns import RecordColumns

FILE_ID = b"\x07file\x00id"
MARK = CommitMark(FILE_ID, 3, 999)


def frames_of(body):
    places, at = [], 0
    while at < len(body):
        total = check_frame(body, at, len(body))
        places.append((at, total))
        at += total
    return places


def frame(data, seq=1, topic_id=1):
    return encode_run(
        topic_id, seq, TS, RecordColumns([data]), durable=False, keyed=None, write_frames=1
    )[0]  # fmt: skip


@pytest.mark.rule("T4.19")
@given(st.lists(columns(count_max=3), min_size=1, max_size=5), st.data())
def test_every_frame_that_is_whole_is_found(writes, data):
    log = Log()
    for records in writes:
        log.append(1, TS, records)
    body = log.bytes
    places = frames_of(body)
    assert list(find_frames(body, 0, len(body))) == places

    hit, size = data.draw(st.sampled_from(places))
    damaged = bytearray(body)
    start = data.draw(st.integers(hit, hit + size - 1))
    stop = data.draw(st.integers(start + 1, hit + size))
    for at in range(start, stop):
        damaged[at] ^= data.draw(st.integers(1, 255))

    assert list(find_frames(damaged, 0, len(damaged))) == [place for place in places if place != (hit, size)]


@pytest.mark.rule("T4.19")
@pytest.mark.parametrize(
    "gap", [b"\x00", bytes(5000), b"text, " * 900, random.Random(5).randbytes(9000), b"\x01" * 3000]
)
def test_whatever_lies_between_is_passed_over(gap):
    first, second = frame(b"one"), frame(b"two" * 99, seq=2)
    body = gap + first + gap + second + gap

    assert list(find_frames(body, 0, len(body))) == [
        (len(gap), len(first)), (2 * len(gap) + len(first), len(second)),
    ]  # fmt: skip
    assert list(find_frames(body, 0, len(gap))) == []
    assert list(find_frames(body, len(gap) + 1, len(gap) + len(first))) == []


@pytest.mark.parametrize("after", [b"", frame(b"next", seq=2), bytes(100)], ids=["end", "frame", "zeros"])
def test_a_damaged_frame_whose_head_is_sound_is_not_searched(after):
    outer = bytearray(frame(b"some" + frame(b"forged", topic_id=9) + b"data"))
    outer[-12] ^= 1  # in its data
    body = bytes(outer) + after

    found = list(find_frames(body, 0, len(body)))
    assert found == ([(len(outer), len(after))] if any(after) else [])


@pytest.mark.invariant("I-18")
@given(st.binary(max_size=400), st.data())
def test_any_bytes_are_searched_to_their_end(garbage, data):
    start = data.draw(st.integers(0, len(garbage)))
    stop = data.draw(st.integers(start, len(garbage)))

    assert list(find_frames(garbage, start, stop)) == []
    assert list(find_marks(garbage, FILE_ID, start, stop)) == []
    assert plausible_head(garbage, start, stop) is None


def test_marks_of_this_file_are_found_and_no_others():
    mark = encode_control(MARK, topic_id=0, ts=TS)
    other = encode_control(CommitMark(b"otherid!", 3, 999), topic_id=0, ts=TS)
    torn = bytearray(mark)
    torn[-1] ^= 1
    noise = mark[38:54]  # the magic alone
    body = mark + b"\xff" * 7 + noise + other + bytes(torn) + mark + mark[:-1]
    found = list(find_marks(body, FILE_ID, 0, len(body)))

    assert [control.payload for control in found] == [MARK, MARK]
    assert [control.offset for control in found] == [0, len(body) - len(mark) + 1 - len(mark)]
    assert list(find_marks(body, FILE_ID, 1, len(mark))) == []
    assert [control.offset for control in find_marks(memoryview(body), b"otherid!", 0, len(body))] != []


def test_a_damaged_frame_says_what_it_was():
    whole = bytearray(frame(b"x" * 50, seq=12, topic_id=34))
    whole[60] ^= 1
    head = encode_control(HeadWatermark(3), topic_id=5, ts=TS)

    assert plausible_head(whole, 0, len(whole)) == (34, 12, FrameType.APPEND)
    assert plausible_head(whole, 0, 60) == (34, 12, FrameType.APPEND)
    assert plausible_head(whole, 0, 37) is None
    assert plausible_head(head, 0, len(head)) == (5, 0, FrameType.HEAD_WATERMARK)
    whole[4] = 99
    assert plausible_head(whole, 0, len(whole)) is None
    assert plausible_head(bytes(100), 0, 100) is None


def test_a_frame_with_one_bit_of_its_head_turned_over_is_known_by_its_checksum():
    """Ids and lengths too: what it says it is would be wrong, or would not agree with itself."""
    whole = frame(b"x" * 50, seq=12, topic_id=34)
    for bit in range(38 * 8):
        turned = bytearray(whole + bytes(20))
        turned[bit // 8] ^= 1 << bit % 8
        assert plausible_head(turned, 0, len(turned)) == (34, 12, FrameType.APPEND)
