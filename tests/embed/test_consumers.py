"""Positions of consumers outlast whatever the store does: closing, checkpoints, backup and restore, SIGKILL, another
number of shards."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import topics
from topics.host.system.disk import OsDisk
from topics.store.restore import restore

CLASSES = ("memory", "disk", "fsync")


def fill(store: topics.Store) -> None:
    for name in CLASSES:
        topic = store.create(name, durability=name)
        topic.put_many([{"data": number} for number in range(1, 11)])
        topic.consumer("c").seek()
        topic.consumer("c").commit(6)
        topic.consumer("gone").seek(tail=True)
        topic.consumer("gone").delete()
        topic.consumer("back").seek(tail=True)
        topic.consumer("back").seek(seq=3)


def positions(store: topics.Store) -> dict[str, list[tuple[str, int, int]]]:
    return {
        name: [(state.consumer, state.from_seq, state.updated_ts) for state in store.topic(name).consumers()]
        for name in CLASSES
    }


@pytest.mark.rule("Q7.9", "H7.7")
def test_positions_outlast_closing_checkpoints_copies_and_another_number_of_shards(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data) as store:
        fill(store)
        before = positions(store)
        assert [row[:2] for row in before["disk"]] == [("back", 3), ("c", 6)]
        store.backup(tmp_path / "from-log")
    with topics.open(data) as store:
        assert positions(store) == before
        for _ in range(3):  # behind them the log of it is gone
            store.checkpoint()
            store.topic("disk").put(0)
        store.backup(tmp_path / "from-snapshot")
    for shards in (None, 4, 1):
        with topics.open(data, options=topics.StoreOptions(shards=shards)) as store:
            assert positions(store) == before
    for name in ("from-log", "from-snapshot"):
        restore(OsDisk(str(tmp_path / name)), tmp_path / f"restored-{name}")
        with topics.open(tmp_path / f"restored-{name}") as store:
            assert positions(store) == before


def test_a_restore_to_a_seq_has_positions_of_that_moment(tmp_path: Path) -> None:
    from topics.host.wal.cutting import Goal

    data = tmp_path / "data"
    with topics.open(data) as store:
        topic = store.create("t")
        topic.put(1)
        topic.consumer("c").seek(tail=True)
        store.backup(tmp_path / "backup")
        topic.put(2)
        topic.consumer("c").commit(2)
        topic.put(3)
        topic.consumer("c").commit(3)
    restore(
        OsDisk(str(tmp_path / "backup")), tmp_path / "restored", logs=[OsDisk(str(data))], names=["data"],
        goal=Goal(seqs={"t": 2}),
    )  # fmt: skip
    with topics.open(tmp_path / "restored") as store:
        assert store.topic("t").consumer("c").position().from_seq == 2


_KILLED = """
import os, signal, sys, topics
store = topics.open(sys.argv[1])
topic = store.create("t", durability=sys.argv[2])
topic.put_many([{"data": i} for i in range(100)])
consumer = topic.consumer("c")
consumer.seek()
for seq in range(1, 51):
    consumer.commit(seq)
print(consumer.read(limit=10, auto_commit=True).next_from_seq, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.rule("H7.5")
@pytest.mark.parametrize("durability", CLASSES)
def test_what_was_answered_outlasts_sigkill(tmp_path: Path, durability: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), durability],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (killed.returncode, killed.stdout, killed.stderr) == (-9, b"60\n", b"")
    with topics.open(tmp_path) as store:
        assert store.topic("t").consumer("c").position().from_seq == 60


def test_of_an_ephemeral_topic_they_end_with_the_process(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t", durability="ephemeral")
        topic.put_many([{"data": 1}, {"data": 2}])
        topic.consumer("c").seek(tail=True)
        assert topic.consumer("c").position().from_seq == 2
    with topics.open(tmp_path) as store:
        assert store.topic("t").consumers() == []


def test_threads_share_what_one_consumer_reads(tmp_path: Path) -> None:
    """With auto_commit each record is given to one of them."""
    seen: list[int] = []
    with topics.open(tmp_path) as store:
        topic = store.create("t")
        topic.put_many([{"data": number} for number in range(200)])
        topic.consumer("c").seek()

        def read() -> None:
            while page := topic.consumer("c").read(limit=7, auto_commit=True).records:
                seen.extend(record.seq for record in page)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(seen) == list(range(1, 201))


def test_records_goes_on_where_the_consumer_stands_and_tells_what_is_lost(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t", cap_records=3)
        consumer = topic.consumer("c")
        consumer.seek()
        topic.put_many([{"data": number} for number in range(1, 7)])
        gap, *records = consumer.records()

        assert isinstance(gap, topics.Gap)
        assert (gap.gap_to, [record.seq for record in records]) == (3, [4, 5, 6])
        consumer.commit(gap.gap_to)
        consumer.commit(4)
        assert [record.seq for record in consumer.records()] == [5, 6]
        assert [record.seq for record in consumer.records(match="none")] == []

        following = consumer.records(follow=True)
        assert [next(following).seq for _ in range(2)] == [5, 6]
        topic.put(7)
        assert next(following).seq == 7


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_that_is_only_read_has_positions_and_moves_none(tmp_path: Path, read_only: bool) -> None:
    data = tmp_path / "data"
    with topics.open(data) as store:
        fill(store)
        before = positions(store)
        store.backup(tmp_path / "backup")
    where = tmp_path / "backup" if read_only else shutil.copytree(data, tmp_path / "copy")
    with topics.open(where, read_only=True) as store:
        assert positions(store) == before
        consumer = store.topic("disk").consumer("c")
        assert [record.seq for record in consumer.read(limit=2).records] == [7, 8]
        for refused in (lambda: consumer.commit(8), consumer.delete, lambda: consumer.read(auto_commit=True)):
            with pytest.raises(topics.Rejected) as told:
                refused()
            assert told.value.code == "storage_read_only"
