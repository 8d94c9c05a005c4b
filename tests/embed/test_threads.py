"""Many threads, one store: group commit, order, and what a fork may do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import topics
from topics.embed.store import Store
from topics.engine.batch import WalPosition
from topics.engine.commands import Append, PutTopic
from topics.engine.engine import Engine
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.host.system.systemcalls import SystemCalls
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.kernel.limits import PENDING_BYTES_MAX
from topics.log.regions import WalFileId
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory", "ephemeral"])
def test_every_thread_gets_its_own_seqs(tmp_path: Path, durability: str) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t", durability=durability)
        seqs: list[list[int]] = [[] for _ in range(8)]

        def append(k: int) -> None:
            for i in range(50):
                seqs[k] += topic.put_many([{"data": [k, i]}, {"data": [k, i]}]).seqs

        threads = [threading.Thread(target=append, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(seq for mine in seqs for seq in mine) == list(range(1, 801))
        assert all(mine == sorted(mine) for mine in seqs)
        found = {
            record.seq: record.data[0] for record in topic.records() if isinstance(record, topics.Record)
        }
        assert all(found[seq] == k for k, mine in enumerate(seqs) for seq in mine)


def test_threads_share_their_syncs(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t", durable=True)
        wal = store._opened.writers[0].wal  # frame numbers tell how many marks
        before = wal.statistics()["next_frame"]

        threads = [threading.Thread(target=lambda: [topic.put(1) for _ in range(100)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        marks = wal.statistics()["next_frame"] - before - 800
        assert 0 < marks < 800


def test_of_concurrent_writers_with_one_expected_head_exactly_one_wins(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t")
        topic.put("first")
        wins: list[int] = []
        codes: list[str] = []
        start = threading.Barrier(8)

        def append(k: int) -> None:
            start.wait()
            try:
                topic.put(k, expected_head=1)
            except topics.Rejected as refused:
                codes.append(refused.code)
            else:
                wins.append(k)

        threads = [threading.Thread(target=append, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(wins) == 1
        assert codes == ["seq_mismatch"] * 7
        assert topic.read(from_seq=1).records[0].data == wins[0]


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.topic("t")
        topic.put(1)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            answer = b"accepted"
            try:
                topic.put(2)
            except topics.Rejected:
                answer = b"refused"
            finally:
                os.write(write_end, answer)
                os._exit(0)
        os.waitpid(child, 0)

        assert os.read(read_end, 100) == b"refused"
        assert topic.put(3).first_seq == 2
        os.close(read_end)
        os.close(write_end)


def test_a_failed_sync_makes_the_shard_read_only_and_reads_go_on(tmp_path: Path) -> None:

    broken = threading.Event()

    def sync_data(fd: int) -> None:
        if broken.is_set():
            raise OSError(5, "planted")
        os.fsync(fd)

    disk = OsDisk(tmp_path, calls=SystemCalls(sync_data=sync_data))
    opened = open_store(
        disk, SystemClock(), SystemEntropy(), where="here", machine_restarted=False, confirm=lambda _: None
    )
    store = Store(opened, disk, where="here", housekeeping=False)
    topic = store.create("t", durable=True)
    topic.put("kept")
    broken.set()

    with pytest.raises(topics.Fatal):
        topic.put("unknown")
    with pytest.raises(topics.Rejected, match="read-only") as refused:
        topic.put("refused")

    assert refused.value.code == "storage_read_only"
    assert store.read_only
    assert "planted" in store.failures[0].message
    assert [record.data for record in topic.read().records] == ["kept"]
    store.close()
    disk.close()


@pytest.mark.parametrize("op", ["write", "sync_data"])
def test_a_write_or_a_sync_that_failed_ends_the_batch_there(
    open_sim: Callable[..., topics.Store], disk: SimDisk, op: str
) -> None:
    store = open_sim()
    topic = store.create("t", durable=True)
    topic.put("kept")
    disk.inject(op)
    before = len(disk.calls)

    with pytest.raises(topics.Fatal):
        topic.put("unknown")

    done = ["write", "sync_data"]
    assert [call.op for call in list(disk.calls)[before:]] == done[: done.index(op) + 1]
    assert [record.data for record in topic.read().records] == ["kept"]
    with pytest.raises(topics.Rejected, match="read-only"):
        topic.put("refused")
    store.close()


@pytest.mark.rule("T3.1")
def test_a_shard_has_one_writer_whatever_the_number_of_threads(tmp_path: Path) -> None:
    writing: set[int] = set()
    together: list[int] = []

    def sync_data(fd: int) -> None:
        writing.add(threading.get_ident())
        together.append(len(writing))
        os.fsync(fd)
        writing.discard(threading.get_ident())

    disk = OsDisk(tmp_path, calls=SystemCalls(sync_data=sync_data))
    opened = open_store(
        disk, SystemClock(), SystemEntropy(), where="here", machine_restarted=False, confirm=lambda _: None
    )
    with topics.Store(opened, disk, housekeeping=False) as store:
        topic = store.create("t", durable=True)
        threads = [threading.Thread(target=lambda: [topic.put(1) for _ in range(30)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert max(together) == 1
    disk.close()


@pytest.mark.rule("T3.1")
def test_what_waits_for_the_writer_is_bounded(clock: ManualClock) -> None:
    engine = Engine(clock)
    engine.space(0, 1 << 40)
    engine.propose(PutTopic(topic="t", config=TopicConfig()))
    batch = engine.take_batch(0)
    assert batch is not None
    at = WalPosition(WalFileId(0, 0, 1), 48)
    engine.written(batch, at)
    engine.synced(batch, at)
    command = Append(topic="t", records=RecordColumns([b"x" * (1 << 20)] * 50))

    with pytest.raises(topics.Rejected, match="wait to be written") as refused:
        for _ in range(10):
            engine.propose(command)

    assert refused.value.code == "throttled"
    assert engine.state.shards[0].pending_bytes <= PENDING_BYTES_MAX


@pytest.mark.rule("T3.13")
def test_a_lone_durable_write_is_synced_at_once(store: topics.Store, disk: SimDisk) -> None:
    topic = store.create("t", durable=True)
    topic.put(0)
    before = len(disk.calls)

    topic.put(1)

    kinds = [call.op for call in list(disk.calls)[before:]]
    assert kinds == ["write", "sync_data"]
