"""Clocks and randomness, real and simulated."""

import time

import pytest

from topics.host.system.clock import SystemClock, moment
from topics.host.system.entropy import SystemEntropy
from topics.kernel.ports import Clock, Entropy
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_a_clock_tells_whole_milliseconds(clock: Clock):
    now_ms = clock.now_ms()

    assert type(now_ms) is int
    assert now_ms > 1_600_000_000_000


def test_the_system_clock_is_wall_time():
    before = time.time_ns() // 1_000_000
    now_ms = SystemClock().now_ms()

    assert before <= now_ms <= time.time_ns() // 1_000_000


def test_beyond_the_year_2262_the_system_clock_stands_still():
    def beyond():
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    assert SystemClock(beyond).now_ms() == (2**63 - 1) // 1_000_000


def test_a_time_is_written_to_the_millisecond_and_one_beyond_the_calendar_as_its_number():
    assert moment(1_770_000_000_007) == "2026-02-02 02:40:00.007Z"
    assert moment(253_402_300_799_999) == "9999-12-31 23:59:59.999Z"
    assert moment(253_402_300_800_000) == "253402300800000 ms"
    assert moment(2**64 - 1) == f"{2**64 - 1} ms"


def test_a_manual_clock_moves_only_by_hand_and_may_step_back():
    clock = ManualClock(1000)

    assert clock.now_ms() == clock.now_ms() == 1000
    assert clock.advance(5) == clock.now_ms() == 1005
    clock.set(10)
    assert clock.now_ms() == 10


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(1)])
@pytest.mark.parametrize("size", [0, 1, 8, 1000])
def test_a_token_has_its_size(entropy: Entropy, size):
    assert len(entropy.token(size)) == size


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(1)])
def test_tokens_differ(entropy: Entropy):
    tokens = {entropy.token(8) for _ in range(100)}

    assert len(tokens) == 100


def test_seeded_tokens_repeat():
    one, same, other = SeededEntropy(1), SeededEntropy(1), SeededEntropy(2)
    tokens = [one.token(16) for _ in range(5)]

    assert tokens == [same.token(16) for _ in range(5)]
    assert tokens != [other.token(16) for _ in range(5)]
