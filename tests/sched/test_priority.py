"""A topic's priority is what its config says, or comes from how lately it was read; waiting adds to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.config import TopicConfig
from topics.sched.bands import BANDS, FLOORS, NAMES, TOP, WEIGHTS, band_of
from topics.sched.priority import age_boost, priority_of

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("priority", "band"),
    [(-1000, 0), (-1, 0), (0, 1), (249, 1), (250, 2), (499, 2), (500, 3), (749, 3), (750, 4), (2000, 4)],
)
@pytest.mark.rule("S10.6")
def test_a_band_is_a_range_of_priorities(priority, band):
    assert band_of(priority) == band
    assert (BANDS, TOP, len(FLOORS), len(NAMES), WEIGHTS) == (5, 4, 4, 5, (1, 1, 2, 4, 8))


@pytest.mark.parametrize(
    ("fields", "read_ms", "expected"),
    [
        ({"priority": 700}, NOW, 700),  # what is configured stands, however lately it was read
        ({"priority": -1000}, 0, -1000),
        ({"priority": 5000}, 0, 1000),
        ({"priority": -5000}, 0, -1000),
        ({}, 0, 0),  # never
        ({}, NOW, 500),
        ({}, NOW + 9000, 500),  # a clock that was set back
        ({}, NOW - 30_000, 250),
        ({}, NOW - 60_000, 125),
        ({}, NOW - 299_999, 0),  # a half, rounded
        ({}, NOW - 300_000, 0),
        ({"auto_priority": False}, NOW, 0),
        ({"auto_priority": False, "priority": 7}, NOW, 7),
    ],
)
@pytest.mark.rule("S10.1", "S10.2")
def test_a_topics_priority_is_configured_or_falls_by_half_in_30_s_after_it_was_read(
    fields, read_ms, expected
):
    assert priority_of(TopicConfig(**fields), read_ms=read_ms, now_ms=NOW) == expected


@pytest.mark.rule("S10.2")
def test_what_was_read_5_minutes_ago_is_forgotten():
    assert priority_of(TopicConfig(), read_ms=NOW - 250_000, now_ms=NOW) == 2
    assert priority_of(TopicConfig(), read_ms=NOW - 300_000, now_ms=NOW) == 0


@given(since=st.lists(st.integers(0, 400_000), min_size=2, max_size=2))
@pytest.mark.rule("S10.2")
def test_what_was_read_later_is_never_worth_less(since):
    later, earlier = (priority_of(TopicConfig(), read_ms=NOW - ms, now_ms=NOW) for ms in sorted(since))

    assert 500 >= later >= earlier >= 0


@pytest.mark.rule("S10.3")
def test_waiting_adds_100_a_second_and_1000_at_most():
    boosts = [age_boost(us) for us in (0, 9999, 10_000, 1_000_000, 9_999_999, 10_000_000, 60_000_000)]

    assert boosts == [0, 0, 1, 100, 999, 1000, 1000]
