"""A stream's place is read from its checkpoint, whether it runs or not; and held against the head of what it reads."""

import attrs
import pytest
from pyspark.sql import functions as f

from tests.spark.stores import fill, opened
from topics.audit.checks.acks import Acks
from topics.kernel.errors import Rejected
from topics.spark.lags import ConsumerLag, Lag, Lags, StreamPosition, read_checkpoint
from topics.spark.overview import Overview, latencies, overview_page, topics_of
from topics.spark.place import TopicOffsets

KAFKA = '{"clicks": {"0": 17}}'
OURS = '{"ticks": {"epoch": 2, "next": 51}, "quakes": {"epoch": 1, "next": 4}}'


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with these lines of offsets a batch, of which the first `committed` are done."""

    def make(*batches, committed, version="v1"):
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir()
        for number, lines in enumerate(batches):
            text = "\n".join([version, '{"batchWatermarkMs":0}', *lines])
            (tmp_path / "offsets" / str(number)).write_text(text)
            (tmp_path / "offsets" / f".{number}.crc").write_bytes(b"crc")
        for number in range(committed):
            (tmp_path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            (tmp_path / "commits" / f".{number}.crc").write_bytes(b"crc")
        return str(tmp_path)

    return make


@pytest.mark.rule("P4.12")
def test_the_place_is_that_of_the_last_committed_batch(checkpoint):
    batches = [[f'{{"ticks": {{"epoch": 1, "next": {n}}}}}'] for n in range(1, 13)]

    found = read_checkpoint(checkpoint(*batches, committed=11))

    assert (found.batch, found.places) == (
        10,
        {"ticks": StreamPosition(1, 11)},
    )  # 10 is behind 9, though not as a text


@pytest.mark.rule("P4.12")
def test_of_several_sources_those_of_topics_count_each_topic_by_the_one_that_is_last(checkpoint):
    other = '{"ticks": {"epoch": 2, "next": 40}}'

    found = read_checkpoint(checkpoint([KAFKA, OURS, "-", other], committed=1))

    assert found.places == {"quakes": StreamPosition(1, 4), "ticks": StreamPosition(2, 40)}


def test_before_its_first_commit_a_stream_has_no_place(checkpoint):
    path = checkpoint([OURS], committed=0)

    assert read_checkpoint(path) == ConsumerLag(checkpoint=path, batch=None, places={})


def test_what_is_no_checkpoint_of_ours_is_refused(checkpoint, tmp_path):
    with pytest.raises(Rejected, match="nowhere is no checkpoint of a stream: it has no offsets"):
        read_checkpoint(str(tmp_path / "nowhere"))
    path = checkpoint([KAFKA, "-"], committed=1, version="v1")
    with pytest.raises(Rejected, match="is of a stream that reads no topics"):
        read_checkpoint(path)
    (tmp_path / "offsets" / "0").write_text("v2\n{}\n" + OURS)
    with pytest.raises(Rejected, match="offsets/0 is of version 'v2'; only v1 is known"):
        read_checkpoint(path)
    (tmp_path / "offsets" / "0").unlink()
    (tmp_path / "offsets" / "7").write_text("v1\n{}\n" + OURS)
    with pytest.raises(Rejected, match="batch 0 is committed, and offsets/0 is not there"):
        read_checkpoint(path)


def test_a_stream_of_other_topics_is_refused():
    stranger = ConsumerLag(
        checkpoint="./c", batch=3, places={"b": StreamPosition(1, 1), "a": StreamPosition(1, 1)}
    )

    with pytest.raises(Rejected, match=r"\./c is of a stream that reads a, b, and none of these topics"):
        Lags([stranger], {})


@pytest.mark.rule("P4.12")
def test_a_stream_is_behind_by_what_has_come_since(read, tmp_path):
    data = tmp_path / "data"
    clock = fill(data)
    with opened(data, clock) as store:
        clock.advance(60_000)
        store.topic("ticks").put_many([{"data": i, "tag": "ab"[i == 2]} for i in range(20)])
        store.topic("ticks").delete(match="b")
        store.delete("empty")
        store.create("empty").put(1)
    places = {
        "empty": StreamPosition(1, 7),
        "quakes": StreamPosition(1, 104),
        "ticks": StreamPosition(1, 101),
        "gone": StreamPosition(1, 3),
    }
    consumers = [
        ConsumerLag(checkpoint="./a", batch=9, places=places),
        ConsumerLag(
            checkpoint="./b", batch=1, places={"capped": StreamPosition(1, 3), "ticks": StreamPosition(1, 81)}
        ),
        ConsumerLag(checkpoint="./new", batch=None, places={}),
    ]
    frame = read(path=str(data), subscribePattern="capped|empty|quakes|ticks")
    lags = Lags(consumers, topics_of(frame))

    rows = frame.groupBy("topic").agg(f.unix_millis(f.max("timestamp")).alias("last_ms"), *lags.columns())

    assert [attrs.astuple(lag) for lag in lags.of(rows.collect())] == [
        ("./a", "empty", 1, 1, 1, 0.0),  # made anew: its first record is still to be read
        ("./a", "quakes", 104, 0, 0, 0.0),
        ("./a", "ticks", 101, 20, 19, 71.0),  # one of them was deleted
        ("./b", "capped", 3, 23, 10, 0.0),  # 13 are lost, and so is what it had read
        ("./b", "ticks", 81, 40, 39, 91.0),
    ]


def test_a_topic_without_a_record_is_nothing_to_be_behind_of():
    offsets = TopicOffsets(name="t", epoch=1, earliest=5, stop=9, end=9)

    (lag,) = Lags(
        [ConsumerLag(checkpoint="c", batch=1, places={"t": StreamPosition(1, 5)})], {"t": offsets}
    ).of([])

    assert (lag.seqs, lag.records, lag.seconds) == (4, 0, 0.0)


@pytest.mark.rule("P4.12")
def test_the_page_shows_lags_and_latency_or_how_to_get_them():
    lag = Lag(checkpoint="./<b>/", topic="ticks", next=101, seqs=20, records=19, seconds=71.0)
    acks = Acks("<acks>")
    bare = Overview(
        zone="UTC", topics=[], hours={}, keys={}, tags={}, losses=[], lags=None, fresh=[], latency=None
    )
    full = attrs.evolve(bare, lags=[lag], fresh=["./new"], latency=latencies(acks, ["ticks"]))

    assert b"To see it, give --checkpoint PATH" in overview_page("x", bare)
    assert b"To see it, give --acks FILE" in overview_page("x", bare)
    shown = overview_page("x", full).decode()
    assert "<td>./&lt;b&gt;/</td><td>ticks</td>" in shown
    assert ">ticks &lt; &lt;b&gt;</text>" in shown
    assert "<p>./new: no batch is committed yet.</p>" in shown
    assert "&lt;acks&gt; has no record of these topics with sent_ms and acked_ms" in shown
    acks.time("ticks", 1, 2.5)
    shown = overview_page("x", attrs.evolve(full, latency=latencies(acks, ["ticks"]))).decode()
    assert ">up to 2 ms</text>" in shown
    assert "<b>" not in shown


@pytest.mark.rule("P4.12")
def test_streams_whose_checkpoints_are_called_alike_have_a_bar_each():
    lag = Lag(checkpoint="/jobs/copy/checkpoint", topic="ticks", next=1, seqs=20, records=19, seconds=1.0)
    lags = [lag, attrs.evolve(lag, checkpoint="/jobs/count/checkpoint", records=7)]
    found = Overview(
        zone="UTC", topics=[], hours={}, keys={}, tags={}, losses=[], lags=lags, fresh=[], latency=None
    )

    shown = overview_page("x", found).decode()

    assert ">ticks &lt; checkpoint</text>" in shown
    assert ">ticks &lt; checkpoint (2)</text>" in shown
