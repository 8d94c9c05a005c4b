"""How long writes took is told by quantiles of what was seen, and by a histogram without holes."""

import pytest

from topics.audit.checks.acks import Acks
from topics.spark.overview import BOUNDS, latencies


def acks_of(**waits):
    acks = Acks("acks.jsonl")
    for topic, took in waits.items():
        for ms in took:
            acks.time(topic, 1000.0, 1000.0 + ms)
    return acks


@pytest.mark.rule("P4.12")
def test_quantiles_are_waits_that_were_seen():
    acks = acks_of(many=range(200, 0, -1), one=[3], other=[7])
    acks.time("one", 5.0, 4.0)

    many, one = latencies(acks, ["one", "many", "none"]).topics

    assert (many.topic, many.count, many.p50, many.p90, many.p99, many.longest) == (
        "many", 200, 100.0, 180.0, 198.0, 200.0
    )  # fmt: skip
    assert (one.topic, one.p50, one.p99, one.longest, one.fell) == ("one", 3.0, 3.0, 3.0, 1)


@pytest.mark.rule("P4.12")
def test_a_histogram_counts_every_wait_once_from_the_shortest_to_the_longest():
    found = latencies(acks_of(t=[0, 0.25, 0.5, 0.75, 1, 1.5], u=[7.5], v=[9e9]), ["t", "u"])

    assert found.histogram == {
        "up to 0.01 ms": 1, "up to 0.02 ms": 0, "up to 0.05 ms": 0, "up to 0.1 ms": 0, "up to 0.2 ms": 0,
        "up to 0.5 ms": 2, "up to 1 ms": 2, "up to 2 ms": 1, "up to 5 ms": 0, "up to 10 ms": 1,
    }  # fmt: skip
    assert latencies(acks_of(v=[9e9]), ["v"]).histogram == {"above 500000 ms": 1}
    assert latencies(acks_of(), ["v"]).histogram == {}
    assert list(BOUNDS) == sorted(BOUNDS)
