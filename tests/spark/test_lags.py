"""A stream's place is read from its checkpoint, whether it runs or not; and held against the head of what it reads."""

import attrs
import pytest

from tests.spark.stores import fill, opened
from topics.kernel.errors import Rejected
from topics.spark.lags import At, Consumer, Lags, read_checkpoint
from topics.spark.overview import overview, overview_page

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

    assert (found.batch, found.places) == (10, {"ticks": At(1, 11)})  # 10 is behind 9, though not as a text


@pytest.mark.rule("P4.12")
def test_of_several_sources_those_of_topics_count_each_topic_by_the_one_that_is_last(checkpoint):
    other = '{"ticks": {"epoch": 2, "next": 40}}'

    found = read_checkpoint(checkpoint([KAFKA, OURS, "-", other], committed=1))

    assert found.places == {"quakes": At(1, 4), "ticks": At(2, 40)}


def test_before_its_first_commit_a_stream_has_no_place(checkpoint):
    path = checkpoint([OURS], committed=0)

    assert read_checkpoint(path) == Consumer(checkpoint=path, batch=None, places={})


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
    stranger = Consumer(checkpoint="./c", batch=3, places={"b": At(1, 1), "a": At(1, 1)})

    with pytest.raises(Rejected, match=r"\./c is of a stream that reads a, b, and none of these topics"):
        Lags([stranger], {})


@pytest.mark.rule("P4.12")
def test_a_report_tells_how_far_behind_a_stream_is(spark, tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    clock = fill(data)
    frame = spark.readStream.format("topics").options(
        path=str(data),
        subscribe="quakes,ticks,empty",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="1000",
    )
    query = (
        frame.load().select("offset").writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    )
    query.trigger(availableNow=True).start().awaitTermination(120)
    with opened(data, clock) as store:
        clock.advance(60_000)
        store.topic("ticks").put_many([{"data": i, "tag": "ab"[i == 2]} for i in range(20)])
        store.topic("ticks").delete(match="b")
        store.delete("empty")
        store.create("empty").put(1)
    read = spark.read.format("topics").options(
        path=str(data), subscribe="capped,empty,quakes,ticks", failOnDataLoss="false"
    )

    found = overview(
        read.load(),
        consumers=[
            read_checkpoint(str(checkpoint)),
            Consumer(checkpoint="./<b>", batch=1, places={"capped": At(1, 18)}),
            Consumer(checkpoint="./new", batch=None, places={}),
        ],
    )

    assert found.lags is not None
    assert [attrs.astuple(lag)[1:] for lag in found.lags] == [
        ("empty", 1, 1, 1, 0.0),  # made anew: its first record is still to be read
        ("quakes", 104, 0, 0, 0.0),
        ("ticks", 101, 20, 19, 71.0),
        ("capped", 18, 8, 8, 0.0),  # all of it was written at one time
    ]
    assert found.fresh == ["./new"]
    shown = overview_page("topics", found).decode()
    assert "<td>ticks</td>" in shown
    assert "./&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "ticks &lt; checkpoint" in shown
    assert "./new: no batch is committed yet" in shown
