"""What time asks of an embedded store: timed syncs, closing marks, exact heads, the next file's reserve.

One round of the housekeeping thread's work is called by hand, between steps of a clock set by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import topics
from topics.codec.log.control import CommitMark, Control, HeadWatermark
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.host.directory.layout import find_wal_files, wal_path
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


def keep_house(store: topics.Store) -> int | None:
    with store._local.lock:
        return store._keeper.keep_once()


def controls(disk: SimDisk) -> Iterator[Control]:
    for file in find_wal_files(disk, 0, 0):
        content = disk.content(wal_path(file))
        yield from (
            item for item in scan(content, HEADER_SIZE, len(content)).items if isinstance(item, Control)
        )


def of_kind(disk: SimDisk, kind: type) -> list[Control]:
    return [control for control in controls(disk) if isinstance(control.payload, kind)]


@pytest.mark.rule("T3.16")
def test_a_shard_that_rests_for_50_ms_gets_one_closing_mark(
    store: topics.Store, disk: SimDisk, clock: ManualClock
) -> None:
    store.create("t", durable=True).put(1)
    keep_house(store)
    before = len(of_kind(disk, CommitMark))

    clock.advance(49)
    keep_house(store)
    assert len(of_kind(disk, CommitMark)) == before
    clock.advance(1)
    keep_house(store)
    assert len(of_kind(disk, CommitMark)) == before + 1
    clock.advance(1000)
    keep_house(store)
    assert len(of_kind(disk, CommitMark)) == before + 1

    wal = store._opened.writers[0].wal
    assert wal.file is not None
    tail = wal.statistics()["tail"]
    assert disk.is_durable(wal_path(wal.file), 0, tail)


@pytest.mark.rule("T3.12")
def test_what_waits_for_no_sync_is_synced_by_the_timer(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", durability="disk")
    topic.put(1, sync=True)
    topic.put(2)
    keep_house(store)
    assert topic.state().durable_seq == 1

    clock.advance(999)
    keep_house(store)
    assert topic.state().durable_seq == 1
    clock.advance(1)
    keep_house(store)
    assert topic.state().durable_seq == 2


def test_a_store_in_which_nothing_is_due_asks_for_no_time(
    store: topics.Store, disk: SimDisk, clock: ManualClock
) -> None:
    topic = store.create("t", durability="disk")
    topic.put(1)
    assert keep_house(store) is not None
    for _ in range(3):
        clock.advance(1000)
        keep_house(store)

    assert keep_house(store) is None
    before = disk.mutations
    clock.advance(3_600_000)
    assert keep_house(store) is None
    assert disk.mutations == before
    topic.put(2)
    assert store._local.engine.deadline_moved
    assert keep_house(store) is not None


@pytest.mark.rule("T3.21", "T4.29")
def test_an_idle_topic_logs_its_exact_head_and_its_next_write_raises_again(
    store: topics.Store, disk: SimDisk, clock: ManualClock
) -> None:
    topic = store.create("t", durability="disk")
    topic.put_many([{"data": i} for i in range(10)])
    assert [control.payload.ceiling for control in of_kind(disk, HeadWatermark)] == []

    clock.advance(1000)
    keep_house(store)
    assert [control.payload.ceiling for control in of_kind(disk, HeadWatermark)] == [10]

    topic.put("next")
    ceilings = [control.payload.ceiling for control in of_kind(disk, HeadWatermark)]
    assert ceilings[0] == 10
    assert ceilings[1] > 11


@pytest.mark.rule("T4.29", "T3.16")
def test_a_clean_shutdown_leaves_exact_heads_all_synced_and_a_mark(
    store: topics.Store, disk: SimDisk, open_sim: Callable[..., topics.Store]
) -> None:
    for durability in ("disk", "memory", "ephemeral"):
        store.create(durability, durability=durability).put_many([{"data": i} for i in range(5)])
    store.close()
    disk.power_loss()

    with open_sim(machine_restarted=True) as again:
        states = {row.topic: again.topic(row.topic).state() for row in again.list()}
        assert [states[name].head_seq for name in ("disk", "memory", "ephemeral")] == [5, 5, 5]
        assert [states[name].evict_floor for name in ("disk", "memory", "ephemeral")] == [1, 1, 6]
        assert again.topic("disk").read(account=True).tombstone is None


@pytest.mark.rule("T2.3", "T2.5", "T2.6")
def test_the_next_file_is_reserved_before_it_is_needed(store: topics.Store, disk: SimDisk) -> None:
    topic = store.create("t", durability="disk")
    keep_house(store)
    sizes = [disk.size("wal/gen-0/shard-00/next.tmp")]
    for _ in range(40):
        topic.put_many([{"data": "x" * 10_000}] * 50)
        keep_house(store)
        sizes.append(disk.size("wal/gen-0/shard-00/next.tmp"))

    files = [disk.size(wal_path(file)) for file in find_wal_files(disk, 0, 0)]
    assert files == [1 << 20, 4 << 20, 16 << 20]
    assert set(sizes) == {4 << 20, 16 << 20, 64 << 20}


@pytest.mark.rule("T3.23")
def test_space_that_comes_back_is_noticed(store: topics.Store, disk: SimDisk) -> None:
    topic = store.create("t", durability="disk")
    free, disk.free = disk.free, 1000
    keep_house(store)
    with pytest.raises(topics.Rejected, match="disk space"):
        topic.put(1)

    disk.free = free
    keep_house(store)

    assert topic.put(1).first_seq == 1
