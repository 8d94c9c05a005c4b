"""The figures of a report are of one reading of the records, and its times of one zone."""

import json

import pytest
from pyspark.sql import functions as f

from tests.spark.stores import fill
from topics.cli.main import main
from topics.spark.lags import Lag
from topics.spark.overview import (
    Latencies,
    Latency,
    Overview,
    TopicFigures,
    json_lines,
    overview,
    overview_page,
)

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


@pytest.mark.rule("O2.25", "P4.12")
def test_machines_get_all_that_the_page_says():
    figures = TopicFigures(topic="t", records=2, bytes=9, first="a", last="b", per_second=0.5)
    lag = Lag(checkpoint="c", topic="t", next=3, seqs=1, records=1, seconds=0.25)
    latency = Latency(topic="t", count=1, p50=6.5, p90=6.5, p99=6.5, longest=6.5, fell=0)
    found = Overview(
        zone="UTC", topics=[figures], hours={"h": 2}, keys={"k": 2}, tags={}, losses=[("gone", 1, 7, "cap")],
        lags=[lag], fresh=["new"], latency=Latencies(file="acks", topics=[latency], histogram={"up to 10 ms": 1}),
    )  # fmt: skip

    topic, rest = [json.loads(line) for line in json_lines(found)]

    assert topic == {"topic": "t", "records": 2, "bytes": 9, "first": "a", "last": "b", "per_second": 0.5}
    assert (rest["zone"], rest["topics"], rest["records"], rest["hours"]) == ("UTC", 1, 2, {"h": 2})
    assert (rest["keys"], rest["tags"], rest["no_batch_committed"]) == ({"k": 2}, {}, ["new"])
    assert rest["losses"] == [{"topic": "gone", "first": 1, "last": 7, "reason": "cap"}]
    assert rest["lags"][0]["seconds"] == 0.25
    assert rest["latency"]["topics"][0]["p99"] == 6.5
    assert rest["latency"]["histogram"] == {"up to 10 ms": 1}


@pytest.mark.slow
@pytest.mark.rule("O2.25", "P4.11", "P4.12")
def test_report_and_export_say_nothing_but_json_where_machines_read(spark, tmp_path, capsys):
    fill(tmp_path / "data")
    place = ["--data", str(tmp_path / "data"), "--json"]

    assert main(["spark", "report", "quakes", "capped", "--out", str(tmp_path / "page.html"), *place]) == 0
    *figures, rest = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["topic"] for one in figures] == ["capped", "quakes"]
    assert rest["losses"] == [{"topic": "capped", "first": 1, "last": 15, "reason": "cap"}]
    assert (rest["lags"], rest["latency"]) == (None, None)

    out = str(tmp_path / "parquet")
    assert main(["spark", "export", "capped", "--out", out, *place]) == 0
    loss, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert loss == rest["losses"][0]
    assert total == {"out": out, "records": 10, "losses": 1}

    assert main(["spark", "report", "quakes", "--out", str(tmp_path / "no" / "page.html"), *place]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "topics: the report: " in said.err
