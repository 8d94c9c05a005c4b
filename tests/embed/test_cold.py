"""A store in this process with a cold directory: a folder, an object store, a store that hangs."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

import topics
from tests.support.faulty_store import FaultyStore
from tests.support.s3_server import s3_server
from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.place import open_cold
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.system.memory import MemoryDisk
from topics.kernel.errors import Rejected
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

TINY = SegmentRules(records_max=8, bytes_max=100_000, age_ms=0)
HOT = HotRules(retain_segments=1)


def options(place):
    return StoreOptions(cold_dir=place, hot=HOT, segments=TINY, min_free_bytes=0)


def moved(store):
    """All that is due in the background is done, by this thread."""
    for _ in range(2):
        store.sync()
        store.checkpoint()
    while store._compactor.carry_out(store._opened.checkpointer.between):
        pass
    return store._opened.cold.segments()


@pytest.mark.rule("T6.2", "T6.3", "T1.8")
@pytest.mark.parametrize("place", ["folder", "memory://embedded/cold"])
def test_older_segments_go_to_a_folder_or_an_object_store_and_stay_readable(tmp_path, place):
    place = place if "://" in place else str(tmp_path / "cold" / "deeper")
    with topics.open(tmp_path / "data", options=options(place)) as store:
        topic = store.topic("t")
        topic.put_many([{"data": {"n": n}} for n in range(40)])
        assert moved(store) == 4
        assert [record.data["n"] for record in topic.read(limit=40).records] == list(range(40))
    with topics.open(tmp_path / "data", options=options(place)) as store:
        assert [record.data["n"] for record in store.topic("t").read(limit=40).records] == list(range(40))
    if "://" not in place:
        names = sorted(path.name for path in (tmp_path / "cold" / "deeper").rglob("*.data"))
        assert names == [f"seg-{first:020d}.data" for first in (1, 9, 17, 25)]
        assert len(list((tmp_path / "data" / "topics").rglob("*.data"))) == 1


@pytest.mark.rule("T6.3")
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("data", "is or lies in .*data, which is a data directory"),
        ("link", "is or lies in .*data, which is a data directory"),
        ("data/topics", "is or lies in .*data, which is a data directory"),
        ("file://data", "is or lies in .*data, which is a data directory"),
        ("b", "is or lies in .*b, which is a backup"),
    ],
)
def test_a_cold_directory_in_a_data_directory_is_refused_from_the_first_start_on(tmp_path, place, message):
    """A segment that goes to the place where it is would be removed there."""
    scheme, _, path = place.rpartition("://")
    place = f"{scheme}://{tmp_path / path}" if scheme else str(tmp_path / path)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with topics.open(tmp_path / "other") as store:
        store.backup(tmp_path / "b")
    for _ in range(2):
        with pytest.raises(Rejected, match=message):
            topics.open(tmp_path / "data", options=options(place))
    with topics.open(tmp_path / "data", options=options(str(tmp_path / "cold"))) as store:
        store.topic("t").put_many([{"data": n} for n in range(40)])
        assert moved(store) == 4
    with pytest.raises(Rejected, match=message):
        topics.open(tmp_path / "data", options=options(place))
    with topics.open(tmp_path / "data", options=options(str(tmp_path / "cold"))) as store:
        assert [record.data for record in store.topic("t").read(limit=40).records] == list(range(40))


@pytest.mark.rule("T6.2", "T6.3")
def test_older_segments_go_to_s3_with_what_aws_tools_look_for(tmp_path, monkeypatch):
    """Endpoint and keys come from the environment, none of them from us."""
    with s3_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server["client_kwargs"]["endpoint_url"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server["key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server["secret"])
        importlib.import_module("s3fs").S3FileSystem(skip_instance_cache=True).mkdir("bucket")
        with topics.open(tmp_path / "data", options=options("s3://bucket/store")) as store:
            topic = store.topic("t")
            topic.put_many([{"data": {"n": n}} for n in range(40)])
            assert moved(store) == 4
        with topics.open(tmp_path / "data", options=options("s3://bucket/store")) as store:
            assert [record.data["n"] for record in store.topic("t").read(limit=40).records] == list(range(40))


@pytest.mark.rule("T6.6")
def test_a_cold_directory_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "cold").write_text("not a folder")
    with pytest.raises(topics.Rejected, match=r"cold_dir: .*cold cannot be used: "):
        topics.open(tmp_path / "data", options=options(str(tmp_path / "cold")))
    with topics.open(tmp_path / "data") as store:  # and the directory is free again
        store.topic("t").put(1)


@pytest.mark.rule("T6.4")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
def test_a_start_that_fails_leaves_no_file_of_the_cold_directory_open(tmp_path):
    place = str(tmp_path / "cold")
    with topics.open(tmp_path / "data", options=options(place)) as store:
        store.topic("t").put({"n": 1})
    (tmp_path / "data" / "wal" / "gen-0" / "shard-00" / "CURRENT").unlink()
    (tmp_path / "data" / "wal" / "gen-0" / "shard-00" / "CURRENT").mkdir()
    with pytest.raises(topics.CannotOpen):
        topics.open(tmp_path / "data", options=options(place))

    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [path for path in held if path.startswith(str(tmp_path))] == []


def test_a_cold_read_that_hangs_holds_up_no_other_thread():
    cold = FaultyStore(LocalSegmentStore(MemoryDisk(), "the cold place"))
    disk = MemoryDisk()
    opened = open_store(
        disk, ManualClock(), SeededEntropy(), where="memory", machine_restarted=True, confirm=lambda _: None,
        options=StoreOptions(segments=TINY, hot=HOT, min_free_bytes=0), cold=cold,
    )  # fmt: skip
    reading, let_go, found = threading.Event(), threading.Event(), []

    def waits(operation):
        if operation == "read_range" and armed:
            reading.set()
            assert let_go.wait(30)

    with Store(opened, disk, housekeeping=False) as store:
        topic = store.topic("t")
        topic.put_many([{"data": n} for n in range(40)])
        armed = False
        assert moved(store) == 4
        armed, cold.waits = True, waits
        reader = threading.Thread(target=lambda: found.extend(r.data for r in topic.read(limit=3).records))
        reader.start()
        assert reading.wait(30)
        assert topic.put(40).first_seq == 41
        assert [record.data for record in topic.read(from_seq=39, limit=5).records] == [39, 40]
        store.checkpoint()
        assert found == []
        let_go.set()
        reader.join()

    assert found == [0, 1, 2]


@pytest.mark.rule("T6.2", "T6.3")
@pytest.mark.parametrize("scheme", ["file", "local", "FILE"])
def test_a_folder_that_is_named_by_a_url_is_synced_as_any_folder(tmp_path, scheme):
    store = open_cold(f"{scheme}://{tmp_path}/cold")

    assert isinstance(store, LocalSegmentStore)
    assert store.where == f"{tmp_path}/cold"
    store.close()


@pytest.mark.rule("T6.3")
@pytest.mark.parametrize("scheme", ["sftp", "ssh", "smb", "ftp", "hdfs", "simplecache::s3", "http"])
def test_a_place_that_does_not_say_when_a_file_is_durable_is_refused(tmp_path, scheme):
    """The copy in the data directory goes as soon as the segment is there."""
    with pytest.raises(Rejected, match=f"{scheme}:// does not say when a file is durable.*mount it and give"):
        topics.open(tmp_path / "data", options=options(f"{scheme}://somewhere/cold"))
