"""Options are text that is checked, and pushed filters are bounds that leave out nothing that Spark would keep."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from topics.audit.columnar.arrow_batches import Verify
from topics.kernel.errors import Rejected
from topics.spark.datasource import FilteringReader, PushdownSource, TopicsSource
from topics.spark.filters import EPOCH, pushed
from topics.spark.options import ReadOptions, located, read_options, sink_options

OPERATORS = {
    EqualTo: lambda a, b: a == b, EqualNullSafe: lambda a, b: a == b, GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b, LessThan: lambda a, b: a < b, LessThanOrEqual: lambda a, b: a <= b,
}  # fmt: skip


def options(**given):
    return read_options(
        {name.lower(): value for name, value in {"path": "/data", **given}.items() if value is not None}
    )


@pytest.mark.rule("P3.2", "P3.4")
def test_what_is_given_is_what_is_meant():
    found = options(
        subscribe="a, b,a", startingOffsets='{"a": -2, "b": 7}', endingOffsets="LATEST", maxOffsetsPerTrigger="10",
        failOnDataLoss="False", verifyChecksums="flag", minPartitions="3", includeHeaders="true",
    )  # fmt: skip

    assert found.topics == ("a", "b")
    assert (found.starting, found.ending) == ({"a": -2, "b": 7}, "latest")
    assert (found.offsets_per_trigger, found.partitions_min) == (10, 3)
    assert (found.fail_on_loss, found.headers, found.internal, found.verify) == (
        False,
        True,
        False,
        Verify.FLAG,
    )
    assert options(assign='{"a": [0]}').topics == options(assign='["a"]').topics == ("a",)
    assert isinstance(options(subscribePattern="a.*"), ReadOptions)
    assert "s3cret" not in repr(options(path=None, url="http://h", token="s3cret", subscribe="a"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "subscribe: say which topics"),
        ({"subscribe": "a", "url": "http://h"}, "path: give the path of a data directory or backup, or the url"),
        ({"subscribe": "a", "path": None}, "path: give the path"),
        ({"subscribe": "a", "subscribePattern": "b"}, "subscribePattern: give subscribe, subscribePattern or assign"),
        ({"subscribe": "a", "assign": '["b"]'}, "assign: give subscribe"),
        ({"subscribe": "a,,b"}, "subscribe: 'a,,b' has an empty name"),
        ({"subscribe": "no topic"}, "topic name"),
        ({"assign": '{"a": [1]}'}, "assign: topic 'a' has one partition, 0"),
        ({"assign": "a"}, "assign: must be JSON"),
        ({"subscribePattern": "("}, "subscribePattern: '\\(' is no regular expression"),
        ({"subscribe": "a", "startingOffsets": '{"a": 0}'}, "startingOffsets: topic 'a': seqs count from 1"),
        ({"subscribe": "a", "startingOffsets": "first"}, "startingOffsets: must be earliest, latest or JSON"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "startingTimestamp: must be a whole number of at least 0"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions: must be a whole number from 1"),
        ({"subscribe": "a", "failOnDataLoss": "yes"}, "failOnDataLoss: must be true or false"),
        ({"subscribe": "a", "verifyChecksums": "on"}, "verifyChecksums: must be one of fail, flag, off"),
        ({"subscribe": "a", "startingOffset": "1"}, "startingoffset: is no option of topics; there are path"),
        ({"subscribe": "a", "token": "t"}, "token: a directory asks for none"),
        ({"subscribe": "a", "path": None, "url": "http://h", "includeInternal": "true"}, "includeInternal: a server"),
        ({"subscribe": "a", "path": None, "url": "http://h", "verifyChecksums": "flag"}, "verifyChecksums: a server"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given, why):
    with pytest.raises(Rejected, match=why):
        options(**given)


@pytest.mark.rule("P3.7")
def test_a_sink_needs_a_server_and_says_so():
    for wrong, why in (
        ({"path": "/data"}, "url: is missing: rows are written to a server, for a directory has one owner"),
        ({"url": "http://h", "writeid": "x" * 200}, "writeId: must be 1 to 128"),
        ({"url": "http://h", "batchrows": "0"}, "batchRows: must be a whole number from 1 to 10000"),
        ({"url": "http://h", "colour": "red"}, "colour: is no option of topics"),
    ):
        with pytest.raises(Rejected, match=why):
            sink_options(wrong)
    assert sink_options({"url": "http://h", "retries": "0"}).retries == 0


comparisons = st.sampled_from(sorted(OPERATORS, key=lambda kind: kind.__name__))
times = st.integers(0, 20_000).map(lambda us: EPOCH + timedelta(microseconds=us * 250))


@pytest.mark.rule("P3.12")
@given(st.lists(st.tuples(comparisons, st.integers(-3, 30)), max_size=4), st.integers(1, 25))
def test_filters_on_the_offset_are_kept_exactly(filters, seq):
    bounds, rest = pushed([kind(("offset",), value) for kind, value in filters])

    assert rest == []
    kept = bounds.seq_start <= seq < bounds.seq_stop
    assert kept == all(OPERATORS[kind](seq, value) for kind, value in filters)


@pytest.mark.rule("P3.12")
@given(st.lists(st.tuples(comparisons, times), max_size=4), st.integers(0, 5000))
def test_filters_on_the_timestamp_narrow_and_go_back_to_spark(filters, ms):
    given = [kind(("timestamp",), value) for kind, value in filters]
    bounds, rest = pushed(given)

    assert rest == given
    at = EPOCH + timedelta(milliseconds=ms)
    if all(OPERATORS[kind](at, value) for kind, value in filters):
        assert bounds.ts_ms_min <= ms
        assert bounds.ts_ms_max is None or ms <= bounds.ts_ms_max


def test_filters_on_the_topic_meet_and_what_is_not_understood_goes_back():
    others = [
        IsNotNull(("topic",)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("value",), b"1"),
        EqualTo(("x", "topic"), "a"),
    ]

    bounds, rest = pushed([In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), *others])

    assert bounds.topics == {"b"}
    assert rest == others
    naive = pushed(
        [GreaterThan(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC).astimezone().replace(tzinfo=None))]
    )
    assert naive[0].ts_ms_min == 1_767_225_600_000 - 1


@pytest.mark.rule("P1.4")
def test_a_folder_is_made_absolute_where_it_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert options(path="data", subscribe="a").path == str(tmp_path / "data")
    assert options(path="s3://bucket/backup", subscribe="a").path == "s3://bucket/backup"


@pytest.mark.rule("P1.4", "P3.1")
def test_a_file_url_is_a_folder_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert located("file:///data/a") == located("file:/data/a") == located("/data/a") == "/data/a"
    assert located("file:data") == located("data") == str(tmp_path / "data")
    assert located("s3://bucket/a") == "s3://bucket/a"
    with pytest.raises(Rejected, match=r"file://host/data is of another machine; file:///"):
        located("file://host/data")
    assert read_options({"path": "file:/data", "coldpath": "file:///cold", "subscribe": "t"}).cold == "/cold"


@pytest.mark.rule("P1.3")
def test_a_reader_pushes_filters_only_where_spark_was_told_to():
    given = {"path": "/data", "subscribe": "a"}
    for source, pushes in ((TopicsSource, False), (PushdownSource, True)):
        found = source(given)
        assert isinstance(found.reader(found.schema()), FilteringReader) == pushes
