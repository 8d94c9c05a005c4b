"""A server of its own that has more to tell than time: bands are told by their shares, and no record is lost."""

import pytest

from ci.benchmarks.delivery import pressed_plan
from ci.benchmarks.pressed_watchers import Pressed
from ci.benchmarks.served import load, topics_serve


@pytest.mark.slow
@pytest.mark.rule("S10.7", "S10.11", "S2.9")
@pytest.mark.invariant("I-13")
def test_under_pressure_the_top_is_told_first_and_every_watcher_has_every_record_in_the_end(tmp_path):
    with topics_serve(tmp_path / "data") as server:
        plan = pressed_plan(server.port, server.pid, size=20, seconds=8.0)

        found = load(plan, module="ci.benchmarks.pressed_watchers", result=Pressed)  # which sees to each seq

    assert found.pressure > 0.8
    assert found.bands["top"].p99_ms <= found.bands["below"].p99_ms / 4
    assert max(found.bands[band].longest_ms for band in ("top", "high", "low")) <= 10_000
    assert found.held > 0
    there, told = found.read
    assert there >= told  # who is held can be read
