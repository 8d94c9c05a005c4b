"""`df.write.format("topics")` and its stream: each row exactly once, whatever fails in between, or an error."""

import json

import pytest
from pyspark.sql import functions as f

import topics
from tests.spark.failing import FailingSource
from topics.spark.writers import NOTE_FILE


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
def test_every_task_fails_once_after_it_has_written_or_is_killed_and_no_row_is_there_twice(
    spark, frame, server, name, tmp_path
):
    spark.dataSource.register(FailingSource)
    write = frame(400).write.format("failing").mode("append")

    write.options(url=server.url, topic=name, batchRows="30", tried=str(tmp_path)).save()

    tries = [f"{partition}.{attempt}" for partition in range(4) for attempt in range(2)]
    assert sorted(file.name for file in tmp_path.iterdir()) == tries
    assert sorted(stored(server, name)) == sorted(list(range(400)) * 2)


@pytest.mark.rule("P1.6")
def test_a_run_that_the_topic_forgets_while_it_lasts_is_an_error(frame, server, name):
    with topics.Client(server.url) as client:
        client.create(name, idempotency_window_ms=1)

    with pytest.raises(Exception, match=f"KeysForgotten: topic '{name}' knows .* for 1 ms .* nothing was"):
        frame(10).coalesce(1).write.format("topics").options(url=server.url, topic=name).mode("append").save()

    assert stored(server, name) == []


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


@pytest.fixture
def copy(spark, server, name, tmp_path):
    """Stream the topic NAME-from to NAME-to, until all that is there is done."""

    def run(**options):
        frame = spark.readStream.format("topics").options(
            url=server.url, subscribe=f"{name}-from", startingOffsets="earliest", maxOffsetsPerTrigger="100"
        )
        checkpoint = str(tmp_path / "checkpoint")
        query = (
            frame.load()
            .writeStream.format("topics")
            .options(url=server.url, topic=f"{name}-to", checkpointLocation=checkpoint, **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    return run


def uncommit(checkpoint):
    """As if Spark had been killed before it committed its last batch."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name_of in (f"{last}", f".{last}.crc"):
        (commits / name_of).unlink(missing_ok=True)


@pytest.mark.rule("P1.6")
def test_a_batch_of_a_stream_that_is_run_again_adds_nothing(copy, server, name, tmp_path):
    with topics.Client(server.url) as client:
        client.topic(f"{name}-from").put_many([{"data": {"id": i}, "tag": "t"} for i in range(300)])

    copy()
    uncommit(tmp_path / "checkpoint")
    copy()

    assert stored(server, f"{name}-to") == list(
        range(300)
    )  # in the order of the source: the column offset says it
    offsets = (tmp_path / "checkpoint" / "offsets" / "2").read_text().splitlines()
    assert json.loads(offsets[-1])[f"{name}-from"]["next"] == 301


@pytest.mark.slow
@pytest.mark.rule("P1.6")
def test_a_batch_of_a_stream_that_is_run_again_days_later_is_an_error_until_it_is_named(
    copy, server, name, tmp_path
):
    """The note in the checkpoint is set back, which is what days are to it; a longer window comes too late."""
    checkpoint, dest = tmp_path / "checkpoint", f"{name}-to"
    with topics.Client(server.url) as client:
        client.topic(f"{name}-from").put_many([{"data": {"id": i}} for i in range(150)])
    copy()
    uncommit(checkpoint)
    note = json.loads((checkpoint / NOTE_FILE).read_text())
    assert note["batch"] == 1
    note["began_ms"] -= 3 * 24 * 3600 * 1000
    (checkpoint / NOTE_FILE).write_text(json.dumps(note))
    with topics.Client(server.url) as client:
        client.create(dest, idempotency_window_ms=366 * 24 * 3600 * 1000)

    with pytest.raises(Exception, match=f"KeysForgotten: topic '{dest}' knows .* for 120000 ms"):
        copy()
    assert stored(server, dest) == list(range(150))

    copy(writeId="write-it-again")
    assert stored(server, dest) == [*range(150), *range(100, 150)]
