"""Records that only the log has, in front of the newest snapshot: a start misses them as it does any (storage 4)."""

import pytest

from topics.audit.fsck import Options, fsck
from topics.audit.repair import repair
from topics.embed.store import Store
from topics.host.layout import find_wal_files
from topics.host.opening import StoreOptions
from topics.host.walfile import wal_path
from topics.kernel.errors import Corrupt
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

SMALL = Limits(wal_file_first=2048, wal_file_max=2048, wal_reserve=256)
COUNT = 60


def opened(disk):
    options = StoreOptions(limits=SMALL, min_free_bytes=4096)
    return Store(open_simulated(disk, ManualClock(), SeededEntropy(1), options), disk, housekeeping=False)


@pytest.fixture
def disk():
    """Of a store that kept its state when it ended: nothing is in segments, and nothing is replayed."""
    disk = SimDisk(1)
    store = opened(disk)
    for name in ("a", "b"):
        store.create(name, durability="fsync")
    for i in range(COUNT // 2):
        store.topic("a").put({"n": i})
        store.topic("b").put({"n": i})
    closing = store._opened.checkpointer.closing()
    store._compactor.carry_out(lambda: closing)
    store.close()
    disk.process_death()
    return disk


def place_of(disk, seq, topic="a"):
    """(path, offset) of a record in the log."""
    found = opened(disk)._opened.engine.state.catalog
    topic = found.topics[found.topic_ids[topic]]
    source, _ = topic.regions.source_until(seq)
    disk.process_death()
    return wal_path(source), topic.index.offsets[topic.index.position(seq)]


def test_all_of_it_is_there(disk):
    store = opened(disk)

    assert not store.damages
    assert len(store.topic("a").read(from_seq=0, limit=COUNT).records) == COUNT // 2


@pytest.mark.rule("T4.9")
@pytest.mark.parametrize("seq", [1, 7, COUNT // 2])
def test_a_damaged_record_makes_the_store_read_only_and_is_named(disk, seq):
    path, offset = place_of(disk, seq)
    disk.flip(path, (offset + 40) * 8)
    store = opened(disk)
    (damage,) = store.damages
    report = fsck(disk, where="a store", options=Options(same_boot=True, settled=True))

    assert store.read_only
    assert (damage.topic, damage.first_seq, damage.last_seq) == ("a", seq, seq)
    assert [(one.check, one.file, one.seq) for one in report.errors] == [("wal.damage", path, seq)]
    with pytest.raises(Corrupt):
        store.topic("a").read(from_seq=seq - 1)


@pytest.mark.rule("T4.11")
def test_a_repair_keeps_all_but_the_damaged_record(disk):
    path, offset = place_of(disk, 7)
    disk.flip(path, (offset + 40) * 8)
    done = repair(disk, where="a store", same_boot=True, stamp="now")
    store = opened(disk)
    page = store.topic("a").read(from_seq=7)

    assert (done.lost, store.read_only, list(store.damages)) == ({"a": [(7, 7)]}, False, [])
    assert [record.seq for record in page.records] == list(range(8, COUNT // 2 + 1))


@pytest.mark.rule("T4.9")
def test_a_file_of_the_log_that_is_gone_is_missed(disk):
    gone = wal_path(find_wal_files(disk, 0, 0)[0])
    disk.unlink(gone)
    store = opened(disk)
    report = fsck(disk, where="a store", options=Options(same_boot=True, settled=True))

    assert store.read_only
    assert {damage.topic for damage in store.damages} == {"a", "b"}
    assert {one.file for one in report.errors} == {gone}


def test_damage_where_nobody_s_record_is_stands_in_no_way(disk):
    """The creation of a topic: the snapshot has it."""
    _, offset = place_of(disk, 1)
    path = wal_path(find_wal_files(disk, 0, 0)[0])
    disk.flip(path, (offset - 60) * 8)
    store = opened(disk)
    report = fsck(disk, where="a store", options=Options(same_boot=True, settled=True))

    assert not store.damages
    assert [one.check for one in report.errors] == ["wal.absorbed"]
