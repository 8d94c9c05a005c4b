"""When a call is repeated, and when not any more."""

from __future__ import annotations

import pytest

from topics.calls.patience import Patience, retry_after_s

PATIENCE = Patience(reach_ms=1000, total_ms=10_000, attempts_max=6, first_ms=100, longest_ms=1000)


def wait(
    attempts: int, *, elapsed: float = 0, after: float = 0, known: bool = True, chance: float = 0.999999
) -> float | None:
    found = PATIENCE.wait_s(attempts, elapsed_s=elapsed, retry_after_s=after, known=known, chance=chance)
    return None if found is None else round(found, 3)


def test_waits_double_up_to_the_longest() -> None:
    assert [wait(n) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, None]


def test_chance_takes_up_to_half_off() -> None:
    assert wait(3, chance=0.0) == 0.2


def test_it_waits_as_long_as_the_server_asks_but_not_over_the_bound() -> None:
    assert wait(1, after=3) == 3.0
    assert wait(1, after=3, elapsed=7) == 3.0
    assert wait(1, after=3, elapsed=7.1) is None
    assert wait(1, after=60) is None


def test_a_server_that_never_answered_is_given_up_sooner() -> None:
    assert wait(4, elapsed=0.5) == 0.8
    assert wait(4, elapsed=0.5, known=False) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("1", 1),
        ("30", 30),
        ("", 0),
        ("-1", 0),
        ("1.5", 0),
        ("²", 0),
        ("9" * 10, 0),
        ("Fri, 31 Dec", 0),
    ],
)
def test_retry_after(value: str | None, seconds: float) -> None:
    assert retry_after_s(value) == seconds
