"""The figures of a report are of one reading of the records, and its times of one zone."""

import pytest
from pyspark.sql import functions as f

from tests.spark.stores import fill
from topics.spark.overview import overview, overview_page

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def in_tokyo(spark):
    held = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Asia/Tokyo")
    yield
    spark.conf.set(ZONE, held)


@pytest.mark.rule("P4.12")
def test_a_report_reads_each_record_once_and_tells_all_times_in_the_zone_of_the_session(
    spark, read, in_tokyo, tmp_path
):
    fill(tmp_path / "data")
    reads = spark.sparkContext.accumulator(0)

    def seen(seq):
        reads.add(1)
        return True

    frame = read(path=str(tmp_path / "data"), subscribe="quakes,ticks")

    found = overview(frame.where(f.udf(seen, "boolean").asNondeterministic()("offset")))

    assert reads.value == sum(one.records for one in found.topics) > 100
    ticks = next(one for one in found.topics if one.topic == "ticks")
    assert (ticks.first[:14], found.zone) == ("2023-11-15 07:", "Asia/Tokyo")
    assert set(found.hours) == {"2023-11-15 07:00"}
    assert b"Times are of the zone Asia/Tokyo" in overview_page("x", found)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
