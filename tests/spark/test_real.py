"""Real input: 200 000 flights through `topics put`, read by Spark and aggregated; the sums are those of the file."""

import collections
import gzip
import json
import pathlib
import subprocess
import sys

import pytest
from pyspark.sql import functions as f

FLIGHTS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "flights-200k.jsonl.gz"


@pytest.mark.slow
@pytest.mark.skipif(not FLIGHTS.exists(), reason="the flights are not beside this checkout")
def test_flights_aggregated_by_spark_are_those_aggregated_directly(read, tmp_path):
    data = tmp_path / "data"
    subprocess.run(
        [sys.executable, "-m", "topics", "put", "flights", str(FLIGHTS), "--data", str(data)], check=True
    )
    expected = collections.defaultdict(lambda: [0, 0])
    with gzip.open(FLIGHTS) as lines:
        for flight in map(json.loads, lines):
            of_hour = expected[int(flight["time"])]
            of_hour[0] += 1
            of_hour[1] += flight["delay"] * flight["distance"]

    frame = read(path=str(data), subscribe="flights")
    flights = frame.select(
        f.from_json(frame.value.cast("string"), "delay long, distance long, time double").alias("d")
    )
    hours = flights.groupBy(f.floor("d.time").cast("int").alias("hour")).agg(
        f.count("*").alias("flights"), f.sum(f.expr("d.delay * d.distance")).alias("weight")
    )

    assert {row.hour: [row.flights, row.weight] for row in hours.collect()} == dict(expected)
    assert sum(flights for flights, _ in expected.values()) == 200_000
