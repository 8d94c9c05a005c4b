"""Values from outside are refused by name and never coerced; time never goes back; columns stay in step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.checks import clamped, flag, json_kind, seq_number, text_bytes, whole_number
from topics.kernel.clock import EngineTime
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import U64_MAX
from topics.testing.clock import ManualClock


@pytest.mark.parametrize("value", [True, 1.0, "1", None, b"1", -1])
@pytest.mark.parametrize("check", [whole_number, seq_number, lambda f, v: clamped(f, v, low=0, high=9)])
def test_a_whole_number_is_no_bool_no_fraction_and_no_negative(check, value):
    with pytest.raises(Rejected) as caught:
        check("limit", value)

    assert (caught.value.code, caught.value.detail["field"]) == (Code.INVALID_REQUEST, "limit")


def test_numbers_are_clamped_only_where_that_is_said():
    assert [clamped("x", value, low=3, high=9) for value in (0, 5, 99)] == [3, 5, 9]
    assert whole_number("x", 10**30) == 10**30
    assert seq_number("from_seq", 10**30) == U64_MAX


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_flag_is_a_bool(value):
    with pytest.raises(Rejected):
        flag("durable", value)


def test_text_is_counted_in_bytes():
    assert text_bytes("tag", "é" * 128, bytes_max=256) == b"\xc3\xa9" * 128
    for wrong in ("é" * 129, "", 5, b"x", None, "\ud800"):
        with pytest.raises(Rejected):
            text_bytes("tag", wrong, bytes_max=256)


@pytest.mark.rule("S0.1", "S4.25")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100))))
def test_engine_time_is_the_highest_of_clock_time_used_and_frames_seen(steps):
    clock = ManualClock(50)
    time, high = EngineTime(clock), 0
    for from_frame, ms in steps:
        if from_frame:
            time.witness(ms)
            high = max(high, ms)
        else:
            clock.set(ms)
            high = max(high, ms)

            assert high == time.read()
        assert high == time.high_ms


def test_columns_are_taken_together():
    columns = RecordColumns([b"1", b"2", b"3"], tag=[b"a", b"b", b"c"], ttl_ms=[None, 5, 6])
    taken = columns.take([0, 2])

    assert (taken.data, taken.tag, taken.ttl_ms) == ([b"1", b"3"], [b"a", b"c"], [None, 6])
    assert taken.node is None
    assert not columns.plain
    assert RecordColumns([b"1"]).plain
    with pytest.raises(AssertionError):
        RecordColumns([b"1", b"2"], tag=[b"a"])


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "null"), (True, "a boolean"), (7, "a number"), (1.5, "a decimal number"), ("x", "a string"),
        ([], "an array"), ((), "an array"), ({}, "an object"), (b"", "bytes"),
    ],
)  # fmt: skip
def test_a_value_that_is_refused_is_called_by_jsons_word(value, word):
    assert json_kind(value) == word
    if not isinstance(value, str):
        with pytest.raises(Rejected, match=f"^f: must be a string, not {word}$"):
            text_bytes("f", value, bytes_max=9)
