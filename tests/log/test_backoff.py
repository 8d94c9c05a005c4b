"""How long a job rests after a delivery that failed, by numbers worked out by hand (queues 1)."""

from itertools import pairwise

import pytest

from topics.kernel.config import RetryBackoff
from topics.log.jobs.backoff import backoff_ms

DOUBLING = RetryBackoff(base_ms=1000, factor=2.0, max_ms=5000)
SEQS = range(1, 2001)


def rests(deliveries, backoff=DOUBLING):
    return [backoff_ms(backoff, deliveries, seq) for seq in SEQS]


@pytest.mark.rule("Q1.5")
@pytest.mark.parametrize(
    ("deliveries", "middle"), [(1, 1000), (2, 2000), (3, 4000), (4, 5000), (5, 5000), (10**6, 5000)]
)
def test_it_grows_by_the_factor_from_the_base_to_the_maximum(deliveries, middle):
    found = rests(deliveries)
    assert middle * 900 <= 1000 * min(found) <= middle * 901
    assert middle * 1099 <= 1000 * max(found) <= middle * 1100
    assert abs(sum(found) / len(found) - middle) < middle / 100


@pytest.mark.rule("Q1.5")
def test_it_is_spread_by_the_seq_and_by_nothing_else():
    found = rests(1)
    assert found == rests(1)
    assert len(set(found)) > 150  # of 201 there are
    assert all(abs(one - other) > 1 for one, other in pairwise(found))


@pytest.mark.rule("Q1.5")
def test_without_one_a_job_is_ready_at_once():
    assert rests(3, None) == [0] * len(SEQS)


@pytest.mark.parametrize("factor", [1.0, 1.000001])
def test_a_factor_near_one_costs_no_time(factor):
    steady = RetryBackoff(base_ms=100, factor=factor, max_ms=86_400_000)
    assert max(rests(4_000_000_000, steady)) <= 111
