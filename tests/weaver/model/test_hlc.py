"""Hybrid logical clocks: the vectors of replication 10, and that a stamp can always be followed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.limits import U32_MAX, U64_MAX
from topics.weaver.model.hlc import DEFAULT_MAX_DRIFT_MS, HLC

pytestmark = pytest.mark.rule("R10.4", "R11.33")

readings = st.builds(HLC, st.integers(0, 5), st.sampled_from([0, 1, 2, U32_MAX - 1, U32_MAX]))


@pytest.mark.rule("R5.4.1")
def test_order():
    """H1: wall first, then counter."""
    assert HLC(100, 0) < HLC(100, 1) < HLC(101, 0)


@pytest.mark.parametrize(
    ("vector", "own", "received", "now", "expected"),
    [
        ("H2", (100, 5), (200, 3), 50, (200, 4)),
        ("H3", (200, 5), (100, 3), 50, (200, 6)),
        ("H5", (100, 5), (100, 8), 50, (100, 9)),
        ("H7", (0, 0), (1_700_000_000_000, 5), 0, (1_700_000_000_000, 6)),
        ("now", (100, 5), (200, 3), 201, (201, 0)),
        ("now-equal", (100, 5), (200, 3), 200, (200, 4)),
    ],
)
@pytest.mark.rule("R5.4.2")
def test_update(vector, own, received, now, expected):
    """H2, H3, H5, H7: the newest wall wins, its counter goes on; a tie takes the larger counter."""
    assert HLC(*own).update(HLC(*received), now) == expected


@pytest.mark.rule("R5.4.1")
def test_tick():
    """H8: time that went on starts the counter again, time that did not is counted."""
    assert HLC(100, 5).tick(50) == (100, 6)
    assert HLC(100, 5).tick(100) == (100, 6)
    assert HLC(100, 5).tick(200) == (200, 0)


@pytest.mark.rule("R5.4.4")
def test_clamp():
    """H9, H10: a future reading becomes the one after its parent, any other stays."""
    future = HLC(2_050_000_000_000, 0)

    assert future.clamp_future(HLC(100, 5), 1000) == (100, 6)
    assert HLC(1000, 3).clamp_future(HLC(0, 0), 900) == (1000, 3)


@pytest.mark.rule("R5.4.3")
def test_is_future():
    """H11: more than the drift ahead; exactly the drift is fine, and the default is an hour."""
    reading = HLC(1000, 0)

    assert not reading.is_future(500, 600)
    assert not reading.is_future(500, 500)
    assert reading.is_future(500, 400)
    assert DEFAULT_MAX_DRIFT_MS == 3_600_000
    assert not HLC(3_600_007, 9).is_future(7)
    assert HLC(3_600_008, 0).is_future(7)


@pytest.mark.rule("R5.4.5")
def test_a_full_counter_carries():
    """A counter at its end raises the wall, whoever moves the clock."""
    full = HLC(7, U32_MAX)

    assert full.next() == (8, 0)
    assert full.tick(3) == (8, 0)
    assert full.update(HLC(7, 1), 3) == (8, 0)
    assert HLC(U64_MAX, 0).clamp_future(full, 3) == (8, 0)


@given(own=readings, received=readings, now=st.integers(0, 7))
def test_the_clock_rises(own, received, now):
    """Sending and receiving leave the clock above all it has seen, and never below the time."""
    assert own.tick(now) > own
    assert own.tick(now).wall >= now
    assert own.update(received, now) > max(own, received)
    assert own.update(received, now) == received.update(own, now)
