"""Pressure comes from what waits, how long, and how busy the loop is; what is left off follows it, step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.sched.governor import Governor, PressureStep

SAMPLE_US = 100_000


def settled(*, ready, latency_us, busy, samples=60):
    """A governor that has seen this for so long that it sees nothing else."""
    governor = Governor()
    for n in range(samples):
        governor.waited(latency_us)
        governor.sample(n * SAMPLE_US, ready=ready, late_us=0, busy=busy)
    return governor


@pytest.mark.parametrize(
    ("ready", "latency_us", "busy", "pressure"),
    [
        (0, 0, 1.0, 0.0),  # a loop that works, and nothing waits
        (1, 0, 1.0, 0.20625),
        (64, 0, 0.0, 0.4),
        (1000, 0, 0.0, 0.4),
        (0, 5000, 0.0, 0.08),
        (0, 25_000, 0.0, 0.4),
        (0, 10_000_000, 0.0, 0.4),
        (32, 25_000, 1.0, 0.8),
        (64, 25_000, 1.0, 1.0),
    ],
)
@pytest.mark.rule("S10.8")
def test_pressure_is_the_sum_of_three_signals(ready, latency_us, busy, pressure):
    assert settled(ready=ready, latency_us=latency_us, busy=busy).pressure == pytest.approx(
        pressure, abs=1e-6
    )


@given(
    one=st.tuples(st.integers(0, 200), st.integers(0, 10**8), st.floats(0, 1)),
    more=st.tuples(st.integers(0, 200), st.integers(0, 10**8), st.floats(0, 1)),
)
@pytest.mark.rule("S10.8")
def test_pressure_is_between_0_and_1_and_more_of_anything_is_never_less(one, more):
    less = [settled(ready=ready, latency_us=us, busy=busy, samples=3) for ready, us, busy in (one, more)]
    ready, us, busy = map(max, zip(one, more, strict=True))
    most = settled(ready=ready, latency_us=us, busy=busy, samples=3)

    assert all(0 <= governor.pressure <= most.pressure + 1e-9 <= 1 + 2e-9 for governor in less)


@pytest.mark.parametrize(
    ("ready", "step", "coalesce_us", "commit_us"),
    [
        (0, PressureStep.NOTHING, 0, 0),  # pressure 0.2: a busy loop
        (16, PressureStep.COALESCE, 2500, 0),  # 0.3
        (32, PressureStep.COALESCE, 5000, 0),  # 0.4
        (33, PressureStep.WIDEN, 5156, 599),
        (64, PressureStep.WIDEN, 10_000, 3667),  # 0.6
    ],
)
@pytest.mark.rule("S10.9", "S10.10")
def test_windows_grow_with_pressure(ready, step, coalesce_us, commit_us):
    governor = Governor()
    governor.sample(0, ready=ready, late_us=0, busy=1.0)

    assert (governor.step, governor.coalesce_us, governor.commit_us) == (step, coalesce_us, commit_us)


@pytest.mark.rule("S10.9", "S10.10", "S10.12")
def test_at_pressure_1_everything_is_as_wide_as_it_gets_and_writes_are_refused():
    governor = settled(ready=64, latency_us=25_000, busy=1.0)

    assert (governor.step, governor.refuses) == (PressureStep.REFUSE, True)
    assert (governor.coalesce_us, governor.commit_us) == (20_000, 10_000)


@pytest.mark.rule("S10.11")
def test_holding_begins_when_it_was_too_much_for_a_second_and_ends_below_06():
    governor, held = settled(ready=64, latency_us=25_000, busy=0.0), []  # 0.8, which is not above
    assert governor.pressure == pytest.approx(0.8)
    now_us = 10 * 10**6

    def sees(busy, samples, latency_us=25_000):
        nonlocal now_us
        for _ in range(samples):
            now_us += SAMPLE_US
            governor.waited(latency_us)
            governor.sample(now_us, ready=64, late_us=0, busy=busy)
        held.append(governor.is_holding)

    sees(0.1, 10)  # 0.9 s since the first that was above
    sees(0.0, 1)  # and back: it begins anew
    sees(0.1, 10)
    sees(0.1, 1)
    sees(0.0, 40)  # 0.8: between the two nothing changes
    sees(0.0, 40, latency_us=13_000)  # 0.608
    sees(0.0, 40, latency_us=12_000)  # 0.592
    sees(0.0, 40)  # 0.8 again

    assert held == [False, False, False, True, True, True, False, False]


@pytest.mark.rule("S10.8")
def test_who_waits_and_is_not_served_is_seen_too():
    governor = Governor()
    for n in range(30):
        governor.sample(n * SAMPLE_US, ready=1, late_us=n * SAMPLE_US, busy=0.0)

    assert governor.pressure > 0.4


def test_when_nothing_waits_it_comes_to_rest():
    governor = settled(ready=64, latency_us=25_000, busy=1.0)
    samples = 0
    while not governor.is_at_rest:
        samples += 1
        governor.sample(10**9 + samples * SAMPLE_US, ready=0, late_us=0, busy=1.0)

    assert 10 < samples < 30
    assert (governor.step, governor.latency_us, governor.is_holding) == (PressureStep.NOTHING, 0.0, False)
