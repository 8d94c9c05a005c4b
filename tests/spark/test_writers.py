"""What the driver says of a run when it plans a write: its name, when it began, how long the topic knows keys."""

import json
import uuid

import pytest

import topics
from topics.kernel.errors import Corrupt, Rejected
from topics.spark.options import sink_options
from topics.spark.writers import NOTE_FILE, BatchWriter, StreamWriter
from topics.testing.clock import ManualClock

HOUR_MS = 3_600_000
COLUMNS = ["value"]


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def checkpoint(tmp_path):
    """That of a stream whose batch 7 is being planned."""
    (tmp_path / "offsets").mkdir()
    plan(tmp_path, 6)
    plan(tmp_path, 7)
    return tmp_path


def plan(checkpoint, batch):
    for file in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "offsets" / file).write_text("v1\n{}\n{}")


def options(server, name, **others):
    return sink_options({"url": server.url, "topic": name, **others})


def writer(server, name, clock, **others):
    made = StreamWriter(options(server, name, **others), COLUMNS, overwrite=False, clock=clock)
    return made.batch, made.began_ms, made.window_ms


@pytest.mark.rule("P1.6")
def test_a_batch_begins_when_its_write_is_planned(server, name, clock):
    made = BatchWriter(options(server, name, writeid="load-7"), COLUMNS, overwrite=False, clock=clock)

    assert (made.run.name, made.run.began_ms, made.run.window_ms) == ("load-7", clock.now_ms(), 120_000)
    with topics.Client(server.url) as client:
        client.create(name, idempotency_window_ms=HOUR_MS)
    first, second = (BatchWriter(options(server, name), COLUMNS, overwrite=False).run for _ in range(2))
    assert first.window_ms == HOUR_MS
    assert uuid.UUID(first.name.removeprefix("spark-")) != uuid.UUID(second.name.removeprefix("spark-"))


@pytest.mark.rule("P1.6")
def test_a_batch_of_a_stream_that_is_planned_again_began_when_it_was_planned_first(
    server, name, clock, checkpoint
):
    """However late that is, and whatever has become of the topic's window: what was forgotten stays forgotten."""
    began_ms, at = clock.now_ms(), f"file://{checkpoint}"
    assert writer(server, name, clock, checkpointlocation=at) == (7, began_ms, 120_000)

    clock.advance(100 * HOUR_MS)
    with topics.Client(server.url) as client:
        client.create(name, idempotency_window_ms=1000 * HOUR_MS)
    assert writer(server, name, clock, checkpointlocation=str(checkpoint)) == (7, began_ms, 120_000)
    assert writer(server, name, clock, checkpointlocation=at, writeid="again") == (
        7, clock.now_ms(), 1000 * HOUR_MS
    )  # fmt: skip

    clock.advance(HOUR_MS)
    plan(checkpoint, 8)
    assert writer(server, name, clock, checkpointlocation=at) == (8, clock.now_ms(), 1000 * HOUR_MS)
    assert json.loads((checkpoint / NOTE_FILE).read_text())["batch"] == 8
    assert sorted(path.name for path in checkpoint.iterdir()) == ["offsets", NOTE_FILE]


@pytest.mark.rule("P1.6")
def test_a_checkpoint_of_which_nothing_can_be_known_is_refused(server, name, clock, checkpoint, tmp_path):
    with pytest.raises(
        Rejected, match=r"checkpointLocation: .*other has no offsets of a stream: give the whole"
    ):
        writer(server, name, clock, checkpointlocation=str(tmp_path / "other"))
    with pytest.raises(Rejected, match="checkpointLocation: give it as an option of the stream"):
        writer(server, name, clock, queryname="q")

    (checkpoint / NOTE_FILE).write_text('{"batch":')
    with pytest.raises(
        Corrupt, match=f"{NOTE_FILE} is no note of the sink .* remove it only if its rows are"
    ):
        writer(server, name, clock, checkpointlocation=str(checkpoint))


@pytest.mark.rule("P1.6")
def test_a_checkpoint_behind_a_url_keeps_the_note_and_one_that_spark_chose_needs_none(server, name, clock):
    import fsspec

    files = fsspec.filesystem("memory")
    files.pipe_file("/flow/offsets/0", b"v1\n{}\n{}")
    began_ms = clock.now_ms()

    for _ in range(2):
        assert writer(server, name, clock, checkpointlocation="memory://flow") == (0, began_ms, 120_000)
        clock.advance(HOUR_MS)

    assert files.exists(f"/flow/{NOTE_FILE}")
    assert writer(server, name, clock) == (None, clock.now_ms(), 120_000)
    files.rm("/flow", recursive=True)
