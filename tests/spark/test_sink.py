"""`df.write.format("topics")` and its stream: each row exactly once, whatever fails in between, or an error."""

import json

import pytest
from pyspark.sql import functions as f

import topics
from tests.spark.failing import DyingSource, FailingSource


@pytest.fixture
def frame(spark):
    """Rows in four partitions, two of each value."""

    def make(count):
        numbers = spark.range(count, numPartitions=4).union(spark.range(count, numPartitions=4)).coalesce(4)
        return numbers.select(
            f.to_json(f.struct("id")).alias("value"),
            f.col("id").cast("string").alias("key"),
            f.lit("t").alias("tag"),
        )

    return make


def stored(server, name):
    with topics.Client(server.url) as client:
        return [item.data["id"] for item in client.topic(name).records()]


@pytest.mark.rule("P3.8")
def test_each_row_is_there_once_and_a_rerun_adds_nothing(frame, server, name):
    rows = frame(600)

    for _ in range(2):
        rows.write.format("topics").options(
            url=server.url, topic=name, writeId="run-1", batchRows="100"
        ).mode("append").save()

    assert sorted(stored(server, name)) == sorted(list(range(600)) * 2)
    with topics.Client(server.url) as client:
        first = client.topic(name).read(limit=1).records[0]
    assert (first.tag, first.key) == ("t", str(first.data["id"]))


@pytest.mark.rule("P1.6")
@pytest.mark.parametrize("source", [FailingSource, DyingSource])
def test_every_task_fails_once_after_it_has_written_and_no_row_is_there_twice(
    spark, frame, server, name, source, tmp_path
):
    spark.dataSource.register(source)

    frame(400).write.format(source.name()).options(
        url=server.url, topic=name, batchRows="30", tried=str(tmp_path)
    ).mode("append").save()

    tries = [f"{partition}.{attempt}" for partition in range(4) for attempt in range(2)]
    assert sorted(file.name for file in tmp_path.iterdir()) == tries
    assert sorted(stored(server, name)) == sorted(list(range(400)) * 2)


@pytest.mark.rule("P3.9", "P3.7")
def test_another_frame_under_the_same_write_id_is_an_error(frame, server, name):
    options = {"url": server.url, "topic": name, "writeId": "run-2"}
    frame(50).write.format("topics").options(**options).mode("append").save()

    with pytest.raises(Exception, match="are others than those written before under the key"):
        frame(50).withColumn("tag", f.lit("u")).write.format("topics").options(**options).mode(
            "append"
        ).save()
    with pytest.raises(Exception, match="mode: is append"):
        frame(5).write.format("topics").options(**options).mode("overwrite").save()

    assert len(stored(server, name)) == 100


@pytest.mark.rule("P1.6")
def test_a_batch_of_a_stream_that_is_run_again_adds_nothing(spark, server, name, tmp_path):
    source, dest, checkpoint = f"{name}-from", f"{name}-to", tmp_path / "checkpoint"
    with topics.Client(server.url) as client:
        client.topic(source).put_many([{"data": {"id": i}, "tag": "t"} for i in range(300)])

    def copy():
        frame = spark.readStream.format("topics").options(
            url=server.url, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100"
        )
        query = (
            frame.load()
            .writeStream.format("topics")
            .options(url=server.url, topic=dest, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    copy()
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name_of in (f"{last}", f".{last}.crc"):
        (commits / name_of).unlink(missing_ok=True)
    copy()

    assert stored(server, dest) == list(range(300))  # in the order of the source: the column offset says it
    assert json.loads((checkpoint / "offsets" / "2").read_text().splitlines()[-1])[source]["next"] == 301
