"""A full disk refuses what there is no room for, and nothing else: deletes make room again, without a restart."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle

import attrs
import pytest

from tests.support.faulty_store import FaultyStore
from tests.support.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.engine.verify import canonical
from topics.host.checkpoint.checkpointer import AGAIN_MS, LOW_MS
from topics.host.checkpoint.reclaim import ROOM_AGAIN_MS
from topics.host.cold.ownership import Whose, whose
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.directory.layout import wal_path
from topics.host.segments.appending import append_pieces
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import WAL_FILE_GROWTH, Limits
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

MIN_FREE = 4096
TEN = SegmentRules(records_max=10, bytes_max=100_000, age_ms=0)
RECORD = b'"%s"' % (b"x" * 400)


def scene_with(**options):
    scene = Scene(**{"limits": SMALL, "segments": TEN, "min_free_bytes": MIN_FREE} | options)
    scene.open()
    return scene


def put(scene, count, topic="t", tag=None):
    for start in range(0, count, 5):
        some = [RECORD] * min(5, count - start)
        scene.put(topic, *some, tag=None if tag is None else tag[start : start + 5])
    scene.sync()


def fill(scene, topic="t"):
    """Records until there is no room for more."""
    with pytest.raises(Rejected) as refused:
        for _ in range(1000):
            put(scene, 1, topic)
    assert refused.value.code is Code.DISK_LOW
    scene.engine.take_effects()


def look_after(scene, seconds):
    """What a driver does in that time."""
    checkpointer = scene.opened.checkpointer
    for _ in range(seconds):
        scene.clock.advance(1000)
        steps = checkpointer.due()
        if steps is not None:
            with suppress(Rejected, OSError):
                scene.carry(steps)
            steps.close()
        scene.drain()


def contents(disk, where="topics"):
    """{path: bytes} of all files below."""
    found = {}
    for name in disk.names(where):
        path = f"{where}/{name}"
        if disk.size(path) is None:
            found |= contents(disk, path)
        else:
            found[path] = disk.content(path)
    return found


@pytest.mark.rule("T3.23", "T3.31")
@pytest.mark.parametrize("room", [20_000, 31_000, 33_000, 60_000])
def test_a_disk_that_is_full_takes_writes_again_when_records_were_deleted(room):
    """Though nobody calls for a checkpoint, and although one had filled it."""
    scene = scene_with()
    scene.create("t", durability="fsync")
    scene.disk.free = room
    fill(scene)
    head = scene.state("t").head_seq
    look_after(scene, 200)
    assert scene.disk.free >= MIN_FREE - 2800  # but for two snapshots, which they are for
    with pytest.raises(Rejected):
        put(scene, 1)
    scene.engine.take_effects()

    assert scene.delete("t", before_seq=head - 1).deleted == head - 2
    look_after(scene, 200)
    assert scene.put("t", RECORD).last_seq == head + 1
    state = canonical(scene.engine.state.catalog)
    scene.process_death()
    scene.open()
    assert canonical(scene.engine.state.catalog) == state


def held_up(topics, shards, room, kept):
    """A full store of which all was deleted but the last record of each topic, which holds up its log. With those."""
    scene = scene_with(shards=shards, min_free_bytes=kept)
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        scene.create(name, durability="fsync")
    scene.disk.free = kept + room
    with pytest.raises(Rejected):
        while True:
            for name in names:
                put(scene, 1, name)
    scene.engine.take_effects()
    look_after(scene, 100)
    for name in names:
        scene.delete(name, before_seq=scene.state(name).head_seq)
    return scene, {name: scene.read(name) for name in names}


@pytest.mark.rule("T3.23")
def test_a_little_that_lives_is_copied_from_what_is_kept_free_and_lets_all_of_the_log_go():
    scene, live = held_up(topics=6, shards=3, room=220_000, kept=1_700_000)
    assert all(len(records) == 1 for records in live.values())
    look_after(scene, 100)
    assert scene.disk.free > 1_700_000
    assert {name: scene.read(name) for name in live} == live
    assert scene.put("t0", RECORD).count == 1


def test_what_lives_of_more_topics_than_have_room_for_files_is_not_begun_to_be_copied():
    """A few bytes of each, but files for all of them: a copy of a part would free no log."""
    scene, live = held_up(topics=24, shards=3, room=9000, kept=200_000)
    look_after(scene, 100)
    assert contents(scene.disk) == {}
    with pytest.raises(Rejected):
        scene.put("t0", RECORD)
    assert {name: scene.read(name) for name in live} == live


def test_a_crash_in_the_midst_of_that_loses_nothing_and_the_next_life_makes_the_room():
    scene, live = held_up(topics=4, shards=1, room=150_000, kept=1_100_000)
    before = scene.disk.snapshot()
    for number, landed in enumerate(cycle(Landed)):  # at each call of the disk
        scene.disk.restore(before)
        scene.open()
        scene.drain()
        assert scene.opened.writers[0].disk_low
        scene.disk.crash_at(number, landed)
        try:
            for _ in range(2):
                scene.checkpoint()
        except SimCrash:
            scene.power_loss(Shape.RANDOM_PAGES, number)
            scene.open()
        else:
            break
        assert scene.opened.damages == []
        assert {name: scene.read(name) for name in live} == live
        for _ in range(2):
            scene.checkpoint()
        assert {name: scene.read(name) for name in live} == live
        scene.drain()
        assert scene.put("t0", RECORD).count == 1
    assert number > 40


def test_a_round_leaves_min_free_bytes_free_and_a_refused_one_takes_no_room():
    scene = scene_with()
    put(scene, 40)
    scene.disk.free = MIN_FREE + 6000
    with pytest.raises(Rejected, match="no space for a checkpoint of all records"):
        scene.checkpoint()
    with pytest.raises(Rejected):
        scene.checkpoint()  # two snapshots are kept, and say the same
    before, number = scene.disk.free, scene.opened.checkpointer.kept[0].number
    assert before >= MIN_FREE - 1024
    for _ in range(3):
        with pytest.raises(Rejected):
            scene.checkpoint()
    assert scene.disk.free == before
    assert scene.opened.checkpointer.kept[0].number == number  # it would say nothing new

    scene.disk.free = 1 << 20
    scene.checkpoint()
    assert scene.engine.state.catalog.find("t").segments.stored_seq == 40


def test_as_much_of_a_long_log_is_copied_as_there_is_room_for():
    scene = scene_with(segments=SegmentRules(age_ms=0))
    put(scene, 40)
    scene.disk.free = MIN_FREE + 6000
    with pytest.raises(Rejected):
        scene.checkpoint()
    assert 8 <= scene.engine.state.catalog.find("t").segments.stored_seq <= 14


def test_logs_of_deleted_records_go_though_nothing_is_copied_or_written_any_more():
    scene = scene_with()
    put(scene, 30)
    scene.disk.free = MIN_FREE + 100
    for number in range(4):
        if number == 2:
            scene.delete("t", before_seq=28)
        before = scene.files()
        with pytest.raises(Rejected):
            scene.checkpoint()
    assert len(scene.files()) < len(before)
    assert scene.engine.state.catalog.find("t").segments.stored_seq == 0
    assert len(scene.read("t")) == 3


@pytest.mark.parametrize("begun", [0, 3, 14], ids=["nothing", "part of a segment", "a segment and a part"])
@pytest.mark.parametrize("op", ["create", "write", "sync_data", "sync_dir"])
def test_what_a_copy_has_written_is_given_back_wherever_the_disk_is_full(begun, op):
    scene = scene_with()
    scene.create("t", durability="fsync")
    put(scene, begun, tag=[b"a"] * begun)
    scene.checkpoint()
    put(scene, 8, tag=[b"a"] * 8)
    checkpoints, before = scene.engine.checkpoints, contents(scene.disk)
    pieces = checkpoints.plan(checkpoints.goals())
    for number in range(20):
        fault = scene.disk.inject(op, FaultKind.ENOSPC, at=scene.disk.counts[op] + number)
        try:
            append_pieces(scene.disk, pieces, {})
        except OSError:
            assert contents(scene.disk) == before
        else:
            break
        finally:
            scene.disk.heal(fault)
    assert number > 0 or (begun and op in ("create", "sync_dir"))
    scene.checkpoint()
    assert len(scene.read("t")) == begun + 8


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.DROPS_PAGES])
def test_a_round_behind_a_failed_sync_rests_on_nothing_that_it_covered(kind):
    """A failed sync leaves pages clean that were never written: all are written again before a log is removed."""
    for number in range(40):
        scene = scene_with()
        put(scene, 14, tag=[b"a"] * 14)
        scene.checkpoint()
        put(scene, 14, tag=[b"b"] * 14)
        scene.delete("t", match="a")
        read = scene.read("t")
        fault = scene.disk.inject("sync_data", kind, at=scene.disk.counts["sync_data"] + number)
        try:
            for _ in range(3):
                scene.checkpoint()
            scene.reclaim()
        except OSError:
            pass
        except Fatal:  # it was a sync of the log
            continue
        else:
            break
        scene.disk.heal(fault)
        for _ in range(3):
            scene.checkpoint()
        scene.reclaim()
        scene.power_loss(Shape.NOTHING)
        scene.open()
        assert scene.opened.damages == []
        assert scene.read("t") == read
    assert number > 8


@pytest.mark.rule("T5.5")
def test_without_room_for_a_copy_of_what_a_backup_shares_flags_are_left_out_and_logs_go():
    scene = scene_with()
    put(scene, 10, tag=[b"", b"a"] + [b""] * 8)
    put(scene, 10, "gone")
    for _ in range(2):
        scene.checkpoint()
    for path in contents(scene.disk):
        if path.endswith((".data", ".idx")):
            scene.disk.share(path)
    scene.disk.free = MIN_FREE + 3000
    scene.delete("t", match="a")
    scene.delete("gone", before_seq=11)
    flagged = contents(scene.disk)
    scene.checkpoint()
    scene.checkpoint()

    assert not any(path.startswith("topics/0000000000000002/") for path in contents(scene.disk))
    assert all(flagged[path] == data for path, data in contents(scene.disk).items())
    scene.disk.free = 1 << 20
    scene.checkpoint()  # there is room now
    assert any(flagged[path] != data for path, data in contents(scene.disk).items())


def test_a_rewrite_that_has_no_room_leaves_relocation_its_turn():
    cold_disk = SimDisk(7)
    scene = scene_with(
        cold=lambda _: FaultyStore(LocalSegmentStore(cold_disk, "the cold place")),
        hot=HotRules(retain_segments=1),
    )
    put(scene, 20, "half", tag=([b"x"] * 6 + [b""] * 4) * 2)
    put(scene, 50, "old")
    scene.checkpoint()
    scene.delete("half", match="x")
    for _ in range(2):
        put(scene, 1, "half")
        scene.checkpoint()
    checkpointer = scene.opened.checkpointer
    assert checkpointer.reclaimer.half_dead()
    scene.disk.free = MIN_FREE + 1000

    look_after(scene, 20)
    assert checkpointer.relocator.counts.to_cold == 4
    assert checkpointer.reclaimer.rewrites == 0
    scene.disk.free = 1 << 20
    look_after(scene, ROOM_AGAIN_MS // 1000 + 5)
    assert checkpointer.reclaimer.rewrites == 2


@pytest.mark.parametrize("op", ["create", "write"])
def test_a_rewrite_on_a_disk_that_others_fill_meanwhile_gives_its_room_back(op):
    scene = scene_with()
    put(scene, 20, tag=([b"x"] * 6 + [b""] * 4) * 2)
    scene.checkpoint()
    scene.delete("t", match="x")
    scene.checkpoint()
    scene.checkpoint()
    read, before = scene.read("t"), contents(scene.disk)
    for number in range(2):  # the data, then the idx
        fault = scene.disk.inject(op, FaultKind.ENOSPC, at=scene.disk.counts[op] + number)
        assert scene.reclaim() == 0
        assert contents(scene.disk) == before
        scene.disk.heal(fault)
        scene.clock.advance(ROOM_AGAIN_MS)
    assert scene.reclaim() == 2
    assert scene.read("t") == read


def test_where_a_large_log_file_does_not_fit_a_smaller_one_does_and_they_grow_again_with_the_room():
    """A write was refused for the room of a next file that it did not need."""
    scene = scene_with()
    put(scene, 30)
    largest, wal = SMALL.wal_file_max, scene.opened.writers[0].wal
    scene.disk.free = MIN_FREE + largest - 1
    sizes = set()
    for _ in range(24):  # into the present file, the one that is reserved, and a smaller one
        put(scene, 1)
        sizes.add(scene.disk.size(wal_path(wal.file)))
    assert sizes == {largest, largest // WAL_FILE_GROWTH}
    with pytest.raises(Rejected, match=f"{MIN_FREE} beside it"):
        for _ in range(10):
            put(scene, 1)
    scene.disk.free = 100 * largest
    assert scene.opened.writers[0].keep_reserve()
    for _ in range(24):
        put(scene, 1)
    assert scene.disk.size(wal_path(wal.file)) == largest
    assert len(scene.read("t")) == scene.engine.catalog.find("t").head_seq


def test_a_short_disk_is_written_but_for_the_reserve_and_what_no_next_file_fits_into():
    """A next file that takes all the room has none behind it, and without that nothing more is written."""
    limits = Limits(wal_file_first=8192, wal_file_max=8 * 8192, wal_reserve=2048)
    for room in range(2 * 8192, 12 * 8192, 5000):
        scene = Scene(limits=limits, min_free_bytes=MIN_FREE)
        scene.disk.free = MIN_FREE + room
        scene.open()
        fill(scene)
        assert scene.opened.writers[0].wal.appended >= room - 3 * 8192, room
        assert scene.disk.free >= MIN_FREE


def test_a_reserved_file_is_made_larger_for_a_write_where_there_is_room_for_the_difference():
    """Room for all of the file was asked for, as if none of it were there."""
    scene = scene_with()
    put(scene, 10)
    writer, wal, room = scene.opened.writers[0], scene.opened.writers[0].wal, 600
    begun = wal.file
    scene.disk.free = MIN_FREE + SMALL.wal_file_first + room
    while wal.file == begun:  # then the next one is of the first size
        put(scene, 1)
    assert (wal.reserved_bytes, scene.disk.free) == (SMALL.wal_file_first, MIN_FREE + room)
    assert writer.keep_reserve(SMALL.wal_file_first)
    assert wal.reserved_bytes > SMALL.wal_file_first
    left = scene.disk.free - MIN_FREE
    assert not writer.keep_reserve(SMALL.wal_file_first + left + 1)
    assert f"({left + 1} for the next log file, and" in writer.shortage.message


def test_the_reserve_of_deletes_is_made_whole_on_a_low_disk_that_has_room_for_the_difference():
    first = SMALL.wal_file_first
    limits = attrs.evolve(SMALL, wal_reserve=first)
    scene = Scene(limits=limits, segments=TEN, min_free_bytes=MIN_FREE)
    scene.disk.free = MIN_FREE + 3 * first
    scene.open()
    wal = scene.opened.writers[0].wal
    assert wal.reserved_bytes == first  # of which the header and the marks are no room
    assert wal.room() < first
    scene.disk.free = first // 2
    assert scene.opened.writers[0].keep_reserve()
    assert wal.room() == first


def test_a_round_that_was_refused_leaves_a_minute_to_other_work_and_a_low_disk_asks_for_rounds_soon():
    scene = scene_with(checkpoint_interval_ms=0)
    scene.create("t", durability="fsync")
    scene.disk.free = 16000
    fill(scene)
    checkpointer = scene.opened.checkpointer
    assert not checkpointer.is_due()
    scene.clock.advance(LOW_MS)
    assert checkpointer.is_due()
    scene.disk.free = MIN_FREE + 100
    with pytest.raises(Rejected):
        scene.checkpoint()
    scene.clock.advance(LOW_MS)
    assert checkpointer.is_due()  # the second one makes room
    with pytest.raises(Rejected):
        scene.checkpoint()
    scene.delete("t", before_seq=2)
    scene.clock.advance(AGAIN_MS - 1)
    assert not checkpointer.is_due()
    scene.clock.advance(1)
    assert checkpointer.is_due()


def test_a_large_snapshot_leaves_min_free_bytes_free_and_a_small_one_may_take_of_them():
    """With most of a long log uncopied it holds a slot for each record there, and would fill the disk by itself."""
    scene = scene_with()
    put(scene, 80)
    scene.disk.free = MIN_FREE + 100
    with pytest.raises(OSError, match="no room for"):
        scene.checkpoint()
    assert scene.disk.free == MIN_FREE + 100
    assert scene.opened.checkpointer.kept == []

    scene.delete("t", before_seq=79)
    look_after(scene, 700)  # the log has room for writes, so there is no hurry
    assert len(scene.opened.checkpointer.kept) == 2
    assert scene.engine.state.catalog.find("t").segments.stored_seq == 80


@pytest.mark.rule("T4.2")
@pytest.mark.parametrize("room", [0, 3000, 9000, 20_000])
def test_a_change_of_shards_without_room_for_all_records_keeps_them_in_the_logs_of_before(room):
    """Its checkpoint copies some, or none, and keeps a snapshot that names the logs with the rest."""
    scene = scene_with(shards=1)
    for topic in ("a", "b", "c"):
        scene.create(topic, durability="fsync")
        put(scene, 15, topic)
    scene.delete("b", before_seq=4)
    read = {topic: scene.read(topic) for topic in ("a", "b", "c")}
    scene.process_death()
    scene.options = attrs.evolve(scene.options, shards=3)
    scene.disk.free = MIN_FREE + 3 * 2048 + room
    scene.open()
    for _ in range(2):
        assert {topic: scene.read(topic) for topic in read} == read
        assert scene.opened.damages == []
        with suppress(Rejected, OSError):
            scene.checkpoint()
        scene.power_loss(Shape.NOTHING)
        scene.open()

    scene.disk.free = 1 << 20
    for _ in range(2):
        scene.checkpoint()
    assert scene.files(generation=0) == []
    assert {topic: scene.read(topic) for topic in read} == read


def test_a_cold_folder_without_any_room_lets_go_of_what_nobody_needs():
    """Its note is written anew before a change, and had no room beside its place: nothing ever went."""
    folder = SimDisk(2)
    scene = scene_with(
        hot=HotRules(retain_segments=0), cold=lambda _: LocalSegmentStore(folder, "the folder")
    )
    scene.create("t", durability="fsync")
    put(scene, 80)
    for _ in range(2):
        scene.checkpoint()
    assert scene.relocate() > 1
    store, before = scene.cold, len(scene.cold.list())
    folder.free = 0
    scene.delete("t", before_seq=79)
    for _ in range(2):
        scene.put("t", b"1", sync=True)
        scene.checkpoint()
    scene.relocate()

    assert scene.opened.checkpointer.relocator.failed is None
    assert len(store.list()) < before
    folder.power_loss(Shape.NOTHING)
    assert whose(scene.disk, store) is Whose.OURS
