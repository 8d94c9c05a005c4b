"""What a task of the sink writes, without Spark: the same posts for the same rows, in whatever order they come."""

import itertools
import random

import pyarrow as pa
import pytest

import topics
from topics.kernel.errors import Rejected
from topics.kernel.limits import MIB
from topics.spark.options import BATCH_ROWS_MAX, sink_options
from topics.spark.run import CLOCKS_MS, KeysForgotten, SinkRun
from topics.spark.sink import PARTITION_BYTES_MAX, RowsDiffer, SinkWritten, check_columns, write_partition
from topics.testing.clock import ManualClock

BEGAN_MS = 1_700_000_000_000
WINDOW_MS = 120_000  # that of a topic, unless it is set


@pytest.fixture
def clock():
    """That of driver and executors; the server has its own."""
    return ManualClock(BEGAN_MS)


@pytest.fixture
def write(server, name, clock):
    def post(rows, run="r", partition=0, window_ms=None, **options):
        given = {"url": server.url, "topic": name, **options}
        found = sink_options({key.lower(): value for key, value in given.items() if value is not None})
        batches = [
            pa.RecordBatch.from_pylist(rows[at : at + 3], schema=SCHEMA) for at in range(0, len(rows), 3)
        ]
        known = SinkRun(name=run, began_ms=BEGAN_MS, window_ms=window_ms)
        return write_partition(iter(batches), found, run=known, partition=partition, clock=clock)

    return post


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.string()),
        ("headers", HEADERS),
        ("tag", pa.string()),
    ]
)


def row(value, **others):
    return {"topic": None, "key": None, "value": value, "headers": None, "tag": None, **others}


def stored(server, name):
    with topics.Client(server.url) as client:
        return [(item.data, item.key, item.tag, item.meta) for item in client.topic(name).records()]


@pytest.mark.rule("P3.9", "P1.6")
def test_the_same_rows_in_any_order_are_the_same_posts(write, server, name):
    rows = [row(str(i % 7), tag=f"t{i % 3}") for i in range(40)]

    first = write(rows, batchRows="10")
    random.Random(1).shuffle(rows)
    second = write(rows, batchRows="10")
    write(rows, batchRows="10", partition=1)

    assert first == SinkWritten(rows=40, posts=4, known=0)
    assert second == SinkWritten(rows=40, posts=4, known=4)
    assert len(stored(server, name)) == 80


@pytest.mark.rule("P3.9")
def test_other_rows_in_their_place_end_the_task(write, server, name):
    write([row("1"), row("2")])

    with pytest.raises(RowsDiffer, match=r"partition 0 from 0 are others than .* give another writeId"):
        write([row("1"), row("3")])
    assert len(stored(server, name)) == 2


def test_a_row_becomes_a_record_with_all_it_has(write, server, name):
    headers = [{"key": "unit", "value": b"km"}, {"key": "empty", "value": None}]

    write([row('{"a":1}', key=b"k", tag="us", headers=headers), row(None)])

    assert stored(server, name) == [
        ({"a": 1}, "k", "us", {"unit": "km", "empty": ""}),
        (None, None, None, {}),
    ]


@pytest.mark.rule("P3.7")
def test_rows_go_to_the_topics_they_name_unless_the_option_does(write, server, name):
    rows = [row("1", topic=f"{name}.a"), row("2", topic=f"{name}.b"), row("3", topic=f"{name}.a")]

    assert write(rows, topic=None).posts == 2
    assert write(rows).posts == 1
    assert [len(stored(server, topic)) for topic in (f"{name}.a", f"{name}.b", name)] == [2, 1, 3]


@pytest.mark.rule("P3.7")
def test_rows_with_keys_of_their_own_are_written_once_under_each(write, server, name):
    rows = [row(str(i), key=f"order-{i // 2}".encode()) for i in range(6)]

    assert write(rows, idempotencyKeyColumn="key") == SinkWritten(rows=6, posts=3, known=0)
    assert write(rows[::-1], idempotencyKeyColumn="key", partition=5, run="another") == SinkWritten(6, 3, 3)
    with pytest.raises(Rejected, match="idempotencyKeyColumn: key is no text in the sorted row 0"):
        write([row("1")], idempotencyKeyColumn="key")


@pytest.mark.rule("P3.7", "P3.9")
def test_rows_of_one_key_in_two_partitions_end_the_task_and_it_says_what_to_do(write, server, name):
    write([row("1", key=b"order-1")], idempotencyKeyColumn="key")

    with pytest.raises(RowsDiffer, match=r"key 'order-1'.* repartition the frame by that column") as told:
        write([row("2", key=b"order-1")], idempotencyKeyColumn="key", partition=1)

    assert "writeId" not in str(told.value)
    assert len(stored(server, name)) == 1


def test_what_cannot_be_written_is_told_and_nothing_of_its_post_is(write, server, name):
    with pytest.raises(Rejected, match=r"topic '.*', partition 0, sorted rows from 0: records\[1\].data"):
        write([row("1"), row("no JSON")])
    with pytest.raises(Rejected, match="has a header twice"):
        write([row("1", headers=[{"key": "a", "value": b""}, {"key": "a", "value": b""}])])
    with pytest.raises(Rejected, match="topic: is null in the sorted row 0"):
        write([row("1")], topic=None)
    with pytest.raises(Rejected, match="topic name"):
        write([row("1", topic="no topic!")], topic=None)
    with pytest.raises(Rejected, match="does not exist"):
        stored(server, name)


def test_a_partition_that_is_too_large_to_sort_is_refused_before_anything_is_written():
    mib = pa.RecordBatch.from_pylist([{"topic": "t", "value": "1" * MIB}])
    given = itertools.repeat(mib, 2 * PARTITION_BYTES_MAX // MIB)
    options = sink_options({"url": "http://127.0.0.1:1"})

    with pytest.raises(Rejected, match=r"partition 7 has 256 MiB and more.* at most 256 MiB .*: repartition"):
        write_partition(given, options, run=SinkRun(name="r", began_ms=0, window_ms=None), partition=7)

    left = sum(1 for _ in given)
    assert left == 2 * PARTITION_BYTES_MAX // MIB - 256  # it was not read to its end


@pytest.mark.rule("P3.7")
def test_rows_of_one_key_are_as_many_as_one_write_takes(write, server, name):
    rows = [row("1", key=b"k")] * BATCH_ROWS_MAX

    assert write(rows, idempotencyKeyColumn="key") == SinkWritten(rows=BATCH_ROWS_MAX, posts=1, known=0)
    for more in ([*rows, row("1", key=b"k")], [row("1" * MIB, key=b"k")] * 65):
        with pytest.raises(Rejected, match="over 10000 rows or 64 MiB have the text 'k'"):
            write(more, idempotencyKeyColumn="key")


def test_a_frame_that_has_no_place_is_refused_before_anything_is_written():
    options = sink_options({"url": "http://127.0.0.1:1", "idempotencykeycolumn": "id"})

    for names, why in (
        (["id"], "value: the frame has no column value"),
        (["value", "id"], "topic: name one"),
        (["value", "topic"], "idempotencyKeyColumn: the frame has no column 'id'"),
        (["value", "topic", "id", "price"], "price: is a column that a topic has no place for"),
    ):
        with pytest.raises(Rejected, match=why):
            check_columns(names, options)
    check_columns(["value", "topic", "id", "partition", "timestampType", "offset"], options)


def test_nothing_to_write_needs_no_server(write):
    assert write([], url="http://127.0.0.1:1") == SinkWritten(0, 0, 0)


@pytest.mark.rule("P1.6")
def test_a_post_is_made_only_while_the_topic_would_know_what_the_run_has_written(write, server, name, clock):
    """Whoever posts later does not know whether an earlier try of it is there, and forgotten."""
    clock.advance(WINDOW_MS - CLOCKS_MS)
    assert write([row("1")]) == SinkWritten(rows=1, posts=1, known=0)

    clock.advance(1)
    told = f"'{name}' knows .* key for 120000 ms .* began 119001 ms ago.* nothing was written now. Give the topic"
    with pytest.raises(KeysForgotten, match=told):
        write([row("2")], run="another")

    with topics.Client(server.url) as client:
        client.topic(name).configure(idempotency_window_ms=600_000)
    with pytest.raises(KeysForgotten, match="for 120000 ms"):
        write(
            [row("2")], run="another", window_ms=WINDOW_MS
        )  # a longer one does not bring back what is forgotten
    assert write([row("2")], run="another", window_ms=600_000).known == 0
    assert [data for data, *_ in stored(server, name)] == [1, 2]


@pytest.mark.rule("P1.6")
def test_an_answer_that_took_too_long_ends_the_task_unless_the_post_was_known(write, server, name, clock):
    class Late:
        """Each time it is asked, most of a window has passed."""

        def now_ms(self):
            clock.advance(WINDOW_MS - 2 * CLOCKS_MS)
            return clock.now_ms() - CLOCKS_MS

    options = sink_options({"url": server.url, "topic": name})
    run = SinkRun(name="r", began_ms=BEGAN_MS, window_ms=None)
    batch = pa.RecordBatch.from_pylist([row("1")], schema=SCHEMA)

    with pytest.raises(KeysForgotten, match=r"has written its rows: they are there twice if an earlier try"):
        write_partition(iter([batch]), options, run=run, partition=0, clock=Late())
    clock.set(BEGAN_MS)
    assert write_partition(iter([batch]), options, run=run, partition=0, clock=Late()).known == 1


@pytest.mark.rule("P1.6")
def test_a_topic_that_remembers_nothing_or_clocks_that_differ_are_refused(write, server, name, clock):
    with topics.Client(server.url) as client:
        client.create(name, idempotency_window_ms=1)
    with pytest.raises(KeysForgotten, match="for 1 ms"):
        write([row("1")])

    clock.set(BEGAN_MS - CLOCKS_MS - 1)
    with pytest.raises(KeysForgotten, match="the run begins in 1001 ms; the clocks of driver and executors"):
        write([row("1")])
    assert stored(server, name) == []
