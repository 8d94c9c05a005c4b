"""Server-Sent Events: the standard's own examples, and that no cut of the bytes makes a difference."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.calls.watching.events import EventParser, ServerSentEvent, TooLong

FIELDS = [b"data: a", b"data:b", b"data", b"data:  two spaces", b"event: e", b"event", b"id: 7", b"id", b"id: \x00",
          b": comment", b":", b"retry: 10", b"unknown: x", b"", b"", b"\xef\xbb\xbfdata: late mark",
          b'data: {"a": "\xe2\x80\xa8"}']  # fmt: skip


def parsed(*chunks: bytes, bytes_max: int = 10_000) -> list[ServerSentEvent]:
    parser = EventParser(bytes_max)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", "")]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         [("message", "first event", "1"), ("message", "second event", ""), ("message", " third event", "")]),
        (b"data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        (b"data:test\n\ndata: test\n\n", [("message", "test", ""), ("message", "test", "")]),
        (b"event: a\n\ndata: b\n\n", [("message", "b", "")]),  # without data there was no event
        (b"id: 1\n\ndata: x\n\n", [("message", "x", "1")]),
        (b"id: 1\ndata: x\n\nid: \x00\ndata: y\n\n", [("message", "x", "1"), ("message", "y", "1")]),
        (b"\xef\xbb\xbfdata: x\r\rdata: y\r\n\r\ndata: z\n\r", [("message", x, "") for x in "xyz"]),
        (b"event: e\ndata: x\nretry: 5\n\ndata: y\n\n", [("e", "x", ""), ("message", "y", "")]),
        (b"data: \xe2\x80\xa8\x0b\x1c\xc2\x85\n\n", [("message", "\u2028\x0b\x1c\x85", "")]),  # no ends of a line
        (b"data: cut off\n", []),
    ],
)  # fmt: skip
def test_the_standards_examples(stream: bytes, events: list[tuple[str, str, str]]) -> None:
    assert parsed(stream) == [ServerSentEvent(name, data.encode(), last) for name, data, last in events]


@given(
    st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_any_cut_of_the_bytes_gives_the_same_events(
    lines: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(part for line in lines for part in line)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(places)]

    assert parsed(*chunks) == parsed(stream) == parsed(*(bytes([one]) for one in stream))


def test_what_is_never_complete_is_refused_and_not_gathered() -> None:
    for endless in (b"data: x\n", b"x" * 100, b"id: 1\n", b":" + b"x" * 99):
        parser = EventParser(10_000)
        with pytest.raises(TooLong, match="longer than 10000 bytes"):
            for _ in range(10_000):
                parser.feed(endless)


def test_comments_may_come_for_ever() -> None:
    parser = EventParser(100)
    for _ in range(1000):
        assert parser.feed(b": hb 1795510001212\n\n") == []
        assert parser.feed(b": hb\n") == []


def test_a_large_event_is_parsed_in_one_pass() -> None:
    data = json.dumps(["x" * 1_000_000] * 4).encode()
    stream = b"event: record\ndata: " + data + b"\nid: 1\n\n"
    chunks = [stream[start : start + 4096] for start in range(0, len(stream), 4096)]

    assert parsed(*chunks, bytes_max=len(stream)) == [ServerSentEvent("record", data, "1")]
