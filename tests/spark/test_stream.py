"""`readStream.format("topics")`: each record exactly once over restarts, in batches as large as they may be."""

import json
from itertools import pairwise

import pytest

from tests.spark.stores import opened
from topics.spark.lags import StreamPosition, read_checkpoint


@pytest.fixture
def stream(spark, tmp_path):
    """Run a stream over what is there, with one checkpoint and one output for the test; the rows of all runs so far."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def run(**options):
        frame = spark.readStream.format("topics").options(**options).load().select("topic", "offset", "value")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start(str(out))
        query.awaitTermination(120)
        batches = [
            json.loads(path.read_text().splitlines()[-1])
            for path in sorted((checkpoint / "offsets").glob("[0-9]*"))
        ]
        rows = (
            [(row.topic, row.offset) for row in spark.read.parquet(str(out)).collect()]
            if out.exists()
            else []
        )
        return sorted(rows), batches

    return run


def put(path, *, quakes=0, ticks=0, **config):
    with opened(path, segment_records=7) as store:
        for name, count in (("quakes", quakes), ("ticks", ticks)):
            if count:
                store.create(name, **config).put_many([{"data": i} for i in range(count)])
        store.checkpoint()


@pytest.mark.rule("P3.12", "P3.4", "P4.12")
def test_runs_one_after_the_other_deliver_each_record_once(stream, tmp_path):
    data = tmp_path / "data"
    put(data, quakes=20)
    options = {"path": str(data), "subscribePattern": "quakes|ticks", "startingOffsets": "earliest"}

    first, _ = stream(**options)
    put(data, quakes=15, ticks=5)
    second, offsets = stream(**options, maxOffsetsPerTrigger="8")

    assert first == [("quakes", seq) for seq in range(1, 21)]
    assert second == [("quakes", seq) for seq in range(1, 36)] + [("ticks", seq) for seq in range(1, 6)]
    assert offsets[-1] == {"quakes": {"epoch": 1, "next": 36}, "ticks": {"epoch": 1, "next": 6}}
    ends = [sum(at["next"] - 1 for at in offset.values()) for offset in offsets]
    assert [after - before for before, after in pairwise(ends)] == [8, 8, 4]
    at = read_checkpoint(str(tmp_path / "checkpoint"))  # which a report tells lags by
    assert (at.batch, at.places) == (3, {"quakes": StreamPosition(1, 36), "ticks": StreamPosition(1, 6)})
