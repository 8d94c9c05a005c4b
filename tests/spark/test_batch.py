"""`spark.read.format("topics")`: Spark gets what a reader of the store gets, from a directory and from a server."""

import shutil

import pytest
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.testing import assertDataFrameEqual

import topics
from tests.spark.stores import START_MS, fill, opened, records, rows
from topics.spark.session import CannotRun, losses, register

KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "data"
    fill(path)
    return path


@pytest.fixture
def data(made):
    return str(made)


@pytest.mark.parametrize("name", ["quakes", "ticks"])
def test_a_directory_holds_what_its_reader_gets(read, data, name):
    found = rows(read(path=data, subscribe=name).orderBy("offset"))

    assert found == records(data, name)
    assert len(found) > 60


@pytest.mark.rule("P3.10", "P3.6")
def test_the_columns_are_those_of_kafka_and_then_ours(read, data):
    frame = read(path=data, subscribe="quakes")

    assert frame.schema.toDDL().lower() == f"{KAFKA}, node string, tag string".replace(", ", ",").lower()
    first = frame.where("offset = 1").collect()[0]
    assert (first.topic, first.partition, first.timestampType) == ("quakes", 0, 1)
    with_headers = read(path=data, subscribe="quakes", includeHeaders="true").where("offset = 1").collect()[0]
    assert [(h.key, bytes(h.value)) for h in with_headers.headers] == [("unit", b"km"), ("n", b"0")]


@pytest.mark.rule("P1.2")
def test_a_narrow_schema_is_all_that_is_read(spark, data):
    frame = spark.read.format("topics").schema("offset bigint, tag string").option("path", data)

    found = frame.option("subscribe", "quakes").load()

    assert found.columns == ["offset", "tag"]
    assert [tuple(row) for row in found.orderBy("offset").limit(2).collect()] == [(1, "us"), (2, None)]
    with pytest.raises(Exception, match="there is no column 'price'; there are key, value"):
        spark.read.format("topics").schema("price int").options(path=data, subscribe="ticks").load().collect()
    with pytest.raises(Exception, match="column 'offset' is a bigint, not a int"):
        spark.read.format("topics").schema("offset int").options(
            path=data, subscribe="ticks"
        ).load().collect()


@pytest.mark.rule("P3.12", "P1.3")
def test_a_frame_that_is_read_twice_gives_each_reader_all_that_it_asks_for(read, data, spark):
    """Spark 4.3 lets all readers of a frame follow the plan of the last filter that was pushed."""
    frame = read(path=data, subscribe="ticks")
    high, low = frame.where("offset > 95"), frame.where("offset <= 10")
    frame.createOrReplaceTempView("ticks")
    counts = "SELECT (SELECT count(*) FROM ticks WHERE offset > 50), (SELECT count(*) FROM ticks)"

    assert sorted(row.offset for row in high.union(low).collect()) == [*range(1, 11), *range(96, 101)]
    assert frame.where("offset = 7").count() == 1
    assert frame.count() == 100
    assert tuple(spark.sql(counts).first()) == (50, 100)


@pytest.fixture
def pushing(spark):
    """A session whose frames are for one query each, so that filters are pushed."""
    register(spark, pushdown=True)
    yield
    register(spark)


@pytest.mark.rule("P3.12", "P1.3", "P3.4")
@pytest.mark.usefixtures("pushing")
def test_pushed_filters_change_nothing_but_the_work(read, data):
    def frame():
        return read(path=data, subscribePattern="quakes|ticks").select("topic", "offset", "timestamp")

    everything = [tuple(row) for row in frame().collect()]
    at = f.timestamp_millis(f.lit(START_MS + 50_000))

    for condition, keep in (
        (f.col("offset") == 7, lambda row: row[1] == 7),
        ((f.col("offset") > 20) & (f.col("offset") <= 45), lambda row: 20 < row[1] <= 45),
        (f.col("topic") == "ticks", lambda row: row[0] == "ticks"),
        (f.col("topic").isin("ticks", "other"), lambda row: row[0] == "ticks"),
        (f.col("timestamp") >= at, lambda row: row[2].timestamp() * 1000 >= START_MS + 50_000),
        (f.col("timestamp") < at, lambda row: row[2].timestamp() * 1000 < START_MS + 50_000),
        (f.col("timestamp") == at, lambda row: row[2].timestamp() * 1000 == START_MS + 50_000),
        ((f.col("topic") == "ticks") & (f.col("offset") == 10**12), lambda row: False),
    ):
        expected = sorted(row for row in everything if keep(row))
        assert sorted(tuple(row) for row in frame().where(condition).collect()) == expected, str(condition)
    cut = read(path=data, subscribe="ticks", minPartitions="5")
    assert cut.rdd.getNumPartitions() >= 5
    narrow = read(path=data, subscribe="ticks", minPartitions="5").where("offset = 5")
    assert narrow.rdd.getNumPartitions() == 1


@pytest.mark.rule("P3.3")
def test_offsets_and_times_say_where_a_read_begins_and_ends(read, data):
    def seqs(**options):
        frame = read(path=data, **{"subscribe": "ticks", **options}).select("offset")
        return sorted(row.offset for row in frame.collect())

    assert seqs(startingOffsets='{"ticks": 98}') == [98, 99, 100]
    assert seqs(startingOffsets='{"ticks": 5}', endingOffsets='{"ticks": 8}') == [5, 6, 7]
    assert seqs(startingOffsets='{"ticks": -2}', endingOffsets='{"ticks": 2}') == [1]
    assert seqs(startingOffsets="latest") == []
    assert seqs(startingTimestamp=str(START_MS + 97_000)) == [98, 99, 100]
    assert seqs(endingTimestamp=str(START_MS + 2000)) == [1, 2]
    with pytest.raises(Exception, match="topic 'ticks': 500 is above its end, 101"):
        seqs(startingOffsets='{"ticks": 500}')
    with pytest.raises(Exception, match="topic 'nothing' is not there"):
        seqs(subscribe="nothing")


@pytest.mark.rule("P3.5")
def test_what_is_lost_is_an_error_or_a_row_of_losses(read, data):
    def capped(**options):
        return read(path=data, subscribe="capped", startingOffsets='{"capped": 3}', **options)

    with pytest.raises(Exception, match=r"topic 'capped': seqs 3 to 15 are lost \(cap\)"):
        capped().collect()
    frame = capped(failOnDataLoss="false")

    assert sorted(row.offset for row in frame.collect()) == list(range(16, 26))
    assert [tuple(row) for row in losses(frame.where("offset > 2").select("topic")).collect()] == [
        ("capped", 3, 15, "cap")
    ]
    assert sorted(row.offset for row in read(path=data, subscribe="capped").collect()) == list(range(16, 26))
    from_earliest = losses(read(path=data, subscribe="capped,ticks"))
    assert [tuple(row) for row in from_earliest.collect()] == [("capped", 1, 15, "cap")]


class Other(DataSource):
    """Another source with options."""

    @classmethod
    def name(cls):
        return "other"

    def schema(self):
        return "topic string"

    def reader(self, schema):
        return OtherReader()


class OtherReader(DataSourceReader):
    def read(self, partition):
        yield ("capped",)


@pytest.mark.rule("P3.5")
def test_losses_of_a_frame_that_comes_from_another_source_too_and_of_a_stream(spark, read, data):
    spark.dataSource.register(Other)
    other = spark.read.format("other").option("colour", "red").load()
    capped = {"path": data, "subscribe": "capped", "failOnDataLoss": "false"}

    joined = read(**capped).join(other, "topic")
    stream = spark.readStream.format("topics").options(**capped).load()

    for frame in (joined, stream):
        assert [tuple(row) for row in losses(frame).collect()] == [("capped", 1, 15, "cap")]
    with pytest.raises(CannotRun, match="this frame was not read from topics"):
        losses(other)


@pytest.mark.rule("P3.11", "P3.6")
def test_ended_records_are_there_when_asked_for_and_say_so(read, data):
    frame = read(path=data, subscribe="quakes", includeInternal="true").orderBy("offset")

    states = {row.offset: row.state for row in frame.collect()}

    live = {seq for seq, *_ in records(data, "quakes")}
    assert {seq for seq, state in states.items() if state == "live"} == live
    assert {state for seq, state in states.items() if seq % 3 == 0 and seq <= 99} == {"deleted"}
    assert states[101] == "expired"


@pytest.mark.rule("P3.6")
def test_a_damaged_record_is_an_error_or_a_flag(read, made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    segment = next(iter(sorted((copy / "topics").rglob("*.data"))))
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"i":6}') + 5] ^= 4
    segment.write_bytes(content)

    with pytest.raises(Exception, match=r"topic 'quakes' seq 7: the checksum does not match"):
        read(path=str(copy), subscribe="quakes").collect()
    flagged = read(path=str(copy), subscribe="quakes", verifyChecksums="flag")
    damaged = flagged.where("damaged").collect()
    assert [(row.offset, row.value) for row in damaged] == [(7, None)]
    assert flagged.where("not damaged").count() == len(records(made, "quakes")) - 1
    assert read(path=str(copy), subscribe="quakes", verifyChecksums="off").count() == len(
        records(made, "quakes")
    )


@pytest.mark.rule("P2.3")
def test_a_directory_in_use_is_read_beside_its_owner(read, tmp_path):
    with opened(tmp_path / "data") as store:
        topic = store.create("quakes", durability="fsync")
        topic.put_many([{"data": i} for i in range(100)])
        first = read(path=str(tmp_path / "data"), subscribe="quakes").count()
        store.checkpoint()
        topic.put_many([{"data": i} for i in range(50)])
        store.sync()
        frame = read(path=str(tmp_path / "data"), subscribe="quakes").select("offset")
        seen = sorted(row.offset for row in frame.collect())

        assert first <= 100
        assert seen[:100] == list(range(1, 101))
        assert topic.put(1).first_seq == 151


@pytest.mark.rule("P3.1")
def test_a_server_gives_what_its_directory_holds(read, server, name):
    with topics.Client(server.url) as client:
        topic = client.create(name, cap_records=2500)
        topic.put_many(
            [{"data": {"i": i}, "tag": "even" if i % 2 == 0 else None, "key": f"k{i}"} for i in range(3000)]
        )

    by_url = read(url=server.url, subscribe=name, includeHeaders="true", targetPartitionBytes="4000")
    by_path = read(path=str(server.data), subscribe=name, includeHeaders="true")

    assert by_url.count() == 2500
    assert by_url.rdd.getNumPartitions() >= 2
    assertDataFrameEqual(by_url, by_path)
    behind = read(url=server.url, subscribe=name, startingOffsets=f'{{"{name}": 1}}', failOnDataLoss="false")
    assert [tuple(row) for row in losses(behind).collect()] == [(name, 1, 500, "cap")]
    with pytest.raises(Exception, match=r"seqs 1 to 500 are lost \(cap\)"):
        read(url=server.url, subscribe=name, startingOffsets=f'{{"{name}": 1}}').collect()
    assert behind.where(f.col("offset").between(499, 502)).count() == 2
