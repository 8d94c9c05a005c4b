"""Checkpoints of an embedded store: beside its callers, across kills, and out of the way of readers."""

from __future__ import annotations

import threading

import attrs
import pytest

import topics
from tests.support.embedded import SMALL, Sly, simulated
from topics.embed.lock import Reentered
from topics.host.backup.verifying import read_manifest, verify_backup
from topics.host.directory.layout import path_of
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Code, Corrupt, Fatal, Rejected
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk


def test_a_store_is_the_same_after_a_checkpoint_and_a_reopening(tmp_path):
    with topics.open(tmp_path, options=SMALL) as store:
        topic = store.create("t", durability="fsync")
        for i in range(10):
            topic.put_many([{"data": {"n": i * 50 + j}} for j in range(50)])
        store.checkpoint()
        store.checkpoint()
        assert [record.data["n"] for record in topic.read(limit=1000).records] == list(range(500))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FORMAT", "LOCK", "meta", "topics", "wal"]
    with topics.open(tmp_path, options=SMALL) as store:
        assert [record.data["n"] for record in store.topic("t").read(limit=1000).records] == list(range(500))
        assert store.topic("t").put({"n": 500}).first_seq == 501


def test_writers_and_readers_go_on_beside_checkpoints(tmp_path):
    """Four threads write, one reads, one takes checkpoints; nothing is lost, doubled or out of order."""
    wrong = []

    def write(name):
        for i in range(40):
            store.topic(name).put_many([{"data": {"n": i * 10 + j}} for j in range(10)])

    def read():
        seqs = dict.fromkeys(names, 0)
        while any(seq < 400 for seq in seqs.values()):
            for name in names:
                page = store.topic(name).read(from_seq=seqs[name])
                found = [record.data["n"] for record in page.records]
                if found != list(range(seqs[name], seqs[name] + len(found))) or page.tombstone is not None:
                    wrong.append((name, seqs[name], found))
                    return
                seqs[name] = page.next_from_seq

    def guarded(work, *args):
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001 -- told by the assertion below
            wrong.append(repr(error))

    names = ["a", "b", "c", "d"]
    with topics.open(tmp_path, options=SMALL) as store:
        for name in names:
            store.create(name, durability="fsync" if name < "c" else "disk")
        threads = [threading.Thread(target=guarded, args=(write, name)) for name in names]
        threads.append(threading.Thread(target=guarded, args=(read,)))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads[:4]):
            store.checkpoint()
        for thread in threads:
            thread.join()
        store.checkpoint()

    assert not wrong
    with topics.open(tmp_path, options=SMALL) as store:
        assert [store.topic(name).state().count for name in names] == [400] * 4


@pytest.mark.rule("T5.16")
def test_a_read_whose_log_a_checkpoint_removes_is_planned_again():
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly)
    topic = store.create("t", durability="fsync")
    topic.put_many([{"data": {"n": i}} for i in range(40)])

    def checkpoints():
        for _ in range(3):
            topic.put_many([{"data": "y" * 500}] * 40)
            store.checkpoint()

    sly.before_read = checkpoints
    page = topic.read(limit=40)

    assert [record.data["n"] for record in page.records] == list(range(40))
    assert disk.size("wal/gen-0/shard-00/wal-00000000000000000001.log") is None


def test_stores_that_are_open_for_a_moment_only_absorb_their_log_too(tmp_path):
    options = attrs.evolve(SMALL, checkpoint_wal_bytes=200_000)
    for start in range(0, 1000, 100):
        with topics.open(tmp_path, options=options) as store:
            store.topic("t").put_many([{"data": [start + i, "x" * 300]} for i in range(100)])
    with topics.open(tmp_path, options=options) as store:
        log = sum(path.stat().st_size for path in tmp_path.glob("wal/*/*/wal-*"))
        numbers = [record.data[0] for record in store.topic("t").records()]

    assert list(tmp_path.glob("topics/*/*.data"))
    assert log < 600_000
    assert numbers == list(range(1000))


@pytest.mark.rule("Q7.10")
def test_a_compaction_gives_back_all_that_is_dead_and_says_how_much_it_was(tmp_path):
    def data_bytes():
        return sum(path.stat().st_size for path in tmp_path.glob("topics/*/*.data"))

    with topics.open(tmp_path, options=SMALL) as store:
        topic = store.create("t", durability="fsync")
        topic.put_many([{"data": i, "tag": "go" if i % 3 else "stay"} for i in range(300)])
        store.checkpoint()
        before = data_bytes()
        topic.delete(before_seq=101)
        topic.delete(match="go")
        read = [(record.seq, record.data) for record in topic.read().records]
        result = store.compact()

        assert result.segments_removed == 2
        assert result.bytes_freed == before - data_bytes()
        assert data_bytes() < before / 4
        assert [(record.seq, record.data) for record in topic.read().records] == read
        assert store.compact() == topics.CompactionResult(segments_removed=0, bytes_freed=0)
    with pytest.raises(Rejected):
        store.compact()


def test_a_full_disk_refuses_a_checkpoint_and_a_later_one_succeeds():
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    topic.put_many([{"data": {"n": i}} for i in range(40)])
    disk.inject("create", FaultKind.ENOSPC)
    with pytest.raises(Rejected, match="no space for a checkpoint") as refused:
        store.checkpoint()

    assert refused.value.code is Code.DISK_LOW
    disk.heal()
    store.checkpoint()
    assert topic.read(limit=40).records[-1].data == {"n": 39}


def test_a_failing_disk_fails_checkpoints_and_nothing_else():
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    topic.put({"n": 0})
    disk.inject("truncate", FaultKind.EIO)
    disk.inject("create", FaultKind.EIO)
    with pytest.raises(Fatal, match="a checkpoint failed"):
        store.checkpoint()
    assert store._compactor.failures == 1
    disk.heal()

    topic.put({"n": 1})
    assert [record.data["n"] for record in topic.read().records] == [0, 1]
    store.checkpoint()
    assert store._compactor.failures == 0
    assert [record.data["n"] for record in topic.read().records] == [0, 1]


@pytest.mark.rule("T7.1")
def test_a_backup_is_taken_when_checkpoints_fail(tmp_path):
    """A failing disk is when one is wanted."""
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    topic.put({"n": 0})
    disk.inject("create", FaultKind.EIO, times=None)
    for _ in range(3):
        with pytest.raises(Fatal):
            store.checkpoint()
    store.backup(tmp_path / "backup")

    taken = OsDisk(tmp_path / "backup")
    assert verify_backup(taken, "the backup").findings == []
    assert [(topic.name, topic.head_seq) for topic in read_manifest(taken).topics] == [("t", 1)]
    taken.close()


def test_a_compaction_on_a_full_disk_gives_back_what_it_can():
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    for _ in range(4):
        topic.put_many([{"data": "x" * 100, "tag": "go"}] * 50)
    store.checkpoint()
    topic.put_many([{"data": "y" * 100} for _ in range(50)])
    topic.delete(match="go")
    disk.free = 5000
    result = store.compact()

    assert result.segments_removed == 4
    assert disk.free > 20_000
    assert topic.read().records[-1].seq == 250


@pytest.mark.rule("T5.11")
def test_damage_that_a_compaction_finds_is_told():
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    topic.put_many([{"data": {"n": i}, "tag": "go" if i % 5 else None} for i in range(100)])
    store.checkpoint()
    path = next(path for path in _files(disk) if path.endswith("0001.data"))
    disk.flip(path, disk.content(path).index(b'{"n":0}') * 8 + 40)
    topic.delete(match="go")
    assert store.damages == []
    freed = store.compact().bytes_freed

    (damage,) = store.damages
    assert (damage.topic, damage.first_seq, damage.last_seq) == ("t", 1, 50)
    assert disk.size(path) > freed > 0  # the other one was rewritten
    topic.delete(before_seq=51)
    store.compact()
    assert store.damages == []


def _files(disk, where="topics"):
    for name in disk.names(where):
        if disk.size(f"{where}/{name}") is None:
            yield from _files(disk, f"{where}/{name}")
        else:
            yield f"{where}/{name}"


def test_a_checkpoint_of_a_closed_store_is_refused():
    store, _ = simulated()
    store.close()

    with pytest.raises(Rejected, match="closed"):
        store.checkpoint()


def test_a_checkpoint_beside_a_failed_shard_is_refused_and_the_other_shards_go_on():
    """A failed shard stays busy for ever, so a cut that waited for it would hold up every other one."""
    store, disk = simulated(options=attrs.evolve(SMALL, shards=2))
    for i in range(4):
        store.create(f"t{i}", durability="fsync").put({"n": 0})
    disk.inject("write", FaultKind.EIO)
    with pytest.raises(Fatal):
        store.topic("t1").put({"n": 1})
    with pytest.raises(Rejected, match="open the store again") as refused:
        store.checkpoint()

    assert refused.value.code is Code.STORAGE_READ_ONLY
    assert sum(_accepts(store.topic(f"t{i}")) for i in range(4)) > 0
    store.close()


def _accepts(topic):
    try:
        topic.put({"n": 2})
    except Rejected:
        return False
    return True


def test_close_waits_for_the_round_of_another_thread():
    """The directory is given free behind the last call on it."""
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly)
    store.create("t", durability="fsync").put({"n": 0})
    order = []

    def close():
        store.close()
        order.append("closed")

    closer = threading.Thread(target=close)

    def begin_closing():
        closer.start()
        closer.join(0.2)
        order.append("copied")

    sly.before_make_dir = begin_closing
    with pytest.raises(Rejected, match="closed"):
        store.checkpoint()
    closer.join()

    assert order == ["copied", "closed"]


@pytest.mark.parametrize("call", ["checkpoint", "close"])
def test_a_call_from_a_handler_inside_a_round_is_refused_instead_of_waiting_for_itself(call):
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly)
    store.create("t", durability="fsync").put({"n": 0})
    sly.before_make_dir = getattr(store, call)
    with pytest.raises(Reentered):
        store.checkpoint()

    store.checkpoint()
    assert [record.data["n"] for record in store.topic("t").read().records] == [0]
    store.close()


@pytest.mark.rule("T5.13")
def test_readers_and_writers_go_on_beside_rewrites(tmp_path):
    """One thread reads from the beginning all the time, and is told of no damage; each record is the one of its seq."""
    wrong, ended = [], threading.Event()

    def read():
        try:
            while not ended.is_set():
                from_seq = 0
                while True:
                    page = topic.read(from_seq=from_seq, limit=200)
                    wrong.extend((r.seq, r.data) for r in page.records if r.data["n"] != r.seq)
                    if page.next_from_seq == from_seq:
                        break
                    from_seq = page.next_from_seq
        except Exception as error:  # noqa: BLE001 -- told by the assertion below
            wrong.append(repr(error))

    with topics.open(tmp_path, options=SMALL) as store:
        topic = store.create("t", durability="fsync")
        thread = threading.Thread(target=read)
        thread.start()
        for start in range(1, 2001, 100):
            topic.put_many(
                [{"data": {"n": n}, "tag": "keep" if n % 4 == 0 else "go"} for n in range(start, start + 100)]
            )
            topic.delete(match="go")
            store.checkpoint()
            store._compactor.carry_out(store._compactor._checkpointer.between)
        ended.set()
        thread.join()
        reclaimer = store._compactor._checkpointer.reclaimer

        assert wrong == []
        assert reclaimer.rewrites >= 30
        assert [record.seq for record in topic.read(limit=1000).records] == list(range(4, 2001, 4))
    with topics.open(tmp_path, options=SMALL) as store:
        assert [record.seq for record in store.topic("t").read(limit=1000).records] == list(range(4, 2001, 4))


@pytest.mark.rule("T5.14")
def test_a_checkpoint_says_what_it_has_left_out_and_does_all_else():
    store, disk = simulated(options=attrs.evolve(SMALL, checkpoint_wal_bytes=1))
    for name in ("bad", "good"):
        store.create(name, durability="fsync").put_many([{"data": n} for n in range(5)])
    found = store._opened.engine.state.catalog.find("bad")
    disk.flip(path_of(found.regions.source_until(3)[0]), (found.index.offsets[2] + 40) * 8)
    with pytest.raises(Corrupt, match=r"topic 'bad' has from seq 3 on.*topics fsck"):
        store.checkpoint()

    assert [(one.topic, one.first_seq, one.last_seq) for one in store.damages] == [("bad", 3, 3)]
    assert store._compactor.failures == 0
    assert not store.failures
    assert found.segments.stored_seq == 2
    assert store._opened.engine.state.catalog.find("good").segments.stored_seq == 5
    assert store.topic("bad").put(5).first_seq == 6
    assert store._compactor.carry_out(store._opened.checkpointer.due)  # nobody has asked for this one
    store.close()
