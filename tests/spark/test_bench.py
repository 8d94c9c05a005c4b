"""`ci/bench spark` runs to its end: the figures of the other groups are tried in tests/ci, without a Java."""

import pytest

from ci.benchmarks.command import GROUPS
from ci.benchmarks.figure import Setting


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_figures_of_spark_are_measured(spark, tmp_path):
    figures = list(GROUPS["spark"](Setting(tmp_path, runs=1, quick=True)))

    names = [figure.name for figure in figures]
    assert len(names) == len(set(names)) == 3 + 3 + 4 * 3 + 1
    assert {
        "spark: validate, large",
        "spark: the segments by pandas, growth",
        "spark: sink",
        "spark: validate, labelled",
    } <= set(names)
    assert all(figure.value > 0 for figure in figures)
