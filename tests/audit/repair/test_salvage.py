"""What a repair keeps of the log, where seqs are missing in it (storage 4)."""

from tests.support.dead_runs import leaving_from
from tests.support.reclaiming import half_dead, idx_of, scene_with
from tests.support.repaired import mended, open_it, view
from topics.audit.repair.repairing import repair
from topics.embed.store import Store
from topics.host.directory.layout import find_wal_files, segment_path, wal_path
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

SMALL = Limits(wal_file_first=2048, wal_file_max=4096, wal_reserve=256)


def opened(disk):
    options = StoreOptions(limits=SMALL, min_free_bytes=4096)
    return Store(open_simulated(disk, ManualClock(), SeededEntropy(1), options), disk, housekeeping=False)


def test_a_repair_keeps_every_record_of_a_log_that_goes_on_in_new_files_behind_a_lost_range():
    """Seqs that a power cut took lie between slots, so a slot's place in the index does not give its seq."""
    disk = SimDisk(1)
    opened(disk).create("t", durability="disk").put_many([{"data": i} for i in range(10)])
    disk.power_loss(Shape.EVERYTHING)
    store = opened(disk)
    for i in range(100):
        store.topic("t").put({"n": i})
    store.close()
    disk.flip(wal_path(find_wal_files(disk, 0, 0)[1]), 300 * 8)
    disk.process_death()

    repair(disk, where="a store", same_boot=False, stamp="now")
    topic = opened(disk).topic("t")
    records, gaps, at, caught_up = [], [], 0, False
    while not caught_up:
        page = topic.read(from_seq=at, limit=1000)
        records += [record.seq for record in page.records]
        gaps += [(page.tombstone.gap_from, page.tombstone.gap_to)] if page.tombstone else []
        at, caught_up = page.next_from_seq, page.caught_up

    assert gaps == [(11, 64), (72, 72)]
    assert records == [*range(1, 11), *range(65, 72), *range(73, 165)]


def test_what_is_dead_and_has_left_the_index_keeps_its_entry_in_the_segments_of_a_repair():
    """A segment covers seqs without a gap; only a live record that is damaged ends one."""
    scene = scene_with()
    with leaving_from(2):
        half_dead(scene, 30)  # of each five seqs the last four
        scene.checkpoint()
        scene.checkpoint()
    slotless = [run.first for run in scene.engine.catalog.find("t").index.slotless]
    idx = idx_of(scene, 1)
    scene.disk.flip(segment_path(1, 1, "data"), (idx.offsets[5] + 45) * 8)  # seq 6
    scene.process_death()
    with leaving_from(2):
        before = view(scene.disk)["t"][0]
        mended(scene.disk)
        records, lost, *_ = view(scene.disk)["t"]
        index = open_it(scene.disk).engine.catalog.find("t").index

    assert slotless == [2, 7, 12, 17, 22, 27]
    assert (list(before), list(records), lost) == ([1, 6, 11, 16, 21, 26], [1, 11, 16, 21, 26], [(6, 6)])
    assert [tuple(run) for run in index.ended(index.start, index.stop)] == [
        (2, 5, 2), (7, 10, 2), (12, 15, 2), (17, 20, 2), (22, 25, 2), (27, 30, 2)
    ]  # fmt: skip
