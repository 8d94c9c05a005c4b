"""Plans of a directory and their reading, without Spark: each record once, however it is cut, wherever it went."""

import os
import shutil
from datetime import UTC, datetime, timedelta

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

import topics
from tests.spark.stores import START_MS, fill, fill_cold, opened, own, records, unmark
from topics.audit.columnar.arrow_batches import Verify
from topics.host.directory.layout import FORMAT_FILE
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import CannotOpen, Corrupt, Rejected
from topics.spark.datasource import PushdownSource, schema_of
from topics.spark.directory import GONE_MAX, _read, open_disk
from topics.spark.fetch import READ_THROUGH, PieceFetcher
from topics.spark.options import read_options
from topics.spark.place import DataLoss, ReadBounds, ReadForm, ranges_of_batch
from topics.spark.scan import ScanPlan, place_of

AT = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("fetch") / "data"
    fill(path)
    return path


def scan(path, **given):
    options = read_options({name.lower(): str(value) for name, value in {"path": path, **given}.items()})
    return ScanPlan(options=options, schema=schema_of(options))


def planned(path, **given):
    """How to read, and what there is to be read now."""
    how = scan(path, **given)
    view = place_of(how.options).look()
    return how, how.partitions(view, ranges_of_batch(view, how.options), ReadBounds())


def rows(how, partitions):
    return [row for partition in partitions for batch in how.batches(partition) for row in batch.to_pylist()]


def seqs(how, partitions):
    return [row["offset"] for row in rows(how, partitions)]


@pytest.fixture(scope="module")
def seen(made):
    """The directory once looked at, and the live seqs of a topic as a reader has them."""
    return place_of(scan(made, subscribe="quakes").options).look(), [
        seq for seq, *_ in records(made, "quakes")
    ]


@pytest.mark.rule("P1.1")
@given(target=st.integers(1, 20_000), start=st.integers(1, 104), size=st.integers(0, 120))
def test_however_a_range_is_cut_each_live_record_of_it_is_read_once_and_in_order(
    made, seen, target, start, size
):
    stop = min(start + size, 104)
    view, live = seen
    offsets = {"startingOffsets": f'{{"quakes": {start}}}', "endingOffsets": f'{{"quakes": {stop}}}'}
    how = scan(made, subscribe="quakes", targetPartitionBytes=target, **offsets)

    partitions = how.partitions(view, ranges_of_batch(view, how.options), ReadBounds())

    assert seqs(how, partitions) == [seq for seq in live if start <= seq < stop]
    assert all(
        sum(part.size for part in partition.parts) <= target + RECORD_BYTES_MAX for partition in partitions
    )


RECORD_BYTES_MAX = 200


@pytest.mark.rule("P3.12")
@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([], range(1, 101)),
        ([GreaterThan(("offset",), 20), LessThanOrEqual(("offset",), 45)], range(21, 46)),
        ([EqualTo(("topic",), "quakes")], ()),
        ([GreaterThanOrEqual(("timestamp",), AT + timedelta(seconds=50))], range(51, 101)),
        ([LessThan(("timestamp",), AT + timedelta(seconds=50))], range(1, 52)),  # to the millisecond
        ([EqualTo(("timestamp",), AT + timedelta(seconds=50)), GreaterThan(("offset",), 51)], ()),
    ],
    ids=["none", "offset", "topic", "from", "until", "both"],
)
def test_pushed_filters_leave_out_of_the_plan_what_they_exclude(made, filters, kept):
    source = PushdownSource({"path": str(made), "subscribe": "ticks"})
    reader = source.reader(source.schema())

    list(reader.pushFilters(filters))

    partitions = [partition.value for partition in reader.partitions()]
    assert [
        int(seq) for partition in partitions for part in partition.parts for seq in part.all_seqs()
    ] == list(kept)


@pytest.mark.rule("P2.3")
def test_records_that_moved_from_the_log_to_segments_are_found_there(tmp_path):
    data = tmp_path / "data"
    with opened(data, segment_records=10) as store:
        store.create("a").put_many([{"data": {"i": i, "pad": "x" * 100}} for i in range(95)])
        store.sync()
        how, partitions = planned(data, subscribe="a")
        assert {part.path.split("/")[0] for part in partitions[0].parts} == {"wal"}
        store.checkpoint()
        shutil.rmtree(data / "wal")  # more than a checkpoint removes

        assert seqs(how, partitions) == list(range(1, 96))


@pytest.mark.rule("P2.3")
def test_whatever_has_moved_is_found_by_one_look(tmp_path):
    """Small records among large ones lie far from each other in the log: each is read by itself."""
    data = tmp_path / "data"
    with opened(data) as store:
        for i in range(30):
            store.topic("a").put(i)
            store.topic("b").put(i)
            store.topic("large").put("x" * (READ_THROUGH + 1))
        store.sync()
        how, partitions = planned(data, subscribe="a,b", targetPartitionBytes=1 << 30)
        store.checkpoint()
        shutil.rmtree(data / "wal")
    place, looks = place_of(how.options), []

    def look():
        looks.append(1)
        return place.look()

    assert len(partitions) == 1
    reading = ReadForm(schema=how.schema, verify=Verify.FAIL, fail_on_loss=True)
    found = PieceFetcher(disk=open_disk(str(data)), look=look, how=reading).batches(partitions[0].parts)

    assert [seq for batch in found for seq in batch["offset"].to_pylist()] == [*range(1, 31)] * 2
    assert len(looks) == 1


@pytest.mark.rule("P2.3")
def test_records_that_a_rewrite_moved_within_their_segment_are_found_and_deleted_ones_are_not(tmp_path):
    data = tmp_path / "data"
    with opened(data, segment_records=10) as store:
        topic = store.create("a")
        topic.put_many([{"data": i, "tag": "odd" if i % 3 else "even"} for i in range(50)])
        store.checkpoint()
        how, partitions = planned(data, subscribe="a")
        sizes = [path.stat().st_size for path in sorted(data.rglob("*.data"))]
        topic.delete(match="odd")
        for _ in range(3):
            topic.put(1)
            store.sync()
            store.checkpoint()
            while store._compactor.carry_out(store._opened.checkpointer.between):
                pass
        assert min(data.rglob("*.data")).stat().st_size < sizes[0]

        assert seqs(how, partitions) == list(range(1, 51, 3))


@pytest.mark.rule("P3.5")
def test_what_was_lost_since_the_plan_is_an_error_or_left_out_and_what_was_deleted_is_left_out(tmp_path):
    data = tmp_path / "data"
    with opened(data, segment_records=10) as store:
        topic = store.create("a", cap_records=100)
        topic.put_many([{"data": i} for i in range(95)])
        store.checkpoint()
        strict, partitions = planned(data, subscribe="a")
        lenient, _ = planned(data, subscribe="a", failOnDataLoss="false")
        topic.delete(before_seq=11)
        topic.put_many([{"data": i} for i in range(40)])
        shutil.rmtree(data / "topics")  # as a reclaim would do, and more

        with pytest.raises(DataLoss, match=r"topic 'a': seqs 1 to 35 are lost \(cap\)"):
            seqs(strict, partitions)
        with pytest.raises(Corrupt, match=r"topic 'a' seq 36 to 40: .* is not there"):
            seqs(lenient, partitions)  # those that live on must be somewhere


@pytest.mark.rule("P3.5")
def test_a_topic_that_was_deleted_or_made_anew_since_the_plan_has_lost_what_was_planned(tmp_path):
    data, backup = tmp_path / "data", tmp_path / "backup"
    with opened(data, segment_records=10) as store:
        store.create("a").put_many([{"data": i} for i in range(30)])
        store.sync()
        store.checkpoint()
        shutil.copytree(data, backup)
        store.topic("a").put_many([{"data": i} for i in range(20)])
        store.sync()
        store.checkpoint()
    strict, partitions = planned(data, subscribe="a")
    lenient, _ = planned(data, subscribe="a", failOnDataLoss="false")
    assert len(partitions[0].parts) == 5  # the loss is told of all of them

    with opened(data) as store:
        store.delete("a")
    shutil.rmtree(data / "topics")
    with pytest.raises(DataLoss, match=r"topic 'a': seqs 1 to 50 are lost \(the topic was deleted\)"):
        seqs(strict, partitions)
    assert seqs(lenient, partitions) == []
    with opened(data) as store:
        store.create("a").put_many([{"data": i} for i in range(60)])
    with pytest.raises(DataLoss, match=r"topic 'a': seqs 1 to 50 are lost \(recreated\)"):
        seqs(strict, partitions)
    assert seqs(lenient, partitions) == []
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    with pytest.raises(DataLoss, match=r"topic 'a': seqs 31 to 50 are lost \(its head went back\)"):
        seqs(strict, partitions)
    assert seqs(lenient, partitions) == list(range(1, 31))


def test_damage_that_stays_where_it_is_is_told(made, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(made, data)
    how, partitions = planned(data, subscribe="quakes")
    flagging, _ = planned(data, subscribe="quakes", verifyChecksums="flag")
    segment = min((data / "topics").rglob("*.data"))
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"i":3}') + 5] ^= 1
    segment.write_bytes(content)

    with pytest.raises(Corrupt, match="topic 'quakes' seq 4: the checksum does not match"):
        seqs(how, partitions)
    assert flagging.options.verify is Verify.FLAG
    assert [row["offset"] for row in rows(flagging, partitions) if row["damaged"]] == [4]
    segment.unlink()
    with pytest.raises(Corrupt, match=r"topic 'quakes' seq 1 to 40: .*\.data is not there; run topics fsck"):
        seqs(how, partitions)
    assert {row["offset"] for row in rows(flagging, partitions) if row["damaged"]} == {
        seq for seq, *_ in records(made, "quakes") if seq <= 40
    }


def test_a_damaged_log_is_refused_unless_loss_is_fine(made, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(made, data)
    with opened(data) as store:
        store.topic("ticks").put_many([{"data": i} for i in range(50)])
    log = max((data / "wal").rglob("wal-*.log"))
    content = bytearray(log.read_bytes())
    at = (
        content.rindex(b'{"tick"')
        if b'{"tick"' in content
        else content.rindex(b"41", 0, len(content.rstrip(b"\x00")))
    )
    content[at] ^= 255
    log.write_bytes(content)

    with pytest.raises(Corrupt, match=r"the log is damaged: .*topics fsck"):
        planned(data, subscribe="ticks")
    how, partitions = planned(data, subscribe="ticks", failOnDataLoss="false")
    assert len(seqs(how, partitions)) > 40


@pytest.mark.rule("P3.1")
def test_a_backup_in_an_object_store_is_read_where_it_lies(made):
    files = fsspec.filesystem("memory")
    files.put(str(made), "/backup", recursive=True)

    how, partitions = planned("memory://backup", subscribe="quakes")

    assert seqs(how, partitions) == [seq for seq, *_ in records(made, "quakes")]
    with pytest.raises(CannotOpen, match="memory://nowhere is no topics directory"):
        planned("memory://nowhere", subscribe="quakes")


def test_segments_of_the_cold_tier_are_read_from_there(tmp_path):
    data, cold = tmp_path / "data", tmp_path / "cold"
    fill_cold(data, cold)

    how, partitions = planned(data, subscribe="a", coldPath=cold)

    assert seqs(how, partitions) == list(range(1, 41))
    with pytest.raises(
        Rejected, match=r"coldPath: topics/.*\.data is in the cold tier: name its folder or URL"
    ):
        planned(data, subscribe="a")
    without, partitions = planned(data, subscribe="a", startingOffsets='{"a": 33}')
    assert seqs(without, partitions) == list(range(33, 41))


@pytest.mark.rule("P2.3")
def test_a_write_that_no_sync_has_covered_is_not_shown_while_its_owner_runs(unmarked):
    own(unmarked, pid=os.getpid())
    assert stops(unmarked) == {"safe": 1, "quick": 4}
    own(unmarked, pid=DEAD)
    assert stops(unmarked) == {"safe": 2, "quick": 4}
    own(unmarked, pid=0)
    assert stops(unmarked) == {"safe": 2, "quick": 4}


@pytest.mark.rule("P2.3")
def test_an_owner_that_could_run_on_another_machine_is_taken_to_run(unmarked):
    own(unmarked, pid=DEAD, boot_id="another machine's")
    assert stops(unmarked)["safe"] == 1
    own(unmarked, pid=DEAD)
    files = fsspec.filesystem("memory")
    files.put(str(unmarked), "/mounted", recursive=True)
    assert stops("memory://mounted")["safe"] == 1
    files.rm("/mounted/LOCK")  # as in a backup
    assert stops("memory://mounted")["safe"] == 2


DEAD = 2**22 + 1  # above the highest pid that Linux gives


@pytest.fixture
def unmarked(tmp_path):
    """A directory whose log does not say that its records are synced."""
    data = tmp_path / "data"
    with opened(data, sync_interval_ms=10_000_000) as store:
        safe = store.create("safe", durability="fsync")
        store.create("quick", durability="memory").put_many([{"data": i} for i in range(3)])
        safe.put(1)
    unmark(data)
    return data


def stops(data):
    """Behind the last seq that is shown, a topic."""
    topics = place_of(scan(data, subscribePattern=".*").options).look().topics()
    return {name: offsets.stop for name, offsets in topics.items()}


class Absorbed(ReadOnlyDisk):
    """A directory whose owner replaces the newest snapshot just before it is read, so many times."""

    def __init__(self, root, times):
        super().__init__(root)
        self.times, self.formats = times, 0

    def size(self, path):
        self.formats += path == FORMAT_FILE
        return super().size(path)

    def read(self, path, offset, size):
        if "snapshot" in path and self.times:
            self.times -= 1
            raise FileNotFoundError(path)
        return super().read(path, offset, size)


@pytest.mark.rule("P2.3")
def test_an_owner_that_takes_many_checkpoints_a_second_is_waited_for(made):
    disk = Absorbed(made, GONE_MAX - 1)

    assert _read(disk, "a store", None).recovered.catalog.find("quakes").head_seq == 103
    assert disk.formats == GONE_MAX  # its shards may have changed, too
    with pytest.raises(FileNotFoundError):
        _read(Absorbed(made, GONE_MAX), "a store", None)


def test_a_folder_that_is_no_directory_of_topics_is_refused(tmp_path):
    with pytest.raises(CannotOpen, match="there is no FORMAT in it"):
        planned(tmp_path / "nothing", subscribe="a")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CannotOpen, match="is no topics directory"):
        planned(tmp_path, subscribe="a")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with topics.open(tmp_path / "data") as store:
        store.create("a")
    with pytest.raises(Rejected, match="subscribe: topic 'b' is not there"):
        planned(tmp_path / "data", subscribe="b")
