"""What a stream's offsets are, without Spark: limits, new topics, topics made anew, and losses told."""

import os
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tests.spark.stores import opened, own, unmark
from topics.kernel.errors import Corrupt, Rejected
from topics.spark.datasource import schema_of
from topics.spark.options import read_options
from topics.spark.place import DataLoss, starts_of_stream
from topics.spark.scan import ScanPlan, place_of
from topics.spark.stream import StreamReader

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def reader(data, **given):
    options = {"path": str(data), "subscribePattern": ".*", "startingOffsets": "earliest", **given}
    found = read_options({name.lower(): value for name, value in options.items() if value is not None})
    return StreamReader(ScanPlan(options=found, schema=schema_of(found)))


def put(data, name, count, **config):
    with opened(data, segment_records=7) as store:
        store.create(name, **config).put_many([{"data": "x" * 10} for _ in range(count)])


def seqs(stream, start, end):
    found = {}
    for partition in stream.partitions(start, end):
        for batch in stream.read(partition):
            for row in batch.to_pylist():
                found.setdefault(row["topic"], []).append(row["offset"])
    return found


@pytest.mark.rule("P3.3")
def test_a_stream_begins_at_the_head_unless_told(data):
    put(data, "a", 5)

    assert reader(data, startingOffsets="latest").initialOffset() == {"a": {"epoch": 1, "next": 6}}
    assert reader(data).initialOffset() == {"a": {"epoch": 1, "next": 1}}
    assert reader(data, startingOffsets='{"a": 3}').initialOffset() == {"a": {"epoch": 1, "next": 3}}
    with pytest.raises(Rejected, match="topic 'b' is not there"):
        reader(data, subscribe="b", subscribePattern=None).initialOffset()
    with pytest.raises(Rejected, match="a stream has no end"):
        reader(data, endingOffsets="latest")


def test_a_stream_of_many_topics_asks_once_which_there_are(data):
    put(data, "a", 5)
    with opened(data) as store:
        for i in range(20):
            store.create(f"b{i}")
    scan = reader(data)._scan
    asked = Counting(place_of(scan.options).look())

    starts = starts_of_stream(asked, scan.options)

    assert len(starts) == 21
    assert asked.times == 1


class Counting:
    """A view that counts how often it is asked for its topics."""

    def __init__(self, view):
        self._view, self.times = view, 0

    def topics(self):
        self.times += 1
        return self._view.topics()


@pytest.mark.rule("P3.4", "P3.12")
def test_a_limit_is_shared_by_what_each_topic_has_and_all_is_read_in_the_end(data):
    put(data, "a", 90)
    put(data, "b", 10)
    stream = reader(data, maxOffsetsPerTrigger="20")
    at, sizes, found = stream.initialOffset(), [], {"a": [], "b": []}

    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    while (end := stream.latestOffset(at, ReadMaxRows(20))) != at:
        got = seqs(stream, at, end)
        sizes.append(sum(map(len, got.values())))
        for name, some in got.items():
            found[name] += some
        at = end

    assert sizes == [20] * 5
    assert found == {"a": list(range(1, 91)), "b": list(range(1, 11))}
    assert reader(data, maxOffsetsPerTrigger="20").latestOffset(stream.initialOffset(), EVERYTHING) == at


@pytest.mark.rule("P3.4")
def test_topics_take_turns_where_there_are_more_of_them_than_offsets(data):
    """One that is far behind is not left out for others that get a record as often as there is a batch."""
    put(data, "a", 50)
    stream = reader(data, maxOffsetsPerTrigger="2")
    put(data, "b", 1)
    put(data, "c", 1)
    at = stream.initialOffset()
    for _ in range(9):
        end = stream.latestOffset(at, ReadMaxRows(2))
        assert sum(end[name]["next"] - at[name]["next"] for name in "abc") == 2
        at = end
        put(data, "b", 1)
        put(data, "c", 1)

    assert [at[name]["next"] - 1 for name in "abc"] == [6, 6, 6]


@pytest.mark.rule("P3.4")
def test_a_limit_of_bytes_lets_through_at_least_a_record_of_each(data):
    put(data, "a", 50)
    put(data, "b", 50)
    stream = reader(data, maxBytesPerTrigger="1000")
    start = stream.initialOffset()

    some = stream.latestOffset(start, stream.getDefaultReadLimit())
    least = stream.latestOffset(start, ReadMaxBytes(1))

    assert stream.getDefaultReadLimit() == ReadMaxBytes(1000)
    assert {name: at["next"] - 1 for name, at in some.items()} == {"a": 8, "b": 8}  # records of 58 bytes
    assert {name: at["next"] for name, at in least.items()} == {"a": 2, "b": 2}


@pytest.mark.rule("P3.2")
def test_a_topic_that_comes_later_is_read_from_its_first_record(data):
    put(data, "a", 3)
    stream = reader(data, startingOffsets="latest")
    start = stream.initialOffset()
    put(data, "b", 4)

    assert seqs(stream, start, stream.latestOffset(start, EVERYTHING)) == {"b": [1, 2, 3, 4]}


def test_what_is_available_now_is_all_that_is_read_now(data):
    put(data, "a", 3)
    stream = reader(data)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    put(data, "a", 3)
    put(data, "b", 3)

    assert stream.latestOffset(start, EVERYTHING)["a"]["next"] == 4
    assert stream.reportLatestOffset()["a"]["next"] == 7


@pytest.mark.rule("P3.5")
def test_records_lost_before_they_were_read_are_an_error_or_left_out(data):
    put(data, "a", 5, cap_records=10)
    start = reader(data).initialOffset()
    put(data, "a", 20, cap_records=10)
    strict, lenient = reader(data), reader(data, failOnDataLoss="false")
    end = strict.latestOffset(start, EVERYTHING)

    with pytest.raises(DataLoss, match=r"topic 'a': seqs 1 to 15 are lost \(cap\)"):
        strict.partitions(start, end)
    assert seqs(lenient, start, end) == {"a": list(range(16, 26))}


@pytest.mark.rule("P3.5")
def test_a_topic_that_is_deleted_or_made_anew_has_lost_what_was_to_come_and_that_is_told_once(data, caplog):
    put(data, "a", 5)
    put(data, "b", 5)
    start = reader(data).initialOffset()
    with opened(data) as store:
        store.delete("a")
        store.delete("b")
    put(data, "a", 2)
    lenient = reader(data, failOnDataLoss="false")

    with pytest.raises(DataLoss):
        reader(data).latestOffset(start, EVERYTHING)
    caplog.clear()
    end = lenient.latestOffset(start, EVERYTHING)

    assert end == {"a": {"epoch": 2, "next": 3}}
    assert seqs(lenient, start, end) == {"a": [1, 2]}
    assert caplog.messages == [
        "topic 'b': what begins with seq 1 is lost: the topic was deleted",
        "topic 'a': what begins with seq 1 is lost: recreated",
    ]
    caplog.clear()
    assert lenient.latestOffset(end, EVERYTHING) == end
    assert caplog.messages == []
    planned_before = {"a": {"epoch": 1, "next": 6}}
    assert lenient.partitions({"a": {"epoch": 1, "next": 1}}, planned_before) == []
    with pytest.raises(DataLoss, match="recreated"):
        reader(data).partitions({"a": {"epoch": 1, "next": 1}}, planned_before)


@pytest.mark.rule("P3.5")
def test_a_head_that_went_back_is_a_loss_and_the_stream_goes_on_from_there(data, tmp_path):
    put(data, "a", 5)
    shutil.copytree(data, tmp_path / "backup")
    put(data, "a", 495)
    strict, lenient = reader(data), reader(data, failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), EVERYTHING)
    assert start == {"a": {"epoch": 1, "next": 501}}
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "backup", data)  # a backup put back: the same instance, an earlier head

    with pytest.raises(DataLoss, match=r"topic 'a': seqs 6 to 500 are lost \(its head went back\)"):
        strict.latestOffset(start, EVERYTHING)
    back = lenient.latestOffset(start, EVERYTHING)
    assert back == {"a": {"epoch": 1, "next": 6}}
    assert seqs(lenient, start, back) == {}
    put(data, "a", 600)
    assert seqs(lenient, back, lenient.latestOffset(back, EVERYTHING)) == {"a": list(range(6, 606))}


@pytest.mark.rule("P3.5")
def test_a_head_that_only_damage_hides_has_not_gone_back(data):
    put(data, "a", 5)
    start = reader(data).latestOffset(reader(data).initialOffset(), EVERYTHING)
    log = max((data / "wal").rglob("wal-*.log"))
    content = bytearray(log.read_bytes())
    whole = bytes(content)
    at = content.rindex(b"x" * 10)
    content[at - 40 : at] = b"\xff" * 40  # its head: whose record it was nobody knows
    log.write_bytes(content)

    with pytest.raises(Corrupt, match="the log is damaged"):
        reader(data).latestOffset(start, EVERYTHING)
    assert reader(data, failOnDataLoss="false").latestOffset(start, EVERYTHING) == start
    log.write_bytes(whole)
    assert reader(data).latestOffset(start, EVERYTHING) == start


@pytest.mark.rule("P3.5")
def test_a_batch_that_was_planned_above_a_head_that_went_back_is_lost(data):
    put(data, "a", 5)
    strict, lenient = reader(data), reader(data, failOnDataLoss="false")

    for first, given in ((3, {"a": [3, 4, 5]}), (9, {})):
        planned = {"a": {"epoch": 1, "next": first}}, {"a": {"epoch": 1, "next": 12}}
        with pytest.raises(DataLoss, match=rf"seqs {max(first, 6)} to 11 are lost \(its head went back\)"):
            strict.partitions(*planned)
        assert seqs(lenient, *planned) == given


@pytest.mark.rule("P2.3", "P3.5")
def test_a_deletion_that_a_power_cut_could_take_back_is_waited_for(data, tmp_path):
    """Else a topic that was dropped and is there again would be read from its first record, a second time."""
    put(data, "a", 5)
    put(data, "b", 5)
    before = tmp_path / "before"
    shutil.copytree(data, before)
    with opened(data) as store:
        store.delete("a")
    shutil.copytree(data, tmp_path / "synced")
    strict, lenient = reader(data), reader(data, failOnDataLoss="false", maxBytesPerTrigger="1000")
    start = {"a": {"epoch": 1, "next": 4}, "b": {"epoch": 1, "next": 3}}
    waits = {"a": {"epoch": 1, "next": 4}, "b": {"epoch": 1, "next": 6}}

    unmark(data)
    own(data, pid=os.getpid())
    assert strict.latestOffset(start, EVERYTHING) == waits
    assert lenient.latestOffset(start, lenient.getDefaultReadLimit()) == waits
    assert seqs(lenient, start, waits) == {"b": [3, 4, 5]}

    shutil.rmtree(data)
    shutil.copytree(before, data)  # what the power cut leaves
    own(data, pid=os.getpid())
    assert lenient.latestOffset(waits, EVERYTHING) == {**waits, "a": {"epoch": 1, "next": 6}}
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "synced", data)
    own(data, pid=os.getpid())
    with pytest.raises(DataLoss, match="seqs 4 to 4 are lost"):
        strict.latestOffset(waits, EVERYTHING)
    assert lenient.latestOffset(waits, EVERYTHING) == {"b": waits["b"]}


@pytest.mark.rule("P2.3", "P3.5")
def test_records_that_are_not_shown_yet_are_not_lost(data):
    """An owner that has started since may not have told yet how far its log is synced."""
    put(data, "a", 5, durability="fsync")
    unmark(data)
    own(data, pid=os.getpid())
    shown = place_of(reader(data)._scan.options).look().topics()["a"]
    assert (shown.stop, shown.end) == (1, 6)
    read = {"a": {"epoch": 1, "next": 6}}

    assert reader(data).latestOffset(read, EVERYTHING) == read
    assert seqs(reader(data), {"a": {"epoch": 1, "next": 3}}, read) == {"a": [3, 4, 5]}
