"""The edges of the driver that a reader found: parked writes that need room, interrupts, forks, two closers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import topics
from topics.embed.store import Store
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.host.system.systemcalls import SystemCalls
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


def test_a_first_write_larger_than_the_room_is_given_room(store: topics.Store) -> None:
    reply = store.topic("new").put_many([{"data": "x" * 1_000_000}] * 20)

    assert (reply.created, reply.count, reply.head_seq) == (True, 20, 20)


@pytest.mark.rule("T3.31")
def test_deletes_go_on_after_reopening_on_a_full_disk(
    store: topics.Store, disk: SimDisk, open_sim: object
) -> None:
    store.topic("t").put_many([{"data": i, "tag": str(i)} for i in range(100)])
    store.close()
    disk.free = 2 << 20

    with open_sim() as again:  # type: ignore[operator]  # the fixture's function
        topic = again.topic("t")
        with pytest.raises(topics.Rejected, match="disk space"):
            topic.put(1)
        assert sum(topic.delete(match=str(i)).deleted for i in range(100)) == 100


@pytest.mark.rule("T3.12")
def test_a_clock_set_back_does_not_stop_the_timed_sync(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", durability="disk")
    topic.put(1)
    clock.set(1_700_000_000_000 - 3_600_000)
    topic.put(2)
    for _ in range(3):
        clock.advance(500)
        with store._local.lock:
            store._keeper.keep_once()

    assert topic.state().durable_seq == 2


def test_a_forked_child_is_refused_by_every_call(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        topic = store.create("t")
        calls = (
            lambda: topic.put(1),
            topic.state,
            topic.read,
            lambda: topic.configure(ttl_ms=1),
            lambda: topic.delete(before_seq=1),
            lambda: store.create("u"),
            store.list,
            store.sync,
            lambda: store.delete("t"),
        )
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            refused = 0
            for call in calls:
                try:
                    call()
                except topics.Rejected:
                    refused += 1
            store.close()
            os.write(write_end, str(refused).encode())
            os._exit(0)
        os.waitpid(child, 0)

        assert os.read(read_end, 100) == str(len(calls)).encode()
        assert topic.put(1).first_seq == 1
        os.close(read_end)
        os.close(write_end)


def test_an_interrupt_in_a_system_call_ends_the_store_and_nobody_hangs(tmp_path: Path) -> None:
    syncing, go_on = threading.Event(), threading.Event()
    armed = threading.Event()

    def sync_data(fd: int) -> None:
        if armed.is_set():
            syncing.set()
            go_on.wait(10)
            raise KeyboardInterrupt
        os.fsync(fd)

    disk = OsDisk(tmp_path, calls=SystemCalls(sync_data=sync_data))
    opened = open_store(
        disk, SystemClock(), SystemEntropy(), where="here", machine_restarted=False, confirm=lambda _: None
    )
    store = Store(opened, disk, housekeeping=False)
    topic = store.create("t", durable=True)
    armed.set()
    ends: list[str] = []

    def put() -> None:
        try:
            topic.put(1)
        except (KeyboardInterrupt, topics.TopicsError) as error:
            ends.append(type(error).__name__)

    leader = threading.Thread(target=put)
    leader.start()
    assert syncing.wait(10)
    follower = threading.Thread(target=put)
    follower.start()
    while not opened.engine.state.shards[0].pending:
        os.sched_yield()
    go_on.set()
    leader.join(10)
    follower.join(10)

    assert sorted(ends) == ["Fatal", "KeyboardInterrupt"]
    with pytest.raises(topics.Rejected, match="open it again"):
        topic.put(2)
    store.close()
    disk.close()


@pytest.mark.rule("T1.2")
def test_the_directory_is_free_only_when_the_first_closer_is_done(tmp_path: Path) -> None:
    """A second closer, and whoever opens next, waits for what is still being written."""
    store = topics.open(tmp_path)
    topic = store.create("t", durable=True)
    ends: list[str] = []

    def append() -> None:
        try:
            for _ in range(10_000):
                topic.put(1)
        except topics.TopicsError as error:
            ends.append(str(error.code))

    writers = [threading.Thread(target=append) for _ in range(4)]
    for writer in writers:
        writer.start()
    while topic.state().head_seq < 50:
        os.sched_yield()
    closers = [threading.Thread(target=store.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(30)
    with topics.open(tmp_path) as again:
        assert again.topic("t").state().head_seq >= 50
    for writer in writers:
        writer.join(30)

    assert ends == ["shutting_down"] * 4  # every write that was accepted was answered
